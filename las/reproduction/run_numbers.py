"""Numbers of one training from the files of its run folder: events, probes of `las analyze`, histograms."""

import functools
import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from las.reproduction import weight_histograms
from las.reproduction.jobs import seconds
from las.runtime.errors import StorageError
from las.storage import bounded

LATE_SHARE = 0.1
"""The share of the last updates, whose mean loss is the final training loss."""


def of_events(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Numbers from the events of a training."""
    losses = [event["loss"] for event in metrics if event.get("event") == "train"]
    validations = [event for event in metrics if event.get("event") == "validation"]
    numbers = {"seconds": seconds(list(map(dict, metrics)))}
    if losses:
        numbers["train_loss"] = statistics.fmean(losses[-max(1, round(LATE_SHARE * len(losses))) :])
    changes = [abs(b - a) / abs(a) for a, b in itertools.pairwise(losses) if a]
    if changes:
        numbers["batch_loss_change"] = statistics.fmean(changes)
    if validations:
        best = min(validations, key=lambda event: (event["dev_error"], event["step"]))
        if (attention := best.get("alignment")) is not None:
            numbers |= {key: attention[key] for key in ("entropy", "diagonality", "coverage")}
        numbers["dev_loss"] = min(event["dev_loss"] for event in validations)
        numbers["last_dev_loss"] = validations[-1]["dev_loss"]
    return numbers


def drifts(board: Path) -> dict[str, float]:
    """The changes of the parameters' distributions, from the histograms of a run: of weight matrices, and of the rest.

    Rows differ in their gains and biases and hardly in their matrices, which alone are compared (claim C7).
    """
    files = [(path, path.stat()) for path in sorted(board.glob("events.*"))]
    return dict(_drifts(board, tuple((path.name, stat.st_mtime_ns, stat.st_size) for path, stat in files)))


@functools.cache
def _drifts(board: Path, files: tuple[tuple[str, int, int], ...]) -> dict[str, float]:
    """`drifts` of files as they are; reading them takes seconds, and a table asks again after each training."""
    changes = {
        name: statistics.fmean(weight_histograms.changes(each))
        for name, each in weight_histograms.read(board).items()
        if len(each) > 1
    }
    groups = {
        "weight_drift": [change for name, change in changes.items() if weight_histograms.is_matrix(name)],
        "gain_drift": [change for name, change in changes.items() if not weight_histograms.is_matrix(name)],
    }
    return {name: statistics.fmean(each) for name, each in groups.items() if each}


def probes(folder: Path) -> dict[str, float]:
    """Means over the probes of `las analyze` during a training; empty where there are none."""
    try:
        return _probes(folder)
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise StorageError(f"{folder}: a line of it is damaged ({error!r}): restore it, or move it away") from error


def _probes(folder: Path) -> dict[str, float]:
    lines = bounded.stored_lines(folder / "smoothness.jsonl")
    measured = _along_gradients([line for line in lines if line.get("common")], "")
    measured |= _along_gradients([line for line in lines if not line.get("common")], "own_")
    if changes := [line["fixed"] for line in lines if "fixed" in line]:
        measured["loss_change"] = statistics.fmean(
            abs(change["after"] - change["before"]) / change["before"] for change in changes
        )
    # Nothing lies below the first group, whose shift is none.
    shifts = [group for each in bounded.stored_lines(folder / "covariate_shift.jsonl") for group in each["groups"][1:]]
    if shifts:
        measured["ics"] = statistics.fmean(group["weights"]["relative"] for group in shifts)
    return measured


def _along_gradients(probes: Sequence[Mapping[str, Any]], prefix: str) -> dict[str, float]:
    """Means over probes of the smoothness of the loss along its gradient; empty without probes."""
    if not probes:
        return {}
    of = [(each, each["gradient"]) for each in probes]
    return {
        f"{prefix}loss_range": statistics.fmean((max(g["losses"]) - min(g["losses"])) / e["loss"] for e, g in of),
        f"{prefix}gradient_change": statistics.fmean(max(g["differences"]) / e["gradient_norm"] for e, g in of),
        f"{prefix}beta": statistics.fmean(g["scale_free_beta"] for _, g in of),
    }
