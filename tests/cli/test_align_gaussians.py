"""Gaussian mixtures by the command line: trained by `align`, tuned, decoded and transcribed by as other models are."""

import json
from pathlib import Path

import pytest
import tiny
import tiny_words
from console import Las

from las.storage import checkpoint, run_summary

WORDS = {"YES", "NO", "GO", "ON", "STOP", "IT"}
GRID = [
    "scales.acoustic_scale=[1.0,2.0]",
    "scales.prior_scale=[1.0]",
    "scales.lm_scale=[1.0]",
    "scales.insertion=[0.0]",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tiny_words.spoken(tmp_path)


def align(root: Path, *more: str) -> list[str]:
    return ["align", *tiny_words.corpus(root), f"output={root / 'x.ctm'}", f"gaussians={root / 'gmm'}", *more]


def texts(path: Path) -> dict[str, str]:
    """The text of each utterance, by its id."""
    lines = map(json.loads, path.read_text().splitlines())
    return {line["id"]: line["text"] for line in lines}


@pytest.mark.parametrize("more", [[], ["triphones=true", "tying.min_count=3", "tying.min_gain=0.5", "split=test"]])
def test_from_audio_and_transcripts_to_words(root: Path, las: Las, more: list[str]) -> None:
    """The commands of docs/hybrid.md, on a tiny corpus, without its dictionary once the models are trained.

    Half of the training utterances, whose sounds differ, are found again: chance is one in six for each word.
    """
    pytest.importorskip("kaldi_decoder")
    las(*align(root, *more)).succeeds(f"Gaussians checkpoint={root / 'gmm'}")
    assert run_summary.read(root / "gmm").state == "finished"
    stored = checkpoint.find(root / "gmm", strict=True)[0]
    assert stored.model["features.mean"].abs().max() > 0, "the statistics of the training set"
    assert stored.model["weights"].sum(1).tolist() == pytest.approx([1.0] * len(stored.model["weights"]))
    assert stored.config["model"]["_target_"] == "las.GaussianModel"
    assert set(stored.state["corpus"]["lexicon"]["entries"]) == WORDS
    (root / "an4" / "etc" / "an4.dic").unlink()
    places = [f"checkpoint={root / 'gmm'}", f"data_dir={root / 'data'}"]
    las("decode", *places, "split=train", f"output={root / 'train.jsonl'}").succeeds()
    found = texts(root / "train.jsonl")
    right = [text for number, text in enumerate(tiny_words.TRAIN) if found[tiny_words.name("train", number)] == text]
    assert len(right) >= 4 or more, found
    las("tune", *places, "search=word_graph_gaussians", *GRID).succeeds("an4 dev:")
    las("decode", *places, "split=test", "search=tuned").succeeds("WER")
    found = texts(root / "gmm" / "decoded" / "hypotheses.test.jsonl")
    assert list(found) == ["fccc_0", "fccc_1"] and set(" ".join(found.values()).split()) <= WORDS
    audio, talk = tiny_words.wav(root, tiny_words.name("train", 7)), root / "talk.jsonl"
    las("transcribe", f"checkpoint={root / 'gmm'}", f"input={audio}", f"output={talk}").succeeds()
    words = json.loads(talk.read_text())["words"]
    assert words and all(word["text"] in WORDS and 0 < word["confidence"] <= 1 for word in words)
    las("runs", str(root)).succeeds("gmm")


def test_phones_are_found_where_texts_are_phones(corpus: Path, las: Las) -> None:
    command = ["align", *tiny.corpus(corpus), f"output={corpus / 'x.ctm'}", f"gaussians={corpus / 'gmm'}"]
    las(*command, "triphones=true").fails(2, "triphones=true dictionary")
    las(*command).succeeds("search=phone_bigram")
    las("decode", f"checkpoint={corpus / 'gmm'}", f"data_dir={corpus / 'data'}", "split=test").succeeds("PER")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("+gaussian_features.frame_shift_ms=5.0", "gaussian_features: 5"),
        ("gaussian_features=mfcc40", "features@gaussian_features=mfcc40"),
        ("gaussians=7", "gaussians=7"),
        ("import=x.ctm", "import=x.ctm:"),
    ],
)
def test_what_does_not_fit_is_named(root: Path, las: Las, change: str, words: str) -> None:
    las(*align(root, change)).fails(2, words)
    assert not (root / "gmm").exists()


def test_a_folder_with_a_run_is_not_overwritten(root: Path, las: Las) -> None:
    (root / "gmm" / "checkpoints").mkdir(parents=True)
    answer = las(*align(root)).fails(2, f"gaussians={root / 'gmm'}")
    assert "realignment" not in answer.out, "nothing is trained in vain"
