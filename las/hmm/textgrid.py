"""Praat's TextGrid files: tiers of intervals that cover a recording (Praat's manual, "TextGrid file formats").

Written in the long text format; the long and the short one are read.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from las.data.manifest import Interval
from las.runtime.errors import DataError
from las.storage import text_files

_UNSAFE = re.compile(r"[^\w.-]")
_VALUE = re.compile(r'"((?:[^"]|"")*)"|(?<![\w\[.])(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w\].])')


def file_name(utterance_id: str) -> str:
    """Return the name of the file of an utterance."""
    return f"{_UNSAFE.sub('_', utterance_id)}.TextGrid"


def text(tiers: Mapping[str, Sequence[Interval]], duration_s: float) -> str:
    """Format tiers by name, in seconds from the start of the recording; gaps become intervals without a text."""
    lines = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "xmin = 0",
        f"xmax = {duration_s:.6f}",
        "tiers? <exists>",
        f"size = {len(tiers)}",
        "item []:",
    ]
    for number, (name, intervals) in enumerate(tiers.items(), start=1):
        covered = covering(intervals, duration_s)
        lines += [
            f"    item [{number}]:",
            '        class = "IntervalTier"',
            f'        name = "{_quoted(name)}"',
            "        xmin = 0",
            f"        xmax = {duration_s:.6f}",
            f"        intervals: size = {len(covered)}",
        ]
        for place, interval in enumerate(covered, start=1):
            lines += [
                f"        intervals [{place}]:",
                f"            xmin = {interval.start_s:.6f}",
                f"            xmax = {interval.end_s:.6f}",
                f'            text = "{_quoted(interval.symbol)}"',
            ]
    return "\n".join(lines) + "\n"


def read(path: str | Path) -> dict[str, list[Interval]]:
    """Read the interval tiers of a file by name, without the intervals whose text is empty.

    Raises DataError for a file that is no TextGrid, and for tiers of points.
    """
    path = Path(path)
    content = text_files.read(path)
    values = [match[1].replace('""', '"') if match[1] is not None else match[2] for match in _VALUE.finditer(content)]
    if values[:2] != ["ooTextFile", "TextGrid"]:
        raise DataError(f"{path}: this is no TextGrid: it does not begin with ooTextFile and TextGrid")
    tiers: dict[str, list[Interval]] = {}
    place = 5  # behind the two names, the times of the recording and the number of tiers
    try:
        while place < len(values):
            kind, name, _, _, count = values[place : place + 5]
            if kind != "IntervalTier":
                raise DataError(f"{path}: the tier {name!r} is a {kind}, and only tiers of intervals are read")
            if not text_files.is_integer(count) or place + 5 + 3 * int(count) > len(values):
                raise ValueError(f"the tier {name!r} has {count[:40]} intervals, by its size")
            end = place + 5 + 3 * int(count)
            rows = zip(*(values[place + 5 + column : end : 3] for column in range(3)), strict=True)
            tiers[name] = [_interval(start_s, end_s, said) for start_s, end_s, said in rows if said]
            place = end
    except ValueError as error:
        raise DataError(f"{path}: its tiers end too early or are damaged ({error})") from error
    return tiers


def _interval(start: str, end: str, said: str) -> Interval:
    start_s, end_s = text_files.number(start), text_files.number(end)
    if max(abs(start_s), abs(end_s)) > text_files.MAX_SECONDS:
        raise ValueError(f"the interval {said!r} is from {start_s:g} to {end_s:g} s")
    return Interval(start_s, end_s, said)


def covering(intervals: Sequence[Interval], duration_s: float, symbol: str = "") -> list[Interval]:
    """Intervals in their order, with others of a symbol in the gaps between them, before and after them."""
    starts, ends = [0.0, *(each.end_s for each in intervals)], [*(each.start_s for each in intervals), duration_s]
    gaps = [Interval(start, end, symbol) for start, end in zip(starts, ends, strict=True) if end > start]
    return sorted([*intervals, *gaps], key=lambda each: each.start_s)


def _quoted(said: str) -> str:
    return said.replace('"', '""')
