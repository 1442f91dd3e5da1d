"""Numbers of one training from the files of its run folder: events, probes of `las analyze`, histograms."""

import functools
import itertools
import os
import statistics
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from las.reproduction.jobs import seconds
from las.runtime.errors import StorageError
from las.storage import bounded

LATE_SHARE = 0.1
"""The share of the last updates, whose mean loss is the final training loss."""
SHARES = (0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95)
DECILES = [SHARES.index(share) for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)]


def of_events(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Numbers from the events of a training."""
    losses = [event["loss"] for event in metrics if event.get("event") == "train"]
    validations = [event for event in metrics if event.get("event") == "validation"]
    numbers = {"seconds": seconds(list(map(dict, metrics)))}
    if losses:
        numbers["train_loss"] = statistics.fmean(losses[-max(1, round(LATE_SHARE * len(losses))) :])
    if (fastest := update_ms(metrics)) is not None:
        numbers["update_ms"] = fastest
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


def update_ms(metrics: Sequence[Mapping[str, Any]]) -> float | None:
    """Milliseconds of an update: the mean over the fastest stretch between validations, which alone is free of pauses
    and of other work on the machine; None where no two updates follow each other.
    """
    stretches = [
        [event["time"] for event in events]
        for is_update, events in itertools.groupby(metrics, lambda event: event.get("event") == "train")
        if is_update
    ]
    means = [1e3 * (times[-1] - times[0]) / (len(times) - 1) for times in stretches if len(times) > 1]
    return min((mean for mean in means if mean > 0), default=None)


def drifts(board: Path) -> dict[str, float]:
    """Return the changes of the parameters' distributions, from the histograms of a run: of weight matrices, and of the
    rest.

    Rows differ in their gains and biases and hardly in their matrices, which alone are compared (claim C7).
    """
    files = [(path, path.stat()) for path in sorted(board.glob("events.*"))]
    return dict(_drifts(board, tuple((path.name, stat.st_mtime_ns, stat.st_size) for path, stat in files)))


@functools.cache
def _drifts(board: Path, files: tuple[tuple[str, int, int], ...]) -> dict[str, float]:
    """`drifts` of files as they are; reading them takes seconds, and a table asks again after each training."""
    changes = {
        name: statistics.fmean(decile_changes(each)) for name, each in histograms(board).items() if len(each) > 1
    }
    groups = {
        "weight_drift": [change for name, change in changes.items() if is_matrix(name)],
        "gain_drift": [change for name, change in changes.items() if not is_matrix(name)],
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


class Distribution(NamedTuple):
    """The distribution of a parameter at a step: quantiles at `SHARES`, and the standard deviation."""

    step: int
    quantiles: tuple[float, ...]
    deviation: float


def histograms(board: Path) -> dict[str, list[Distribution]]:
    """Distributions by parameter name and in order of steps, of repeated steps the last; empty without histograms."""
    last: dict[str, dict[int, Any]] = {}
    for path in sorted(board.glob("events.*"), key=_in_order):
        for event in _events(path):
            for value in event.summary.value:
                if value.HasField("histo"):
                    last.setdefault(value.tag, {})[event.step] = value.histo
    return {name: [_distribution(step, steps[step]) for step in sorted(steps)] for name, steps in last.items()}


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts event files as they were begun: by second and number of the writer, as numbers."""
    return [(int(part) if part.isdigit() else -1, part) for part in path.name.split(".")]


def _events(path: Path) -> Iterator[Any]:
    """Yield the events of a file of TensorBoard, without the last one if that was not written to its end.

    Checksums are not compared: TensorBoard's reader does so in Python, which takes twenty times as long.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    with bounded.open_file(path, bounded.TENSORS) as file:
        size = os.fstat(file.fileno()).st_size
        while len(length := file.read(8)) == 8:
            (num_bytes,) = struct.unpack("<Q", length)
            if file.tell() + num_bytes + 8 > size:
                return
            record = file.read(4 + num_bytes + 4)[4:-4]
            try:
                yield Event.FromString(record)
            except DecodeError as error:
                raise StorageError(f"{path}: damaged before byte {file.tell()}: restore it, or move it away") from error


def _distribution(step: int, histogram: Any) -> Distribution:
    """Quantiles by straight lines within the bins."""
    counts, edges = np.asarray(histogram.bucket), np.asarray(histogram.bucket_limit)
    lower = np.concatenate([[histogram.min], np.maximum(edges[:-1], histogram.min)])
    upper = np.minimum(edges, histogram.max)
    reached = np.concatenate([[0.0], counts.cumsum()]) / max(counts.sum(), 1.0)
    places = np.concatenate([lower[:1], np.maximum(upper, lower)])
    mean = histogram.sum / max(histogram.num, 1.0)
    variance = max(histogram.sum_squares / max(histogram.num, 1.0) - mean**2, 0.0)
    return Distribution(step, tuple(map(float, np.interp(SHARES, reached, places))), float(variance**0.5))


def decile_changes(steps: Sequence[Distribution]) -> list[float]:
    """Return the mean distance between deciles from one step to the next, in standard deviations of the later step.

    A parameter whose entries are all alike has no spread to measure in, and no change.
    """
    moved = []
    for before, after in itertools.pairwise(steps):
        distance = statistics.fmean(abs(after.quantiles[decile] - before.quantiles[decile]) for decile in DECILES)
        moved.append(distance / after.deviation if after.deviation > 1e-9 else 0.0)
    return moved


def is_matrix(name: str) -> bool:
    """Return True for a weight matrix or a filter by its name; false for a gain, a bias, or another vector."""
    return name.endswith("weight")


def notable(parameters: Mapping[str, list[Distribution]], limit: int = 8) -> dict[str, list[Distribution]]:
    """Return the parameters that a page shows: W, U and gains of the first cells of listener and speller."""
    endings = ("input_weight", "recurrent_weight", "gain")
    names = [name for name in parameters if ".cell" in name and name.endswith(endings) and ".backwards." not in name]
    names.sort(key=lambda name: (not name.startswith("listener.layers.0"), not name.startswith("speller"), name))
    return {name: parameters[name] for name in names[:limit]}
