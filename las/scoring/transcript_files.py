"""Files of references and hypotheses, NIST transcripts (.trn) and JSON lines (.jsonl), read line by line."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from las.runtime.errors import DataError
from las.scoring import alignment, word_network
from las.storage import bounded, text_files

_ID = re.compile(r"[^()\s]+")
# The last pair of brackets of a line holds the utterance id.
_TRN_LINE = re.compile(rf"(?P<text>.*)\((?P<id>{_ID.pattern})\)", re.DOTALL)
_COMMENTS = (";;", "**")


@dataclass(frozen=True)
class Transcript:
    """Words of an utterance, separated by spaces, its speaker and confidences if the file has them."""

    text: str
    speaker: str | None
    confidences: tuple[float, ...] | None = None
    """Of each word."""
    confidence: float | None = None
    """Of all words together."""


def read(path: str | Path, ignore_case: bool = False, reference: bool = False) -> dict[str, Transcript]:
    """Read transcripts by utterance id, in file order; with `reference`, the markup of a `.trn` is checked.

    Formats by file name: `.trn` has lines `words (id)`, lines that begin with `;;` or `**` are comments, and the
    speaker is the id up to the first `-`, or the first `_` where it has none (sclite's `-i spu_id`); `.jsonl` has one
    object per line with `id`, `text` and, optionally, `speaker`: manifests as well as hypotheses, whose `words` may
    have confidences. With `ignore_case` ids come out in lower case, as sclite compares them. Raises DataError naming
    file and line.
    """
    path = Path(path)
    readers = {".trn": _read_trn, ".jsonl": _read_json}
    if path.suffix.lower() not in readers:
        raise DataError(f"{path}: not a file of transcripts by its name, which must end in .trn or .jsonl")
    reader = readers[path.suffix.lower()]
    transcripts: dict[str, Transcript] = {}
    first_line: dict[str, int] = {}
    for number, line in text_files.lines(path):
        if reader is _read_trn and line.startswith(_COMMENTS):
            continue
        name, transcript = reader(line, f"{path}:{number}")
        if reference and reader is _read_trn:
            _check_markup(transcript.text, f"{path}:{number}")
        name = alignment.fold_case(name) if ignore_case else name
        if name in transcripts:
            raise DataError(f"{path}:{number}: utterance {name!r} is already on line {first_line[name]}")
        transcripts[name], first_line[name] = transcript, number
    if not transcripts:
        raise DataError(f"{path}: the file has no utterances")
    return transcripts


def _read_trn(line: str, where: str) -> tuple[str, Transcript]:
    match = _TRN_LINE.fullmatch(line)
    if match is None:
        raise DataError(f"{where}: the line does not end in an utterance id in brackets: words (speaker_utterance)")
    text = match["text"].strip(word_network.BLANKS)
    speaker = match["id"].split("-" if "-" in match["id"] else "_")[0]
    return match["id"], Transcript(text, speaker)


def _check_markup(text: str, where: str) -> None:
    try:
        word_network.parse(word_network.Marked([text]))
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _read_json(line: str, where: str) -> tuple[str, Transcript]:
    try:
        values = bounded.parse(line)
    except ValueError as error:
        raise DataError(f"{where}: not a line of JSON ({error})") from error
    for key in ("id", "text"):
        if not isinstance(values, dict) or not isinstance(values.get(key), str):
            raise DataError(f'{where}: expected an object with {key} as text: {{"id": "...", "text": "..."}}')
    speaker = values.get("speaker")
    if not isinstance(speaker, str | None):
        raise DataError(f"{where}: speaker has the value {speaker!r}, which is not text")
    of_words, of_all = _confidences(values, where), values.get("confidence")
    return values["id"], Transcript(values["text"], speaker, of_words, None if of_all is None else _sure(of_all, where))


def _confidences(values: dict[str, Any], where: str) -> tuple[float, ...] | None:
    """Return the confidences of the words of a line; None where not all have one."""
    words = values.get("words")
    if not isinstance(words, list) or len(words) != len(values["text"].split()):
        return None
    if not all(isinstance(word, dict) and "confidence" in word for word in words):
        return None
    return tuple(_sure(word["confidence"], where) for word in words)


def _sure(value: object, where: str) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise DataError(f"{where}: the confidence {value!r:.40} is not a number from 0 to 1")
    return value
