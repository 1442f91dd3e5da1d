"""References and hypotheses from files: NIST transcripts (.trn) and JSON lines (.jsonl)."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from las.errors import DataError

# The last pair of brackets of a line holds the utterance id.
_TRN_LINE = re.compile(r"(?P<text>.*)\((?P<id>[^()\s]+)\)")
# NIST's { a / b } alternatives and (optional) words.
_TRN_MARKUP = re.compile(r"(?:^|\s)(?:[{}]|\(\S*\))(?=\s|$)")


@dataclass(frozen=True)
class Transcript:
    """The words of an utterance, separated by spaces, and who spoke them where the file says so."""

    text: str
    speaker: str | None


def read(path: str | Path) -> dict[str, Transcript]:
    """Transcripts by utterance id, in file order.

    Formats by file name: `.trn` has lines `words (id)`, and the speaker is the id up to the first `_` or `-` (sclite's
    `-i spu_id`); `.jsonl` has one object per line with `id`, `text` and, optionally, `speaker`: manifests as well as
    hypotheses. Raises DataError naming file and line.
    """
    path = Path(path)
    readers = {".trn": _read_trn, ".jsonl": _read_json}
    if path.suffix.lower() not in readers:
        raise DataError(f"{path}: not a file of transcripts by its name, which must end in .trn or .jsonl")
    reader = readers[path.suffix.lower()]
    transcripts: dict[str, Transcript] = {}
    first_line: dict[str, int] = {}
    for number, line in _lines(path):
        name, transcript = reader(line, f"{path}:{number}")
        if name in transcripts:
            raise DataError(f"{path}:{number}: utterance {name!r} is already on line {first_line[name]}")
        transcripts[name], first_line[name] = transcript, number
    if not transcripts:
        raise DataError(f"{path}: the file has no utterances")
    return transcripts


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers."""
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{number}: not UTF-8 text. Convert it: iconv -f latin1 -t utf-8") from error
    # Not splitlines: it would also split at separators that may stand inside a text.
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            yield number, line.strip()


def _read_trn(line: str, where: str) -> tuple[str, Transcript]:
    match = _TRN_LINE.fullmatch(line)
    if match is None:
        raise DataError(f"{where}: the line does not end in an utterance id in brackets: words (speaker_utterance)")
    markup = _TRN_MARKUP.search(match["text"])
    if markup is not None:
        raise DataError(
            f"{where}: alternatives {{ a / b }} and optional (words) cannot be scored as plain words: "
            f"write the line without {markup.group().strip()!r}, or score these files with sclite"
        )
    speaker = re.split("[_-]", match["id"], maxsplit=1)[0]
    return match["id"], Transcript(match["text"].strip(), speaker)


def _read_json(line: str, where: str) -> tuple[str, Transcript]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not a line of JSON ({error})") from error
    for key in ("id", "text"):
        if not isinstance(values, dict) or not isinstance(values.get(key), str):
            raise DataError(f'{where}: expected an object with {key} as text: {{"id": "...", "text": "..."}}')
    speaker = values.get("speaker")
    if not isinstance(speaker, str | None):
        raise DataError(f"{where}: speaker has the value {speaker!r}, which is not text")
    return values["id"], Transcript(values["text"], speaker)
