"""Gaussian mixtures by the command line: trained by `align`, tuned, decoded and transcribed by as other models are."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_words
from console import Answer

from las.storage import checkpoint, run_summary

Las = Callable[..., Answer]
DICTIONARY = "YES Y EH S\nNO N OW\nGO G OW\nON AA N\nON(2) AO N\nSTOP S T AA P\nIT IH T\n"
WORDS = {"YES", "NO", "GO", "ON", "STOP", "IT"}
GRID = [
    "scales.acoustic_scale=[1.0,2.0]",
    "scales.prior_scale=[1.0]",
    "scales.lm_scale=[1.0]",
    "scales.insertion=[0.0]",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tiny corpus of words with its dictionary."""
    root = tiny_words.tree(tmp_path)
    (root / "an4" / "etc" / "an4.dic").write_text(DICTIONARY)
    return root


def align(root: Path, *more: str) -> list[str]:
    corpus = [*tiny_words.overrides(root)[:4], f"data_dir={root / 'data'}"]
    return ["align", *corpus, f"output={root / 'x.ctm'}", f"gaussians={root / 'gmm'}", *more]


def texts(path: Path) -> dict[str, str]:
    """The text of each utterance, by its id."""
    lines = map(json.loads, path.read_text().splitlines())
    return {line["id"]: line["text"] for line in lines}


@pytest.mark.parametrize("more", [[], ["triphones=true", "tying.min_count=3", "tying.min_gain=0.5", "split=test"]])
def test_from_audio_and_transcripts_to_words(root: Path, las: Las, more: list[str]) -> None:
    """The commands of docs/hybrid.md, on a tiny corpus, without its dictionary once the models are trained."""
    pytest.importorskip("kaldi_decoder")
    answer = las(*align(root, *more))
    assert answer.code == 0, answer.err
    assert "Gaussians of " in answer.out and f"next:  las tune checkpoint={root / 'gmm'}" in answer.out
    (root / "an4" / "etc" / "an4.dic").unlink()
    places = [f"checkpoint={root / 'gmm'}", f"data_dir={root / 'data'}"]
    answer = las("tune", *places, "search=word_graph_gaussians", *GRID)
    assert answer.code == 0 and "an4 dev: 2 utterances, 2 combinations" in answer.out, answer.err
    answer = las("decode", *places, "split=test", "search=tuned")
    assert answer.code == 0 and "test: WER " in answer.out, answer.err
    found = texts(root / "gmm" / "decoded" / "hypotheses.test.jsonl")
    assert list(found) == ["fccc_0", "fccc_1"] and set(" ".join(found.values()).split()) <= WORDS
    audio, talk = tiny_words.wav(root, tiny_words.name("train", 7)), root / "talk.jsonl"
    answer = las("transcribe", f"checkpoint={root / 'gmm'}", f"input={audio}", f"output={talk}")
    assert answer.code == 0, answer.err
    words = json.loads(talk.read_text())["words"]
    assert words and all(word["text"] in WORDS and 0 < word["confidence"] <= 1 for word in words)
    answer = las("runs", str(root))
    assert answer.code == 0 and "gmm" in answer.out, answer.err


def test_models_find_what_they_were_trained_on(root: Path, las: Las) -> None:
    """Half of the training utterances, whose sounds differ, are found again: chance is one in six for each word."""
    pytest.importorskip("kaldi_decoder")
    assert las(*align(root)).code == 0
    places = [f"checkpoint={root / 'gmm'}", f"data_dir={root / 'data'}", "split=train"]
    answer = las("decode", *places, f"output={root / 'train.jsonl'}")
    assert answer.code == 0, answer.err
    found = texts(root / "train.jsonl")
    right = [text for number, text in enumerate(tiny_words.TRAIN) if found[tiny_words.name("train", number)] == text]
    assert len(right) >= 4, found


def test_the_checkpoint_has_all_that_it_takes(root: Path, las: Las) -> None:
    """Loaded without its folder's neighbours: features with their statistics, mixtures, dictionary."""
    assert las(*align(root)).code == 0
    assert run_summary.read(root / "gmm").state == "finished"
    stored = checkpoint.find(root / "gmm", strict=True)[0]
    assert stored.model["features.mean"].abs().max() > 0, "the statistics of the training set"
    assert stored.model["weights"].sum(1).tolist() == pytest.approx([1.0] * 36)
    assert stored.config["model"]["_target_"] == "las.GaussianModel"
    assert set(stored.state["corpus"]["lexicon"]["entries"]) == WORDS


def test_phones_are_found_where_texts_are_phones(corpus: Path, las: Las) -> None:
    where = ["corpus=timit", f"corpus.root={corpus / 'TIMIT'}", "corpus.partial=true", f"data_dir={corpus / 'data'}"]
    answer = las("align", *where, f"output={corpus / 'x.ctm'}", f"gaussians={corpus / 'gmm'}")
    assert answer.code == 0 and "search=phone_bigram" in answer.out, answer.err
    answer = las("decode", f"checkpoint={corpus / 'gmm'}", f"data_dir={corpus / 'data'}", "split=test")
    assert answer.code == 0 and "test: PER " in answer.out, answer.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["+gaussian_features.frame_shift_ms=5.0"], "(25 ms every 5 ms) are not those that were aligned"),
        (["gaussian_features=mfcc40"], "choose the card so: features@gaussian_features=mfcc40"),
        (["gaussians=7"], "gaussians=7"),
        (["import=x.ctm"], "import=x.ctm: there is no such file"),
    ],
)
def test_what_does_not_fit_is_named(root: Path, las: Las, change: list[str], message: str) -> None:
    answer = las(*align(root, *change))
    assert answer.code == 2 and message in answer.err, answer.err
    assert not (root / "gmm").exists()


def test_a_folder_with_a_run_is_not_overwritten(root: Path, las: Las) -> None:
    (root / "gmm" / "checkpoints").mkdir(parents=True)
    answer = las(*align(root))
    assert answer.code == 2 and f"gaussians={root / 'gmm'} holds a run already: name another folder" in answer.err
    assert "realignment" not in answer.out, "nothing is trained in vain"


def test_triphones_of_phones_are_refused(corpus: Path, las: Las) -> None:
    where = ["corpus=timit", f"corpus.root={corpus / 'TIMIT'}", "corpus.partial=true", f"data_dir={corpus / 'data'}"]
    answer = las("align", *where, f"output={corpus / 'x.ctm'}", f"gaussians={corpus / 'gmm'}", "triphones=true")
    assert answer.code == 2 and "needs the words of a dictionary: leave triphones out" in answer.err
