"""Models whose attention only moves forwards, from their training to their transcriptions, by the command line."""

import json
from pathlib import Path

import pytest
from console import Las
from interrupted_trainings import require_same, stopped
from tiny_words import overrides, tree, wav

from las.cli import train

KINDS = {
    "mocha": ["model=las_small_ctc_mocha", "model.speller.attention.offset=0"],
    "ctc_triggered": ["model=las_small_ctc", "attention@model.speller.attention=ctc_triggered"],
}
LEARNING = ["trainer.max_steps=12", "trainer.validate_every=6", "optim.lr=0.02", "trainer.select=dev_loss"]


def given(root: Path, kind: str, *more: str) -> list[str]:
    return [*overrides(root), *KINDS[kind], f"run_dir={root / kind}", *more]


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a tiny corpus."""
    root = tree(tmp_path_factory.mktemp(request.param))
    train.train(given(root, request.param, *LEARNING))
    return root / request.param


def test_it_learns(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["event"] == "train"]
    dev = [line["dev_loss"] for line in lines if line["event"] == "validation"]
    assert losses[-1] < 0.9 * losses[0] and len(dev) == 2 and dev[1] < dev[0]


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_it_is_decoded(run: Path, las: Las, search: str) -> None:
    out = run.parent / f"{search}.jsonl"
    given = [f"checkpoint={run}", f"data_dir={run.parent / 'data'}", "split=test", f"output={out}"]
    las("decode", *given, f"search={search}").succeeds("WER")
    assert len(out.read_text().splitlines()) == 2


def test_its_bundle_transcribes_with_times_in_order(run: Path, las: Las) -> None:
    las("export", f"checkpoint={run}", f"output={run / 'model.las'}").succeeds()
    given = [f"checkpoint={run / 'model.las'}", f"input={wav(run.parent, 'fccc_1')}", f"output={run / 'x.jsonl'}"]
    las("transcribe", *given, "search=greedy").succeeds()
    transcription = json.loads((run / "x.jsonl").read_text())
    times = [time for token in transcription["tokens"] for time in (token["start_s"], token["end_s"])]
    assert times == sorted(times) and (not times or times[-1] <= transcription["duration_s"])


def test_it_streams_above_a_listener_of_one_direction(run: Path, las: Las) -> None:
    given = [f"checkpoint={run}", f"input={wav(run.parent, 'fccc_1')}", f"output={run / 'stream.txt'}"]
    answer = las("transcribe", *given, "search=greedy", "stream=true")
    answer.succeeds_quietly() if run.name == "mocha" else answer.fails(2, "layer=unidirectional")


def test_it_resumes_bit_for_bit(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, kind = run.parent, run.name
    train.train(given(root, kind, f"run_dir={root / 'whole'}"))
    stopped(monkeypatch, 3, given(root, kind, f"run_dir={root / 'resumed'}"))
    train.train(given(root, kind, f"run_dir={root / 'resumed'}"))
    require_same(root / "resumed", root / "whole")
