"""What a run is continued with has changed: the difference is printed, and refused unless it is allowed by name."""

import json
from functools import partial
from pathlib import Path

import pytest
from faults import SAVE_EVERY, Tally, Training, at_step, die, sizes

from las.data import manifest
from las.storage import run_directory
from las.training.trainer import Trainer

ORIGINS = {
    "torch": ("the version of torch: ", "allow_drift=[torch]"),
    "code": ("the version of las (or its commit): ", "allow_drift=[code]"),
    "vocabulary": ("the output symbols: ", "name=..."),
}
CONFIGS = {
    "optim.lr=0.5": "optim.lr: 0.004 -> 0.5",
    "seed=9": "seed: 1 -> 9",
    "trainer.batch_size=3": "trainer.batch_size: 2 -> 3",
    "model.speller.hidden_size=9": "model.speller.hidden_size: 8 -> 9",
    "corpus.phone_set=39": "corpus.phone_set: 48 -> 39",
}


def other_origin(kind: str) -> None:
    """A process with another version of torch, of the code, or other symbols."""
    origin = run_directory.origin
    run_directory.origin = lambda vocabulary_hash: origin(vocabulary_hash) | {kind: "another"}


def other_manifest() -> None:
    """A process that finds other training utterances."""
    manifest.content_hash = lambda utterances: "another"


def begun(quiet: Training, place: Path) -> Training:
    """A run that was killed after its first checkpoint."""
    training = Training(quiet.root, place)
    assert training.train(partial(at_step, Trainer, "_update", SAVE_EVERY + 1, die)).code == -9
    return training


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(1, 3))
def test_drift(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    training = begun(quiet, tmp_path / "refused")
    before = {path: path.read_bytes() for path in (training.run / "checkpoints").rglob("*") if path.is_file()}

    def require_refused(code: int, *words: str) -> None:
        ending = training.last
        said = ending.said
        assert ending.code == code and all(word in said for word in words), ending.said
        assert before == {path: path.read_bytes() for path in before}

    for _ in range(count):
        for kind, words in ORIGINS.items():
            with tally.trial(kind):
                training.train(partial(other_origin, kind))
                require_refused(5, *words, "another", "changed since this run began")
        with tally.trial("manifest"):
            training.train(other_manifest)
            require_refused(5, "the training utterances: ", "another", "name=...")
        for override, words in CONFIGS.items():
            with tally.trial(override):
                training.train(None, override)
                require_refused(5, words, "another configuration", "name=")
        for kind in ("vocabulary", "manifest_hash", "seed", "nonsense"):
            with tally.trial(f"allow {kind}"):
                training.train(partial(other_origin, "torch"), f"trainer.allow_drift=[{kind}]")
                require_refused(2, f"allow_drift: '{kind}' is none of torch, code")
    tally.close("F21 other torch, code, symbols, utterances or configuration: refused")
    for kind in ("torch", "code"):
        with tally.trial(kind):
            allowed = begun(quiet, tmp_path / kind)
            ending = allowed.train(partial(other_origin, kind), f"trainer.allow_drift=[{kind}]")
            assert ending.code == 0, ending.said
            assert f"continuing although it changed since this run began: {run_directory.KINDS[kind]}" in ending.said
            state = json.loads((max((allowed.run / "checkpoints").glob("step-*")) / "state.json").read_text())
            assert state["origin"][kind] == "another"
    tally.close("F21 allowed by name: continued, and said")
