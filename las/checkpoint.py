"""Checkpoints that cannot be half written, silently damaged, or run code.

A checkpoint is a directory:

    step-00000380/
        model.safetensors   parameters and buffers (feature statistics included)
        optim.safetensors   the optimiser's tensors
        state.json          step, epoch, next batch, schedule, validations, origin: plain JSON
        config.json         the resolved config, so that a checkpoint can be opened anywhere
        MANIFEST.json       size and sha256 of each file, written last

It is written under a temporary name, flushed to disk and renamed; it is read back and verified before an older one is
removed. Nothing in it is pickled.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

import las
from las import atomic, bundle
from las.errors import StorageError

SCHEMA = 1
FILES = ("model.safetensors", "optim.safetensors", "state.json", "config.json")


class Checkpoint(NamedTuple):
    """What a verified directory holds."""

    directory: Path
    model: dict[str, Tensor]
    optim: dict[str, Tensor]
    state: dict[str, Any]
    config: dict[str, Any]


def save(
    folder: Path,
    step: int,
    model: dict[str, Tensor],
    optim: dict[str, Tensor],
    state: dict[str, Any],
    config: dict[str, Any],
) -> Path:
    """Write `<folder>/step-<step>` atomically and verify it by reading it back.

    Raises StorageError when the disk refuses; whatever was there before is intact then.
    """
    final = directory(folder, step)
    temporary = folder / f".tmp-{step:08d}-{uuid.uuid4().hex[:8]}"
    try:
        temporary.mkdir(parents=True)
        safetensors.torch.save_file(_contiguous(model), temporary / "model.safetensors")
        safetensors.torch.save_file(_contiguous(optim), temporary / "optim.safetensors")
        atomic.write_json(temporary / "state.json", state, durable=True)
        atomic.write_json(temporary / "config.json", config, durable=True)
        for name in FILES:
            _flush(temporary / name)
        files = {
            name: {"bytes": (temporary / name).stat().st_size, "sha256": _sha256(temporary / name)} for name in FILES
        }
        manifest = {"schema": SCHEMA, "las": las.__version__, "torch": str(torch.__version__), "files": files}
        atomic.write_json(temporary / "MANIFEST.json", manifest, durable=True)
        _flush(temporary)
        if final.exists():  # the same step again: a resumed run that repeated it
            shutil.rmtree(final)
        os.rename(temporary, final)
        _flush(folder)
    except (OSError, safetensors.SafetensorError) as error:  # safetensors wraps what the system says
        shutil.rmtree(temporary, ignore_errors=True)
        needed = sum(tensor.nbytes for tensor in (*model.values(), *optim.values()))
        raise StorageError(
            f"{final}: the checkpoint could not be written ({getattr(error, 'strerror', None) or error}); it needs "
            f"about {needed:,} bytes, {shutil.disk_usage(folder.parent).free:,} bytes are free. Earlier checkpoints "
            "are intact."
        ) from error
    verify(final)
    return final


def directory(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:08d}"


def point(folder: Path, name: str, target: Path) -> None:
    """Make `<folder>/<name>` (`latest`, `best`) name a checkpoint, atomically. Raises StorageError if it cannot."""
    try:
        atomic.write(folder / name, target.name + "\n")
    except OSError as error:
        raise StorageError(f"{folder / name}: cannot name {target.name} ({error.strerror or error}).") from error


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints and the one `best` names, and what killed processes left."""
    best = folder / "best"
    spared = {best.read_text().strip()} if best.exists() else set()
    for directory in list(_newest_first(folder))[keep:]:
        if directory.name not in spared:
            shutil.rmtree(directory)
    for leftover in folder.glob(".tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def verify(directory: Path) -> None:
    """Raise StorageError unless every file is there with the size and sha256 that were written."""
    manifest_path = directory / "MANIFEST.json"
    try:
        manifest = json.loads(manifest_path.read_text())
        files = dict(manifest["files"])
        if manifest["schema"] != SCHEMA:
            raise StorageError(f"{directory}: schema {manifest['schema']} is not one this version of las can read")
        for name in FILES:
            path = directory / name
            if path.stat().st_size != files[name]["bytes"] or _sha256(path) != files[name]["sha256"]:
                raise StorageError(f"{path}: damaged: its content is not what was written")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageError(f"{directory}: damaged or incomplete checkpoint ({error})") from error


def load(directory: Path) -> Checkpoint:
    """Read a verified checkpoint. Raises StorageError when it is damaged."""
    verify(directory)
    try:
        return Checkpoint(
            directory,
            safetensors.torch.load_file(directory / "model.safetensors"),
            safetensors.torch.load_file(directory / "optim.safetensors"),
            json.loads((directory / "state.json").read_text()),
            json.loads((directory / "config.json").read_text()),
        )
    except (OSError, ValueError, RecursionError, safetensors.SafetensorError) as error:
        raise StorageError(f"{directory}: its files are not those of a checkpoint ({error})") from error


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that verifies, and one line for each newer one that does not."""
    complaints: list[str] = []
    for directory in _newest_first(folder):
        try:
            return load(directory), complaints
        except StorageError as error:
            complaints.append(f"{error}; falling back to the one before")
    return None, complaints


def best(folder: Path) -> tuple[Checkpoint, list[str]]:
    """The best checkpoint, or the newest good one if it is damaged, and what was wrong.

    Raises StorageError when there is none.
    """
    pointer = folder / "best"
    complaints: list[str] = []
    if pointer.exists():
        try:
            return load(folder / Path(pointer.read_text().strip()).name), []
        except StorageError as error:
            complaints.append(f"{error}; falling back to the newest good one")
    found, more = newest(folder)
    if found is None:
        raise StorageError("\n".join([f"{folder}: no checkpoint that can be read", *complaints, *more]))
    return found, complaints + more


def find(path: Path) -> tuple[Checkpoint, list[str]]:
    """A checkpoint from a run folder (its best one), a checkpoint directory or a bundle, and complaints on the way."""
    if path.is_file():
        found = bundle.read(path)
        return Checkpoint(path, found.model, {}, found.state, found.config), []
    if (path / "MANIFEST.json").exists() or (path.name.startswith("step-") and path.is_dir()):
        return load(path), []
    if (path / "checkpoints").is_dir():
        return best(path / "checkpoints")
    raise StorageError(
        f"{path} is neither a run folder nor a checkpoint nor a bundle: give the folder that train.py printed, e.g. "
        "checkpoint=runs/ln_encoder_only/synthetic/seed1"
    )


def pack_optimiser(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """An optimiser's state as named tensors and its groups as plain values."""
    state = optimiser.state_dict()
    tensors = {}
    for index, values in state["state"].items():
        for name, value in values.items():
            tensors[f"{index}.{name}"] = value if isinstance(value, Tensor) else torch.tensor(value)
    return tensors, state["param_groups"]


def unpack_optimiser(
    optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    """The inverse of `pack_optimiser`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def _newest_first(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("step-*"), reverse=True)


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
