"""Words in a search by the command line: as the page on decoding prints it, on a tiny corpus of words."""

import json
from pathlib import Path

import pytest
from console import Answer, Las
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


@pytest.fixture
def run(root: Path, las: Las) -> Las:
    """Runs a verb with the checkpoint."""

    def run(verb: str, *more: str) -> Answer:
        return las(verb, f"checkpoint={root / 'run'}", f"data_dir={root / 'data'}", *more)

    return run


def decoded(root: Path) -> list[dict]:
    return [json.loads(line) for line in (root / "x.jsonl").read_text().splitlines()]


def test_decode_with_words_and_hot_words(run: Las, root: Path) -> None:
    given = ["search=beam_ctc_words", f"search.word_lm.words={root / 'words.dic'}", "search.word_lm.weight=0.5"]
    for hot in ("[GO ON,STOP]", str(root / "names.txt")):
        more = [f"search.hot_words={hot}", "search.hot_words.weight=9.0", "search.nbest=2"]
        answer = run("decode", "split=test", *given, *more, f"output={root / 'x.jsonl'}")
        assert (answer.code, answer.err) == (0, "")
        scores = decoded(root)[0]["nbest"][0]["scores"]
        assert scores.keys() == {"las", "ctc", "word_lm", "hot_words"} and scores["hot_words"] >= 1


def test_words_are_tuned_and_then_transcribed_with(run: Las, las: Las, root: Path) -> None:
    tried = ["weights.lm=null", "weights.coverage=null", "weights.word_lm=[0.5,0.1]", "weights.hot_words=[1.0]"]
    words = [f"search.word_lm.words={root / 'words.dic'}", f"search.lexicon={root / 'words.dic'}"]
    answer = run("tune", "search=beam_ctc_words", *words, "search.hot_words=[STOP]", *tried, "search.size=2")
    assert (answer.code, answer.err) == (0, "") and "4 combinations" in answer.out
    tuned = json.loads((root / "run/tuned.json").read_text())["search"]
    assert tuned["word_lm"]["weight"] == 0.5 and tuned["lexicon"]["path"] == str(root / "words.dic")
    heard = las("transcribe", f"checkpoint={root / 'run'}", f"input={wav(root, 'fccc_1')}", "search=tuned")
    heard.succeeds()
    text = next(line for line in heard.out.splitlines() if "fccc_1.wav: " in line).partition(".wav: ")[2]
    assert set(text.split()) <= set(WORDS)


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (["search.lexicon=/nowhere.txt"], 3, "/nowhere.txt:"),
        (["search=beam_words"], 2, "search.word_lm.path=None:"),
        (["search.hot_words=[go]"], 3, "'go' 'g', 'o'"),
        (["search=greedy", "search.lexicon=x.txt"], 2, "search.lexicon: GreedySearch"),
        (["search.lexicn=x.txt"], 2, "search.lexicn"),
        (["+scorer@search.word_lm=word_ngram", "search.word_lm.word=x"], 2, "search.word_lm.words"),
    ],
)
def test_errors_say_what_to_type(given: list[str], code: int, words: str, run: Las) -> None:
    run("decode", "split=test", *given).fails(code, words)
