"""The verbs `average` and `export`, which make one model file from the checkpoints of a run.

`average` takes the mean of several checkpoints, which is often better than any of them: parameters and running
statistics are averaged, integers (counters) are the newest checkpoint's. `export` writes a model as one file for
another machine, and as programs that need no las.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from las.cli import model_card
from las.config.build import check_values, compose, require
from las.decoding.transcriber import load
from las.nn.export import listener, save, speller
from las.runtime import progress
from las.runtime.errors import ConfigError, StorageError, require_known
from las.storage import atomic, bundle, checkpoint
from las.storage.checkpoint import Checkpoint


def average(overrides: list[str]) -> Path:
    """Write the mean of the last or the best checkpoints of a run: see configs/average.yaml. Returns its directory."""
    config = compose("average", overrides)
    check_values(config, {"run": str, "last": int | None, "best": int | None, "output": str | None})
    if (config["last"] is None) == (config["best"] is None):
        raise ConfigError("average needs last=5 (the newest checkpoints) or best=5 (by dev error), not both")
    kind = "best" if config["last"] is None else "last"
    run, count = Path(config["run"]), config[kind]
    require(kind, count, 1)
    folder = Path(config["output"]) if config["output"] else run / f"average_{kind}{count}"
    atomic.require_folder(folder)
    chosen = (last if kind == "last" else best)(run / "checkpoints", count)
    for line in chosen:
        progress.say(f"  {line.name}")
    directory = write(folder, chosen)
    progress.say(f"the mean of {count} checkpoints: {directory}")
    progress.say(f"next:  las decode checkpoint={directory} split=dev")
    return directory


def last(folder: Path, count: int) -> list[Path]:
    """Return the newest `count` checkpoints of a run's folder, oldest first."""
    return _enough(folder, sorted(folder.glob("step-*")), count)[-count:]


def best(folder: Path, count: int) -> list[Path]:
    """Return the `count` checkpoints of the lowest dev errors, oldest first; among equals the earlier ones."""
    newest, damaged = checkpoint.newest(folder)
    if newest is None:
        reasons = (problem.reason for problem in damaged)
        raise StorageError("\n".join([f"{folder}: no checkpoint that can be read", *reasons]))
    errors = {checkpoint.directory(folder, int(step)): error for step, error in newest.state["validations"]}
    existing = sorted((path for path in errors if path.exists()), key=lambda path: (errors[path], path.name))
    return sorted(_enough(folder, existing, count)[:count])


def _enough(folder: Path, checkpoints: list[Path], count: int) -> list[Path]:
    if len(checkpoints) < count:
        raise StorageError(
            f"{folder}: {len(checkpoints)} checkpoint{'' if len(checkpoints) == 1 else 's'} here, {count} asked for. A "
            f"training keeps the newest, and the best one: train with trainer.keep_checkpoints={count}"
        )
    return checkpoints


def write(folder: Path, directories: Sequence[Path]) -> Path:
    """Write the mean as a checkpoint, under the step of the newest. Raises StorageError for a damaged checkpoint.

    The mean has no optimiser state, so no training can resume from it.
    """
    newest: Checkpoint | None = None
    sums: dict[str, Tensor] = {}
    for directory in directories:
        newest = checkpoint.load(directory)
        checkpoint.require_numbers(newest)
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


def _require_alike(sums: dict[str, Tensor], other: Checkpoint) -> None:
    """Raise StorageError unless a checkpoint has the tensors of the checkpoints before it."""
    shapes = {name: tensor.shape for name, tensor in other.model.items() if tensor.is_floating_point()}
    if sums and shapes != {name: tensor.shape for name, tensor in sums.items()}:
        raise StorageError(f"{other.directory}: its parameters are not those of the checkpoints before it")


def export(overrides: list[str]) -> Path:
    """Write a bundle, and programs where they are asked for: see configs/export.yaml. Returns the bundle's path."""
    config = compose("export", overrides)
    check_values(config, {"checkpoint": str, "output": str, "weights": str, "card": bool, "strict": bool})
    check_values(config, dict.fromkeys(("programs", "licence", "attribution"), str | None))
    require_known("weights", config["weights"], bundle.WEIGHTS)
    output = Path(config["output"])
    if output.is_dir():
        raise ConfigError(f"output={output} is a folder: a bundle is one file, for example {output / 'model.las'}")
    atomic.require_place(output)
    if config["programs"]:
        atomic.require_folder(Path(config["programs"]))
    source, complaints = checkpoint.find(Path(config["checkpoint"]), config["strict"])
    for complaint in complaints:
        progress.say(complaint)
    search = portable(source.config.get("search", {}))
    bundle.write(output, source.model, source.state, source.config | {"search": search}, config["weights"])
    transcriber = load(output)  # verifies the file
    progress.say(f"{source.directory}: {output}, {output.stat().st_size:,} bytes, written and verified")
    if config["programs"]:
        folder = Path(config["programs"])
        save(listener(transcriber.attention_model, transcriber.sample_rate), folder / "listener.pt2")
        save(speller(transcriber.attention_model), folder / "speller.pt2")
        progress.say(f"{folder / 'listener.pt2'}, {folder / 'speller.pt2'}: torch.export.load opens them")
    if config["card"]:
        terms = model_card.Terms(config["licence"], config["attribution"])
        model_card.write(output, transcriber, source.config, checkpoint.run_folder(Path(config["checkpoint"])), terms)
    progress.say(f"next:  las transcribe checkpoint={output} input=talk.flac")
    return output


def portable(search: dict[str, Any]) -> dict[str, Any]:
    """Return a search without scorers that read files of this machine, such as language models; print their names."""
    portable_search = {}
    for name, component in search.items():
        if isinstance(component, dict) and "path" in component:
            progress.say(
                f"left out of the bundle: search.{name}, which reads the file {component['path']}: pass it again "
                "when you decode with the bundle"
            )
        else:
            portable_search[name] = component
    return portable_search
