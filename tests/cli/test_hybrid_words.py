"""Hybrid HMMs for words by the command line: labels made by alignment, words decoded, scales tuned."""

import json
from pathlib import Path

import pytest
import tiny
import tiny_words
from console import Las
from tiny_frames import MODEL, SHORT
from tiny_words import DICTIONARY

from las.hmm.decision_tree import Growth
from las.hmm.labels import FrameLabels
from las.storage import checkpoint
from las.training.tasks import frame_labels

pytest.importorskip("kaldi_decoder")
WORDS = {"YES", "NO", "GO", "ON", "STOP", "IT"}


def hybrid(root: Path, *more: str) -> list[str]:
    corpus = [*tiny_words.corpus(root), "schedule=constant", "augment=none"]
    search = ["search=word_graph", "search@validation_search=word_graph"]
    return [*corpus, f"run_dir={root / 'run'}", *MODEL, *SHORT, *search, *more]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tiny_words.spoken(tmp_path)


@pytest.mark.slow
def test_words_from_training_to_tuned_decoding(root: Path, las: Las) -> None:
    answer = las("train", *hybrid(root)).succeeds("10 aligned")
    assert "dev WER " in answer.out and "test: WER " in answer.out
    (folder,) = (root / "data" / "labels").iterdir()
    assert len(FrameLabels(folder)) == 10, "training and development part"
    answer = las("train", *hybrid(root, "seed=2", f"run_dir={root / 'second'}", "trainer.max_steps=2"))
    assert answer.code == 0 and "are aligned" not in answer.out, answer.err

    places = [f"checkpoint={root / 'run'}", f"data_dir={root / 'data'}"]
    (root / "an4" / "etc" / "an4.dic").unlink()  # the checkpoint has the dictionary
    written = root / "x.jsonl"
    answer = las("decode", *places, "split=test", f"output={written}")
    assert answer.code == 0 and "test: WER " in answer.out, "the search of the training"
    more = ["search=word_graph", "search.nbest=2", "search.beam=20.0", f"output={written}"]
    las("decode", *places, "split=test", *more).succeeds()
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["fccc_0", "fccc_1"]
    assert all(set(line["text"].split()) <= WORDS for line in lines)
    assert all({"acoustic", "lm"} <= each["scores"].keys() for line in lines for each in line["nbest"])

    talk = root / "talk.jsonl"
    audio = tiny_words.wav(root, tiny_words.name("train", 7))
    las("transcribe", f"checkpoint={root / 'run'}", f"input={audio}", f"output={talk}").succeeds()
    transcript = json.loads(talk.read_text())
    assert transcript["text"].split() == [word["text"] for word in transcript["words"]]
    ends = [0.0, *(word["end_s"] for word in transcript["words"])]
    assert ends == sorted(ends) and ends[-1] <= transcript["duration_s"]
    assert all(word["start_s"] < word["end_s"] and 0 < word["confidence"] <= 1 for word in transcript["words"])

    grid = ["scales.acoustic_scale=[0.5,1.0]", "scales.prior_scale=null", "scales.lm_scale=[1.0]"]
    answer = las("tune", *places, "search=word_graph", *grid, "scales.insertion=[-60.0,0.0]").succeeds("dev: 2 4")
    tuned = json.loads((root / "run" / "tuned.json").read_text())["search"]
    assert tuned["acoustic_scale"] in (0.5, 1.0) and tuned["word_insertion"] in (-60.0, 0.0)
    answer = las("decode", *places, "split=dev", "search=tuned").succeeds()
    best = json.loads((root / "run" / "tuned.json").read_text())["errors"]
    assert f"dev: {best}" in answer.out, "the score of tuning is that of decoding"


@pytest.mark.slow
def test_another_dictionary_stops_a_run(root: Path, las: Las) -> None:
    assert las("train", *hybrid(root, "trainer.max_steps=2")).code == 0
    dictionary = root / "an4" / "etc" / "an4.dic"
    dictionary.write_text(DICTIONARY.replace("Y EH S", "Y AA S EH S"))
    las("train", *hybrid(root)).fails(5, "dictionary: frames:")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("labels=times", 2, "labels=times: an4 labels=align"),
        ("search=phone_bigram", 2, "search=word_graph"),
        ("lexicon=absent.dic", 3, "absent.dic:"),
    ],
)
def test_what_does_not_fit_is_named(root: Path, las: Las, change: str, code: int, words: str) -> None:
    las("train", *hybrid(root, change)).fails(code, words)


@pytest.mark.slow
def test_labels_of_triphones_are_made_first(root: Path, las: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are missing; the next training finds them, and goes on from its checkpoint."""
    monkeypatch.setattr(frame_labels, "DEFAULT_GROWTH", Growth(min_count=3, min_gain=0.5))
    answer = las("train", *hybrid(root, "labels=triphones", "trainer.max_steps=4")).succeeds("test: WER 10 aligned")
    (folder,) = (root / "data" / "labels").iterdir()
    num_pdfs = FrameLabels(folder).kind.num_pdfs
    assert f"{num_pdfs} tied" in answer.out
    assert checkpoint.find(root / "run", False)[0].model["output.bias"].shape == (num_pdfs,)
    answer = las("train", *hybrid(root, "labels=triphones", "trainer.max_steps=6"))
    assert answer.code == 0 and "are aligned" not in answer.out, answer.err
    las("tune_lr", *hybrid(root, "labels=triphones"), "updates=20", f"output={root / 'rates.json'}").succeeds()
    assert las("decode", f"checkpoint={root / 'run'}", f"data_dir={root / 'data'}", "split=test").code == 0


def test_triphones_of_phones_are_refused(corpus: Path, las: Las) -> None:
    given = ["model=hybrid_small", "labels=triphones", f"run_dir={corpus / 'run'}"]
    las("train", *tiny.corpus(corpus), *given).fails(2, "triphones dictionary: labels=align")
    assert not (corpus / "run").exists()
