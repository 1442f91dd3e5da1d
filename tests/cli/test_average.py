"""Averages of checkpoints: which are taken, what their mean is, and that it decodes."""

from pathlib import Path

import pytest
import torch
from console import Las
from tiny import damage, wav

from las.cli import export
from las.decoding import transcriber
from las.runtime.errors import StorageError
from las.storage import checkpoint


def saved(folder: Path, step: int, value: float, validations: list[tuple[int, float]]) -> Path:
    model = {"weight": torch.full((2, 3), value), "count": torch.tensor(step)}
    return checkpoint.save(folder, step, model, {"0.m": torch.ones(1)}, {"step": step, "validations": validations}, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four checkpoints, and the validation of a better one that is gone."""
    errors = [(0, 0.1), (1, 0.5), (2, 0.3), (3, 0.4), (4, 0.3)]
    for step in (1, 2, 3, 4):
        saved(tmp_path / "checkpoints", step, float(10**step), errors[: step + 1])
    return tmp_path / "checkpoints"


def test_last_and_best(folder: Path) -> None:
    names = lambda paths: [path.name for path in paths]  # noqa: E731
    assert names(export.last(folder, 2)) == ["step-00000003", "step-00000004"]
    assert names(export.best(folder, 2)) == ["step-00000002", "step-00000004"]
    assert names(export.best(folder, 1)) == ["step-00000002"]
    assert names(export.best(folder, 3)) == ["step-00000002", "step-00000003", "step-00000004"]
    with pytest.raises(StorageError, match=r"4 checkpoints .*keep_checkpoints=5"):
        export.last(folder, 5)
    with pytest.raises(StorageError, match="no checkpoint"):
        export.best(folder.parent / "absent", 1)


def test_the_mean_is_of_numbers_and_counters_are_the_newest(folder: Path, tmp_path: Path) -> None:
    written = export.write(folder.parent / "average", export.last(folder, 2))
    found = checkpoint.load(written)
    assert torch.equal(found.model["weight"], torch.full((2, 3), 5500.0))
    assert int(found.model["count"]) == 4
    assert found.optim == {} and found.state["averaged"] == ["step-00000003", "step-00000004"]
    value = 0.1  # of three of them the sum in single precision is not three times it
    parts = [saved(tmp_path / "equal", step, value, [(step, 0.1)]) for step in (1, 2, 3)]
    found = checkpoint.load(export.write(tmp_path / "average", parts))
    assert torch.equal(found.model["weight"], torch.full((2, 3), value))


def test_checkpoints_that_cannot_be_averaged_are_named(folder: Path) -> None:
    checkpoint.save(folder, 5, {"weight": torch.ones(4)}, {}, {"step": 5, "validations": []}, {})
    with pytest.raises(StorageError, match="step-00000005: its parameters"):
        export.write(folder.parent / "average", export.last(folder, 2))
    damage(folder / "step-00000004" / "model.safetensors", "flip")
    with pytest.raises(StorageError, match=r"step-00000004/model\.safetensors: damaged"):
        export.write(folder.parent / "average", [folder / "step-00000004"])
    with pytest.raises(StorageError, match="nothing to average"):
        export.write(folder.parent / "average", [])
    assert not (folder.parent / "average").exists()


def test_the_decoder_accepts_the_mean(trained_copy: Path, trained: Path, las: Las) -> None:
    answer = las("average", f"run={trained_copy}", "best=2").succeeds()
    written = trained_copy / "average_best2" / "step-00000004"
    assert str(written) in answer.out
    models = [checkpoint.load(trained_copy / "checkpoints" / f"step-0000000{step}").model for step in (2, 4)]
    mean = transcriber.load(written).model.state_dict()
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (models[0][name] + models[1][name]) / 2)
    assert las("transcribe", f"checkpoint={written}", f"input={wav(trained, 'mdab0_sx0')}").code == 0
    found, complaints = checkpoint.newest(trained_copy / "checkpoints")
    assert found is not None and "averaged" not in found.state and complaints == []  # the run goes on without it
