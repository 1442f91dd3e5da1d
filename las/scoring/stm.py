"""NIST's segment time marks (.stm): who says what from when to when in a channel of a recording.

A line is `file channel speaker begin end <label,label> text`; labels and text may be missing, `;;` starts a comment,
and the comments `;; CATEGORY "id" "title" "description"` and `;; LABEL ...` say what the labels mean (NIST SCTK,
doc/infmts.htm). Segments may overlap and come in any order: neither sclite nor NIST's validator minds.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from las.runtime.errors import DataError
from las.scoring import transcript_files
from las.storage import atomic

IGNORED = "IGNORE_TIME_SEGMENT_IN_SCORING"
"""The text of a segment that is not scored; what the hypothesis says there is not scored either."""

_TIME = re.compile(r"\d+\.?\d*|\.\d+")
_HEADING = re.compile(r';; +(CATEGORY|LABEL) +"([^"]*)" +"([^"]*)" +"([^"]*)"', re.IGNORECASE)
# What the validator of NIST takes for English (STMList.pm), one kind of token an alternative.
_WORD = r"(?:[a-z]*-)*[a-z]+"
_ENGLISH = re.compile(
    rf"{IGNORED}|{_WORD}|\({_WORD}\)|[a-z]+\.(?:'s|s)*|\([a-z]+\.(?:'s|s)*\)|[a-z]+-|\([a-z]+-\)"
    rf"|{_WORD}(?:'(?:d|s|t|re|ll|m|ve|))*|\({_WORD}'(?:d|s|t|re|ll|m|ve|)\)*|o'\S+|d'etre"
    r"|\(%(?:hesitation|bcack|bcnack)\)|%(?:hesitation|bcack|bcnack)|[{}/@]",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True)
class Segment:
    """One line: times in seconds from the start of the recording, labels as `("O", "WA")`, text in NIST's markup."""

    file: str
    channel: str
    speaker: str
    start_s: float
    end_s: float
    labels: tuple[str, ...]
    text: str

    @property
    def ignored(self) -> bool:
        """Whether the segment is left out of scoring; sclite also takes the mark without its underscores."""
        text = self.text.upper()
        return IGNORED in text or IGNORED.replace("_", "") in text


@dataclass(frozen=True)
class Heading:
    """The meaning of a category of labels (kind CATEGORY) or of one label (kind LABEL)."""

    kind: str
    id: str
    title: str
    description: str


def read(path: str | Path) -> list[Segment]:
    """Segments in file order. Raises DataError naming file, line and what is wrong with it."""
    path = Path(path)
    segments = [
        _segment(line, f"{path}:{number}")
        for number, line in transcript_files.numbered_lines(path)
        if not line.startswith(";;")
    ]
    if not segments:
        raise DataError(f"{path}: the file has no segments")
    return segments


def read_headings(path: str | Path) -> list[Heading]:
    """What the comments of the file say about its labels, each heading once, in file order."""
    matches = (_HEADING.match(line) for _, line in transcript_files.numbered_lines(Path(path)))
    found = (Heading(match[1].upper(), match[2], match[3], match[4]) for match in matches if match)
    return list(dict.fromkeys(found))


def write(path: str | Path, segments: Sequence[Segment], headings: Iterable[Heading] = ()) -> None:
    """Write segments as they are given, headings before them; a segment reads back as the same value."""
    content = [f';; {each.kind} "{each.id}" "{each.title}" "{each.description}"' for each in headings]
    for each in segments:
        labels = f"<{','.join(each.labels)}>" if each.labels else ""
        times = f"{seconds(each.start_s)} {seconds(each.end_s)}"
        content.append(f"{each.file} {each.channel} {each.speaker} {times} {labels} {each.text}".rstrip())
    atomic.write(Path(path), "".join(f"{line}\n" for line in content))


def problems(path: str | Path) -> list[str]:
    """What NIST's validator of English stm files objects to, as `file:line: why`: tokens that are not English words,
    contractions, acronyms, fragments, hesitations or markup. `read` accepts such tokens, and so does sclite."""
    path = Path(path)
    found = []
    for number, line in transcript_files.numbered_lines(path):
        if not line.startswith(";;"):
            text, _, _ = _segment(line, f"{path}:{number}").text.partition(";;")
            for token in text.split():
                if not _ENGLISH.fullmatch(token):
                    found.append(f"{path}:{number}: {token!r} is not an English token of NIST's conventions")
    return found


def seconds(value: float) -> str:
    """A time without an exponent, with as many digits as it takes to read the same value back."""
    return format(Decimal(repr(value)), "f")


def _segment(line: str, where: str) -> Segment:
    fields = re.split(r"[ \t]+", line, maxsplit=5)
    if len(fields) < 5:
        raise DataError(f"{where}: {len(fields)} fields where at least 5 belong: file channel speaker begin end text")
    file, channel, speaker, *times = fields[:5]
    for name, time in zip(("begin", "end"), times, strict=True):
        if not _TIME.fullmatch(time):
            raise DataError(f"{where}: the {name} time {time!r} is not a number of seconds")
    start_s, end_s = (float(time) for time in times)
    if start_s >= end_s:
        raise DataError(f"{where}: the segment ends at {times[1]} s, which is not after its begin at {times[0]} s")
    labels, text = _labels(fields[5] if len(fields) > 5 else "", where)
    return Segment(file, channel, speaker, start_s, end_s, labels, text)


def _labels(rest: str, where: str) -> tuple[tuple[str, ...], str]:
    """Labels and text of what follows the times: a first token that opens with `<` is the labels."""
    if not rest.startswith("<"):
        return (), rest
    token, *text = re.split(r"[ \t]+", rest, maxsplit=1)
    if not token.endswith(">"):
        raise DataError(f"{where}: the labels {token!r} do not end in '>': <label,label> without blanks, then the text")
    return tuple(token[1:-1].split(",")), "".join(text)
