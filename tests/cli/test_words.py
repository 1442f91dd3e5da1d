"""Words in a search by the command line: as the page on decoding prints it, on a tiny corpus of words."""

import json
from pathlib import Path

import pytest
from console import Las
from tiny_words import TRAIN, overrides, tree, wav

from las.cli import train

WORDS = sorted({word for text in TRAIN for word in text.split()})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with CTC of a tiny corpus, a dictionary of its words, and hot words."""
    root = tree(tmp_path_factory.mktemp("words"))
    train.train(overrides(root, "loss=joint_ctc"))
    (root / "words.dic").write_text("".join(f"{word}  X Y\n{word}(2)  Z\n" for word in WORDS))
    (root / "names.txt").write_text("GO ON\nSTOP\n")
    return root


def test_words_are_decoded_tuned_and_then_transcribed_with(root: Path, las: Las) -> None:
    checkpoint, dictionary = f"checkpoint={root / 'run'}", root / "words.dic"
    places = [checkpoint, f"data_dir={root / 'data'}"]
    words = ["search=beam_ctc_words", f"search.word_lm.words={dictionary}", "search.size=2"]
    for hot in ("[GO ON,STOP]", str(root / "names.txt")):
        more = [f"search.hot_words={hot}", "search.hot_words.weight=9.0", f"output={root / 'x.jsonl'}"]
        las("decode", *places, "split=test", *words, *more, "search.nbest=2").succeeds()
        scores = json.loads((root / "x.jsonl").read_text().splitlines()[0])["nbest"][0]["scores"]
        assert scores.keys() == {"las", "ctc", "word_lm", "hot_words"} and scores["hot_words"] >= 1
    tried = ["weights.lm=null", "weights.coverage=null", "weights.word_lm=[0.5,0.1]", "weights.hot_words=[1.0]"]
    las("tune", *places, *words, f"search.lexicon={dictionary}", more[0], *tried).succeeds("4 combinations")
    tuned = json.loads((root / "run/tuned.json").read_text())["search"]
    assert tuned["word_lm"]["weight"] == 0.5 and tuned["lexicon"]["path"] == str(dictionary)
    heard = las("transcribe", checkpoint, f"input={wav(root, 'fccc_1')}", "search=tuned").succeeds()
    text = next(line for line in heard.out.splitlines() if "fccc_1.wav: " in line).partition(".wav: ")[2]
    assert set(text.split()) <= set(WORDS)
    for wrong, says in (("search.lexicon=/nowhere.txt", "/nowhere.txt:"), ("search.hot_words=[go]", "'go' 'g', 'o'")):
        las("decode", *places, "split=test", wrong).fails(3, says)
