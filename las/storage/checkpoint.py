"""Checkpoints: written atomically, verified by hash, free of pickle.

A checkpoint is a directory:

    step-00000380/
        model.safetensors   parameters and buffers (feature statistics included)
        optim.safetensors   the optimiser's tensors
        state.json          step, epoch, next batch, schedule, validations, origin: plain JSON
        config.json         the resolved config, so that a checkpoint can be opened anywhere
        MANIFEST.json       size and sha256 of each file, written last

It is written under a temporary name, flushed to disk and renamed; it is read back and verified before an older one is
removed. Nothing in it is pickled.

Outputs that verbs make from a checkpoint lie in its run folder; those of a bundle, or of a checkpoint outside any run
folder (an averaged one), lie next to it.
"""

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from las.config.public import with_public_names
from las.runtime import progress
from las.runtime.errors import NumericalError, StorageError
from las.runtime.version import __version__
from las.storage import atomic, bounded, bundle

SCHEMA = 1
FILES = ("model.safetensors", "optim.safetensors", "state.json", "config.json")


class Checkpoint(NamedTuple):
    """Content of a verified checkpoint: tensors of model and optimiser by name, state, config."""

    directory: Path
    model: dict[str, Tensor]
    optim: dict[str, Tensor]
    state: dict[str, Any]
    config: dict[str, Any]


class Damage(NamedTuple):
    """Damaged checkpoint, with its directory and the reason."""

    directory: Path
    reason: str


