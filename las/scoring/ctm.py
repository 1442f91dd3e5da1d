"""NIST's word time marks (.ctm): hypotheses word by word, with times.

A line is `file channel begin duration word confidence`, the confidence being optional; `;;` starts a comment. Words
between the lines `<ALT_BEGIN>`, `<ALT>` and `<ALT_END>`, whose times are `*`, are alternatives (NIST SCTK,
doc/infmts.htm).
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from las.runtime.errors import DataError
from las.scoring import stm
from las.storage import text_files

BEGIN, OR, END = "<ALT_BEGIN>", "<ALT>", "<ALT_END>"


class CTMWord(NamedTuple):
    """Line of a ctm: times in seconds from the start of the recording; tags of alternatives have times of 0."""

    file: str
    channel: str
    start_s: float
    duration_s: float
    text: str
    confidence: float | None = None

    @property
    def tag(self) -> str | None:
        """BEGIN, OR or END where the line is a tag of alternatives."""
        return self.text.upper() if self.text.upper().startswith("<ALT") else None


def read(path: str | Path) -> list[CTMWord]:
    """Words and tags in file order; a file without any is an empty hypothesis.

    A 7th and 8th field (type and speaker of the word) are read over. Raises DataError naming file, line and what is
    wrong with it: fields, times, confidences, or alternatives that sclite would misread.
    """
    path = Path(path)
    numbered = [(number, line) for number, line in text_files.lines(path) if not line.startswith(";")]
    words = [_word(line, f"{path}:{number}") for number, line in numbered]
    check_alternatives(words, [f"{path}:{number}" for number, _ in numbered])
    return words


def text(words: Iterable[CTMWord]) -> str:
    """Format words as lines of a ctm, as they are given; each reads back as the same value."""
    content = []
    for word in words:
        times = "* *" if word.tag else f"{stm.seconds(word.start_s)} {stm.seconds(word.duration_s)}"
        confidence = "" if word.confidence is None else f" {stm.seconds(word.confidence)}"
        content.append(f"{word.file} {word.channel} {times} {word.text}{confidence}\n")
    return "".join(content)


def check_alternatives(words: Sequence[CTMWord], places: Sequence[str]) -> None:
    """Raise DataError at the place of the first tag that does not belong where it stands.

    An alternative without words may only be the last: of any other, sclite drops the word that follows it.
    """
    opened: int | None = None
    for index, (word, place) in enumerate(zip(words, places, strict=True)):
        if opened is not None and (word.file, word.channel) != (words[opened].file, words[opened].channel):
            break
        if word.tag is None:
            continue
        before = None if opened is None else words[index - 1].tag
        if word.tag not in (BEGIN, OR, END):
            raise DataError(f"{place}: {word.text!r} is no tag of alternatives: {BEGIN}, {OR} or {END}")
        if (word.tag == BEGIN) == (opened is not None):
            raise DataError(f"{place}: {word.text} where {'none is' if opened is None else 'one is already'} open")
        if before is not None and (before, word.tag) != (OR, END):
            raise DataError(f"{place}: {word.text} right after {before}: the empty alternative is the word @")
        if word.tag != OR:
            opened = index if word.tag == BEGIN else None
    if opened is not None:
        raise DataError(f"{places[opened]}: {BEGIN} without {END} in the same file and channel")


def _word(line: str, where: str) -> CTMWord:
    fields = re.split(r"[ \t]+", line)
    if not 5 <= len(fields) <= 8:
        raise DataError(
            f"{where}: {len(fields)} fields where 5 to 8 belong: file channel begin duration word confidence"
        )
    file, channel, start, duration, text = fields[:5]
    confidence = _confidence(fields[5], where) if len(fields) > 5 else None
    if text.upper().startswith("<ALT"):
        return CTMWord(file, channel, 0.0, 0.0, text, confidence)
    start_s, duration_s = stm.time("begin", start, where), stm.time("duration", duration, where)
    return CTMWord(file, channel, start_s, duration_s, text, confidence)


def _confidence(field: str, where: str) -> float | None:
    if field.upper() == "NA":
        return None
    try:
        return text_files.number(field)
    except ValueError as error:
        raise DataError(f"{where}: the confidence {field!r:.40} is not a number") from error
