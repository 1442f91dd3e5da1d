"""A transducer from its training to its transcriptions, by the command line."""

import json
from pathlib import Path

import pytest
from console import Las
from interrupted_trainings import require_same, stopped
from tiny_words import TRAIN, overrides, tree, wav

from las.cli import train

SMALL = ["model=transducer_small", "model.prediction.hidden_size=8", "model.prediction.embedding_size=4"]
SMALL += ["model.joint.size=8", "trainer.select=dev_loss"]
WORDS = sorted({word for text in TRAIN for word in text.split()})


def given(root: Path, *more: str) -> list[str]:
    return [*(each for each in overrides(root) if "speller" not in each), *SMALL, *more]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a tiny corpus, and a list of its words."""
    root = tree(tmp_path_factory.mktemp("transducer"))
    train.train(given(root, "trainer.max_steps=12", "trainer.validate_every=6", "optim.lr=0.02"))
    (root / "words.txt").write_text("\n".join(WORDS))
    return root


def test_it_learns_by_its_own_loss(root: Path) -> None:
    lines = [json.loads(line) for line in (root / "run/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["event"] == "train"]
    assert losses[-1] < 0.7 * losses[0]
    dev = [line["dev_loss"] for line in lines if line["event"] == "validation"]
    assert len(dev) == 2 and dev[1] < dev[0]


@pytest.mark.parametrize("search", ["greedy", "ctc", "beam_words"])
def test_it_is_decoded_with_and_without_words(root: Path, las: Las, search: str) -> None:
    words = [f"search.word_lm.words={root / 'words.txt'}", "search.word_lm.oov_penalty=null"]
    keys = [f"search={search}", *(words if search == "beam_words" else [])]
    out = root / f"{search}.jsonl"
    las("decode", f"checkpoint={root / 'run'}", f"data_dir={root / 'data'}", "split=test", f"output={out}", *keys)
    texts = [json.loads(line)["text"] for line in out.read_text().splitlines()]
    assert len(texts) == 2
    if search == "beam_words":
        assert {word for text in texts for word in text.split()} <= set(WORDS)


def test_its_transcriptions_have_times_in_order_and_confidences(root: Path, las: Las) -> None:
    las("export", f"checkpoint={root / 'run'}", f"output={root / 'model.las'}").succeeds()
    checkpoint, audio = f"checkpoint={root / 'model.las'}", wav(root, "fccc_1")
    las("transcribe", checkpoint, f"input={audio}", "search=greedy", f"output={root / 'x.jsonl'}").succeeds()
    transcription = json.loads((root / "x.jsonl").read_text())
    times = [time for token in transcription["tokens"] for time in (token["start_s"], token["end_s"])]
    assert times == sorted(times) and (not times or times[-1] <= transcription["duration_s"])
    assert all(0 < token["confidence"] <= 1 for token in transcription["tokens"])


def test_other_losses_and_the_scores_of_ctc_are_refused(root: Path, las: Las) -> None:
    las("train", *given(root, "loss=joint_ctc", f"run_dir={root / 'joint'}")).fails(2, "model.ctc")
    decode = ["decode", f"checkpoint={root / 'run'}", f"data_dir={root / 'data'}", "split=dev"]
    las(*decode, "search=beam_ctc").fails(2, "search.ctc")


def test_it_goes_on_from_another_and_resumes_bit_for_bit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = f"warm_start.from={root / 'run'}"
    train.train(given(root, start, f"run_dir={root / 'whole'}"))
    carried = json.loads((root / "whole/warm_start.json").read_text())["tensors"]
    assert {tensor["origin"] for tensor in carried if not tensor["name"].startswith("features")} == {"carried"}
    stopped(monkeypatch, 3, given(root, start, f"run_dir={root / 'resumed'}"))
    train.train(given(root, start, f"run_dir={root / 'resumed'}"))
    require_same(root / "resumed", root / "whole")