def save(
    folder: Path,
    step: int,
    model: dict[str, Tensor],
    optim: dict[str, Tensor],
    state: dict[str, Any],
    config: dict[str, Any],
) -> Path:
    """Write `<folder>/step-<step>` atomically and verify it by reading it back.

    Raises StorageError if it cannot be written; earlier checkpoints are intact then.
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
        manifest = {"schema": SCHEMA, "las": __version__, "torch": str(torch.__version__), "files": files}
        atomic.write_json(temporary / "MANIFEST.json", manifest, durable=True)
        _flush(temporary)
        if final.exists():  # the same step again: a resumed run that repeated it
            shutil.rmtree(final)
        os.rename(temporary, final)
        _flush(folder)
    except (OSError, safetensors.SafetensorError) as error:  # safetensors wraps what the system says
        shutil.rmtree(temporary, ignore_errors=True)
        needed = sum(tensor.nbytes for tensor in (*model.values(), *optim.values()))
        earlier = next(_newest_first(folder), None)
        raise StorageError(
            f"{final}: the checkpoint could not be written ({getattr(error, 'strerror', None) or error}); it needs "
            f"about {needed:,} bytes, {shutil.disk_usage(folder.parent).free:,} bytes are free. "
            f"{'Earlier checkpoints are intact' if earlier else 'There is no earlier checkpoint'}."
        ) from error
    verify(final)
    return final


def directory(folder: Path, step: int) -> Path:
    """Directory of the checkpoint of a step."""
    return folder / f"step-{step:08d}"


def point(folder: Path, name: str, target: Path) -> None:
    """Make `<folder>/<name>` (`latest`, `best`) name a checkpoint, atomically. Raises StorageError if it cannot."""
    try:
        atomic.write(folder / name, target.name + "\n")
    except OSError as error:
        raise StorageError(f"{folder / name}: cannot name {target.name} ({error.strerror or error}).") from error


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints and the best one, and temporary directories of killed processes."""
    best = folder / "best"
    protected = {named(best).name} if best.exists() else set()
    for directory in list(_newest_first(folder))[keep:]:
        if directory.name not in protected:
            shutil.rmtree(directory)
    for leftover in folder.glob(".tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def verify(directory: Path) -> None:
    """Raise StorageError unless every file is there with the size and sha256 that were written."""
    try:
        manifest = bounded.read_object(directory / "MANIFEST.json", bounded.MANIFEST)
        files = dict(manifest["files"])
        if manifest["schema"] != SCHEMA:
            raise StorageError(f"{directory}: schema {manifest['schema']} is not one this version of las can read")
        for name in FILES:
            path = directory / name
            limit = bounded.JSON if path.suffix == ".json" else bounded.TENSORS
            if bounded.size(path, limit) != files[name]["bytes"] or _sha256(path) != files[name]["sha256"]:
                raise StorageError(f"{path}: damaged: its content is not what was written")
    except OSError as error:
        where = error.filename or directory
        raise StorageError(f"{where}: damaged or incomplete checkpoint ({bounded.reason(error)})") from error
    except (ValueError, KeyError, TypeError) as error:
        where = directory / "MANIFEST.json"
        raise StorageError(f"{where}: damaged or incomplete checkpoint ({error!r})") from error


def load(directory: Path) -> Checkpoint:
    """Read a verified checkpoint. Raises StorageError when it is damaged."""
    verify(directory)
    try:
        return Checkpoint(
            directory,
            safetensors.torch.load_file(directory / "model.safetensors"),
            safetensors.torch.load_file(directory / "optim.safetensors"),
            bounded.read_object(directory / "state.json"),
            with_public_names(bounded.read_object(directory / "config.json")),
        )
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise StorageError(f"{directory}: its files are not those of a checkpoint ({bounded.reason(error)})") from error


def named(pointer: Path) -> Path:
    """Directory that a pointer file (`latest`, `best`) names, always next to the pointer.

    Raises StorageError when the pointer cannot be read.
    """
    try:
        return pointer.with_name(Path(bounded.read(pointer, bounded.POINTER).decode().strip()).name)
    except (OSError, ValueError) as error:
        raise StorageError(f"{pointer}: does not name a checkpoint ({bounded.reason(error)})") from error


def newest(folder: Path) -> tuple[Checkpoint | None, list[Damage]]:
    """Newest checkpoint that can be verified (None if there is none), and the damaged ones newer than it."""
    damaged: list[Damage] = []
    for directory in _newest_first(folder):
        try:
            return load(directory), damaged
        except StorageError as error:
            damaged.append(Damage(directory, str(error)))
    return None, damaged


def best(folder: Path, strict: bool = False) -> tuple[Checkpoint, list[str]]:
    """Best checkpoint, or the newest intact one if it is damaged, with warnings that say so.

    Raises StorageError if no checkpoint can be read, and with `strict` instead of falling back to another one.
    """
    pointer, damaged = folder / "best", list[Damage]()
    if pointer.exists():
        directory = pointer
        try:
            directory = named(pointer)
            return load(directory), []
        except StorageError as error:
            damaged.append(Damage(directory, str(error)))
    checkpoint, more = newest(folder)
    damaged += [each for each in more if each not in damaged]
    if checkpoint is None:
        raise StorageError(
            "\n  ".join([f"{folder}: no checkpoint that can be read", *(each.reason for each in damaged)])
        )
    if not damaged:
        return checkpoint, []
    if strict:
        raise StorageError(
            f"{_reasons(damaged)}. strict=true refuses to use {checkpoint.directory.name} in its place, "
            f"{_age(damaged[0], checkpoint)}: leave strict out, or name that one: checkpoint={checkpoint.directory}"
        )
    return checkpoint, [fallback_message(damaged, checkpoint)]


def fallback_message(damaged: Sequence[Damage], checkpoint: Checkpoint) -> str:
    """Line that names damaged checkpoints with reasons, the one used in their place, and how much older it is."""
    return f"{_reasons(damaged)}. {checkpoint.directory.name} is used in its place, {_age(damaged[0], checkpoint)}"


def find(path: Path, strict: bool = False) -> tuple[Checkpoint, list[str]]:
    """Load a checkpoint from a run folder (its best one), a checkpoint directory or a bundle, with warnings.

    With `strict`, only the best one of a run folder is accepted. Raises StorageError if there is none that can be read,
    NumericalError if parameters are not numbers.
    """
    complaints: list[str] = []
    if path.is_file():
        content = bundle.read(path)
        found = Checkpoint(path, content.model, {}, content.state, content.config)
    elif (path / "MANIFEST.json").exists() or (path.name.startswith("step-") and path.is_dir()):
        found = load(path)
    elif (path / "checkpoints").is_dir():
        found, complaints = best(path / "checkpoints", strict)
    else:
        raise StorageError(
            f"{path} is neither a run folder nor a checkpoint nor a bundle: give the folder that train.py printed, "
            "e.g. checkpoint=runs/ln_encoder_only/synthetic/seed1"
        )
    require_numbers(found)
    return found, complaints


def config_of(path: Path) -> dict[str, Any]:
    """Return the config of what `find` accepts, without reading its tensors. Raises what `find` raises."""
    try:
        return bundle.config(path) if path.is_file() else with_public_names(bounded.stored(path / "config.json"))
    except StorageError:
        return find(path)[0].config


def require_numbers(saved: Checkpoint) -> None:
    """Raise NumericalError for a model with parameters that are not a number, which recognises nothing."""
    broken = [name for name, tensor in saved.model.items() if tensor.is_floating_point() and tensor.isnan().any()]
    if broken:
        raise NumericalError(
            f"{saved.directory}: {len(broken)} of {len(saved.model)} tensors of the model have values that are not a "
            f"number (NaN), the first one is {broken[0]}: nothing can be recognised with it. Take another checkpoint, "
            "or train again with a lower optim.lr"
        )


def run_folder(checkpoint: Path) -> Path:
    """Run folder of a checkpoint, given as a run folder, checkpoint directory or bundle."""
    if not checkpoint.is_file() and not (checkpoint / "MANIFEST.json").exists():
        return checkpoint
    parent = checkpoint.parent if checkpoint.parent.name else checkpoint.absolute().parent
    return parent.parent if parent.name == "checkpoints" else parent


def decoded(checkpoint: Path, name: str) -> Path:
    """Path of the hypotheses for a split or for recordings , different for every checkpoint of a run."""
    file_name = f"hypotheses.{name}.jsonl"
    if checkpoint.is_file():
        return run_folder(checkpoint) / f"{checkpoint.stem}.decoded" / file_name
    chosen = [] if run_folder(checkpoint) == checkpoint else [checkpoint.name]
    return run_folder(checkpoint).joinpath("decoded", *chosen, file_name)


def graphs(checkpoint: Path) -> Path:
    """Folder of decoding graphs made for a checkpoint."""
    return run_folder(checkpoint) / "graphs"


def pack_optimiser(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """State of an optimiser as named tensors, and its parameter groups as plain values."""
    state = optimiser.state_dict()
    tensors = {}
    for index, values in state["state"].items():
        for name, value in values.items():
            tensors[f"{index}.{name}"] = value if isinstance(value, Tensor) else torch.tensor(value)
    return tensors, state["param_groups"]


def unpack_optimiser(
    optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    """Restore an optimiser from the output of `pack_optimiser`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def _reasons(damaged: Sequence[Damage]) -> str:
    return "; ".join(" ".join(each.reason.split()) for each in damaged)


def _age(damaged: Damage, checkpoint: Checkpoint) -> str:
    """Age of a checkpoint against another one, `200 steps (3:20) older`, with the time from the run's metrics."""
    damaged_step, step = _step(damaged.directory), _step(checkpoint.directory)
    if damaged_step is None or step is None:
        return "which may be older"
    times = _times(damaged.directory.parent.parent)
    used = (
        f" ({progress.duration(abs(times[damaged_step] - times[step]))})"
        if {damaged_step, step} <= times.keys()
        else ""
    )
    steps = abs(damaged_step - step)
    return f"{steps:,} step{'' if steps == 1 else 's'}{used} {'older' if step < damaged_step else 'newer'}"


def _step(directory: Path) -> int | None:
    number = directory.name.removeprefix("step-")
    return int(number) if number.isdecimal() else None


def _times(run: Path) -> dict[int, float]:
    """Time of each step in the metrics of a run, in seconds; empty if they cannot be read."""
    try:
        events = bounded.stored_lines(run / "metrics.jsonl")
        return {int(each["step"]): float(each["time"]) for each in events if "step" in each}
    except (StorageError, KeyError, TypeError, ValueError):
        return {}


def _newest_first(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("step-*"), reverse=True)


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def _sha256(path: Path) -> str:
    with bounded.open_file(path, bounded.TENSORS) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
