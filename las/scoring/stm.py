"""NIST's segment time marks (.stm): references by segment, with channel, speaker and times.

A line is `file channel speaker begin end <label,label> text`; labels and text may be missing, `;;` starts a comment,
and the comments `;; CATEGORY "id" "title" "description"` and `;; LABEL ...` say what the labels mean (NIST SCTK,
doc/infmts.htm). Segments may overlap and come in any order: neither sclite nor NIST's validator minds.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from las.runtime.errors import DataError
from las.storage import text_files

IGNORED = "IGNORE_TIME_SEGMENT_IN_SCORING"
"""Text of a segment that is not scored; words of the hypothesis in it are not scored either."""


@dataclass(frozen=True)
class Segment:
    """Line of a stm: times in seconds from the start of the recording, labels `("O", "WA")`, text in NIST's markup."""

    file: str
    channel: str
    speaker: str
    start_s: float
    end_s: float
    labels: tuple[str, ...]
    text: str

    @property
    def ignored(self) -> bool:
        """True for a segment that is left out of scoring; like sclite, it accepts the mark without underscores."""
        text = self.text.upper()
        return IGNORED in text or IGNORED.replace("_", "") in text


def read(path: str | Path) -> list[Segment]:
    """Segments in file order. Raises DataError naming file, line and what is wrong with it."""
    path = Path(path)
    segments = [
        _segment(line, f"{path}:{number}") for number, line in text_files.lines(path) if not line.startswith(";;")
    ]
    if not segments:
        raise DataError(f"{path}: the file has no segments")
    return segments


def seconds(value: float) -> str:
    """Format a time without an exponent, with as many digits as reading back the same value takes."""
    return format(Decimal(repr(value)), "f")


def _segment(line: str, where: str) -> Segment:
    fields = re.split(r"[ \t]+", line, maxsplit=5)
    if len(fields) < 5:
        raise DataError(f"{where}: {len(fields)} fields where at least 5 belong: file channel speaker begin end text")
    file, channel, speaker, *times = fields[:5]
    start_s, end_s = (time(f"{name} time", each, where) for name, each in zip(("begin", "end"), times, strict=True))
    if start_s >= end_s:
        raise DataError(f"{where}: the segment ends at {times[1]} s, which is not after its begin at {times[0]} s")
    labels, text = _labels(fields[5] if len(fields) > 5 else "", where)
    return Segment(file, channel, speaker, start_s, end_s, labels, text)


def time(name: str, text: str, where: str) -> float:
    """Read a time in seconds. Raises DataError with its name and place."""
    try:
        return text_files.seconds(text)
    except ValueError as error:
        raise DataError(f"{where}: the {name} {text!r:.40} is not a number of seconds") from error


def _labels(remainder: str, where: str) -> tuple[tuple[str, ...], str]:
    """Split the text behind the times into labels and text: a first token that opens with `<` is the labels."""
    if not remainder.startswith("<"):
        return (), remainder
    token, *text = re.split(r"[ \t]+", remainder, maxsplit=1)
    if not token.endswith(">"):
        raise DataError(f"{where}: the labels {token!r} do not end in '>': <label,label> without blanks, then the text")
    return tuple(token[1:-1].split(",")), "".join(text)
