"""Report on a warm start: a table of all tensors before step 1, and `warm_start.json` in the run folder."""

import math
from collections.abc import Sequence
from itertools import groupby

from las.config.build import Config, differences
from las.runtime import progress
from las.storage import atomic
from las.storage.run_directory import RunDirectory
from las.training.warm_start import CarriedTensor, Transfer, WarmStart

NUM_LISTED = 10
"""Settings that differ, at most."""


def show(warm_start: WarmStart, transfer: Transfer, run: RunDirectory) -> None:
    """Print and log the table and lines about symbols and tensors that were left behind; write `warm_start.json`."""
    log = run.directory / "log.txt"
    progress.say(f"warm start from {warm_start.source}: {summary(transfer)}", log)
    for line in aligned(rows(transfer, warm_start.thaw_step)):
        progress.say(f"  {line}", log)
    for line in [*remarks(transfer, warm_start), *settings(transfer, run.config["model"])]:
        progress.say(line, log)
    if run.writes:
        atomic.write_json(run.directory / "warm_start.json", transfer.to_dict(), durable=True)


def aligned(listed: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines of aligned columns, which a log holds as they are printed."""
    widths = [max(len(row[column]) for row in listed) for column in range(len(listed[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in listed]


def rows(transfer: Transfer, thaw_step: int | None) -> list[tuple[str, str, str, str]]:
    """Rows of the table, its heading first: tensors of a module, number of values, initial values, training."""

    def key(tensor: CarriedTensor) -> tuple[str, str, bool]:
        return _split(tensor.name)[0], tensor.origin, tensor.frozen

    listed = [("tensors", "values", "initial values", "trained")]
    for (module, origin, frozen), group in groupby(transfer.tensors, key):
        tensors = list(group)
        names = ", ".join(dict.fromkeys(_split(tensor.name)[1].rpartition(".")[2] for tensor in tensors))
        values = sum(math.prod(tensor.shape) for tensor in tensors)
        how = origin if origin != "resized" else f"{len(transfer.common) + 1} of {tensors[0].shape[0]} rows by symbol"
        trained = "yes" if not frozen else "frozen" if thaw_step is None else f"from step {thaw_step}"
        if module == "features":
            trained = "no, statistics"
        count = f" ({len(tensors)} tensors)" if len(tensors) > 1 else ""
        listed.append((f"{module}: {names}{count}", f"{values:,}", how, trained))
    return listed


def summary(transfer: Transfer) -> str:
    """Counts of tensors by the origin of their initial values."""
    origins = [tensor.origin for tensor in transfer.tensors]
    counts = [f"{origins.count(origin)} tensors {origin}" for origin in dict.fromkeys(origins)]
    frozen = sum(tensor.frozen for tensor in transfer.tensors)
    return ", ".join(counts) + (f"; {frozen} of them frozen" if frozen else "")


def remarks(transfer: Transfer, warm_start: WarmStart) -> list[str]:
    """Lines about the symbols, where the vocabularies differ, and about tensors of the source that were not taken."""
    lines = []
    if transfer.new or transfer.dropped:
        line = f"symbols: {len(transfer.common)} of {len(transfer.common) + len(transfer.new)} are known to the source"
        line += f", new: {_listed(transfer.new)}" if transfer.new else ""
        lines.append(line + (f"; its others are left behind: {_listed(transfer.dropped)}" if transfer.dropped else ""))
        if any(tensor.frozen and tensor.origin == "resized" for tensor in transfer.tensors) and transfer.new:
            until = "" if warm_start.thaw_step is None else f" until step {warm_start.thaw_step}"
            lines.append(f"frozen with the initial values of new symbols: they are not learned{until}")
    if transfer.left_behind:
        modules = dict.fromkeys(_split(name)[0] for name in transfer.left_behind)
        lines.append(f"left behind in the source: {', '.join(modules)}")
    return lines


def settings(transfer: Transfer, section: Config) -> list[str]:
    """A line about settings of the model that differ from the source's: a tensor may fit and mean something else."""
    differing = differences(transfer.source["model"], section)
    if not differing:
        return []
    more = f", and {len(differing) - NUM_LISTED} more" if len(differing) > NUM_LISTED else ""
    return [f"settings of the model that differ (source -> here): {', '.join(differing[:NUM_LISTED])}{more}"]


def _listed(symbols: Sequence[str], most: int = 12) -> str:
    more = f" and {len(symbols) - most} more" if len(symbols) > most else ""
    return " ".join(map(repr, symbols[:most])) + more


def _split(name: str) -> tuple[str, str]:
    """The module and the rest of a tensor's name; a parameter of its own stands for itself."""
    parts = name.split(".")
    size = 3 if len(parts) > 3 and parts[2].isdecimal() else min(2, len(parts) - 1)
    return ".".join(parts[:size]), ".".join(parts[size:])
