"""The verb `average`: the mean of several checkpoints of a run, which is often better than any of them.

Parameters and running statistics are averaged, whole numbers (counters) are the newest checkpoint's.
"""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from las import arguments, atomic, build, checkpoint, progress
from las.checkpoint import Checkpoint
from las.errors import ConfigError, StorageError


def average(overrides: list[str]) -> Path:
    """Write the mean of the last or the best checkpoints of a run: see configs/average.yaml. Returns its directory."""
    config = build.compose("average", overrides)
    for key, annotation in (("run", str), ("last", int | None), ("best", int | None), ("output", str | None)):
        arguments.check_value(key, config[key], annotation)
    if (config["last"] is None) == (config["best"] is None):
        raise ConfigError("average needs last=5 (the newest checkpoints) or best=5 (by dev error), not both")
    kind = "best" if config["last"] is None else "last"
    run, count = Path(config["run"]), config[kind]
    if count < 1:
        raise ConfigError(f"{kind}={count} must be at least 1")
    folder = Path(config["output"]) if config["output"] else run / f"average_{kind}{count}"
    atomic.require_folder(folder)
    chosen = (last if kind == "last" else best)(run / "checkpoints", count)
    for line in chosen:
        progress.say(f"  {line.name}")
    written = write(folder, chosen)
    progress.say(f"the mean of {count} checkpoints: {written}")
    progress.say(f"next:  las decode checkpoint={written} split=dev")
    return written


def last(folder: Path, count: int) -> list[Path]:
    """The newest `count` checkpoints of a run's folder, oldest first."""
    return _enough(folder, [folder / name for name in sorted(path.name for path in folder.glob("step-*"))], count)[
        -count:
    ]


def best(folder: Path, count: int) -> list[Path]:
    """The `count` checkpoints of the lowest dev errors, oldest first; of equals the earlier."""
    newest, damaged = checkpoint.newest(folder)
    if newest is None:
        raise StorageError("\n".join([f"{folder}: no checkpoint that can be read", *(each.reason for each in damaged)]))
    errors = {checkpoint.directory(folder, int(step)): error for step, error in newest.state["validations"]}
    there = sorted((path for path in errors if path.exists()), key=lambda path: (errors[path], path.name))
    return sorted(_enough(folder, there, count)[:count])


def _enough(folder: Path, found: list[Path], count: int) -> list[Path]:
    if len(found) < count:
        raise StorageError(
            f"{folder}: {len(found)} checkpoint{'' if len(found) == 1 else 's'} here, {count} asked for. A training "
            f"keeps the newest, and the best one: train with trainer.keep_checkpoints={count}"
        )
    return found


def write(folder: Path, directories: Sequence[Path]) -> Path:
    """Write the mean as a checkpoint, under the step of the newest. Raises StorageError for one that is damaged.

    It has no optimiser, so that no training goes on from it.
    """
    newest: Checkpoint | None = None
    sums: dict[str, Tensor] = {}
    for directory in directories:
        newest = checkpoint.load(directory)
        _require_alike(sums, newest)
        for name, tensor in newest.model.items():
            if tensor.is_floating_point():
                sums[name] = sums.get(name, 0.0) + tensor.double()
    if newest is None:
        raise StorageError(f"{folder}: there is nothing to average")
    mean = {
        name: (sums[name] / len(directories)).to(tensor.dtype) if name in sums else tensor
        for name, tensor in newest.model.items()
    }
    state = newest.state | {"averaged": [directory.name for directory in directories]}
    return checkpoint.save(folder, int(newest.state["step"]), mean, {}, state, newest.config)


def _require_alike(sums: dict[str, Tensor], found: Checkpoint) -> None:
    """That a checkpoint has the tensors of those before it."""
    shapes = {name: tensor.shape for name, tensor in found.model.items() if tensor.is_floating_point()}
    if sums and shapes != {name: tensor.shape for name, tensor in sums.items()}:
        raise StorageError(f"{found.directory}: its parameters are not those of the checkpoints before it")
