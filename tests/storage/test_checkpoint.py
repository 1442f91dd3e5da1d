"""Checkpoints: the format on disk, damage that is found, and what is left when the disk refuses."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import damage, vouch
from torch import Tensor, nn

from las.runtime.errors import StorageError
from las.storage import checkpoint
from las.training.optimization import Nadam

FILES = ("model.safetensors", "optim.safetensors", "state.json", "config.json", "MANIFEST.json")


def parts(step: int = 1) -> dict[str, Any]:
    """What `save` takes, different for each step."""
    torch.manual_seed(step)
    model = {"weight": torch.randn(5, 3), "transposed": torch.randn(4, 2).T, "count": torch.tensor(step)}
    return {
        "step": step,
        "model": model,
        "optim": {"0.exp_avg": torch.randn(5, 3)},
        "state": {"step": step, "validations": [[step, 0.5]]},
        "config": {"name": "x", "model": {"size": 3}},
    }


def saved(folder: Path, *steps: int) -> list[Path]:
    return [checkpoint.save(folder, **parts(step)) for step in steps]


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) and a[key].dtype == b[key].dtype for key in a)


def test_what_is_loaded_is_what_was_saved_last_for_a_step(tmp_path: Path) -> None:
    for given in (parts(3), parts(3) | {"state": {"step": 3, "again": True}}):
        found = checkpoint.load(checkpoint.save(tmp_path, **given))
        assert same(found.model, given["model"]) and same(found.optim, given["optim"])
        assert (found.state, found.config) == (given["state"], given["config"])
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["flip", "cut", "missing"])
def test_damage_is_found_and_the_one_before_is_taken(tmp_path: Path, name: str, how: str) -> None:
    first, second = saved(tmp_path, 1, 2)
    damage(second / name, how)
    for read in (checkpoint.load, checkpoint.find):
        with pytest.raises(StorageError, match=r"step-00000002.*damaged"):
            read(second)
    found, (damaged,) = checkpoint.newest(tmp_path)
    assert found is not None and found.directory == first
    assert same(found.model, parts(1)["model"])
    assert damaged.directory == second and "step-00000002" in damaged.reason
    checkpoint.point(tmp_path, "best", second)
    best, (line,) = checkpoint.best(tmp_path)
    assert best.directory == first
    assert line.startswith(damaged.reason) and "step-00000001" in line and line.endswith("1 step older")


def test_a_manifest_that_vouches_for_nonsense_or_of_a_later_schema_is_refused(tmp_path: Path) -> None:
    (directory,) = saved(tmp_path, 1)
    (directory / "model.safetensors").write_bytes(b"\x80\x04\x95 not safetensors")
    vouch(directory, "model.safetensors")
    with pytest.raises(StorageError, match="not those of"):
        checkpoint.load(directory)
    path = directory / "MANIFEST.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(StorageError, match="schema 2"):
        checkpoint.load(directory)


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    directories = saved(tmp_path, 1, 2, 3, 4, 5)
    checkpoint.point(tmp_path, "best", directories[1])
    checkpoint.point(tmp_path, "latest", directories[4])
    (tmp_path / ".tmp-00000006-abc").mkdir()
    (tmp_path / ".tmp-00000006-abc" / "model.safetensors").touch()
    checkpoint.prune(tmp_path, keep=2)
    left = ["best", "latest", "step-00000002", "step-00000004", "step-00000005"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert checkpoint.best(tmp_path)[0].state["step"] == 2
    checkpoint.prune(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_pointers_are_names_and_cannot_lead_outside(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    (inside,) = saved(folder, 1)
    saved(tmp_path / "elsewhere", 9)
    checkpoint.point(folder, "best", inside)
    assert (folder / "best").read_text() == "step-00000001\n"
    (folder / "best").write_text("../../elsewhere/step-00000009\n")
    found, complaints = checkpoint.best(folder)
    assert found.directory == inside and len(complaints) == 1


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop, Nadam])
def test_an_optimiser_continues_bit_for_bit(tmp_path: Path, kind: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(1)
    gradients = torch.randn(6, 4, 3)
    options = {"lr": 0.1} | ({"momentum": 0.9} if kind is torch.optim.SGD else {})
    straight, broken = (nn.Linear(3, 4, bias=False) for _ in range(2))
    broken.load_state_dict(straight.state_dict())
    one, two = kind(straight.parameters(), **options), kind(broken.parameters(), **options)
    for index, gradient in enumerate(gradients):
        if index == 3:
            tensors, groups = checkpoint.pack_optimiser(two)
            given = parts() | {"optim": tensors, "state": {"groups": groups}}
            found = checkpoint.load(checkpoint.save(tmp_path, **given))
            two = kind(broken.parameters(), **{**options, "lr": 5.0})
            checkpoint.unpack_optimiser(two, found.optim, found.state["groups"])
        for module, optimiser in ((straight, one), (broken, two)):
            module.weight.grad = gradient.clone()
            optimiser.step()
        assert torch.equal(straight.weight, broken.weight)
