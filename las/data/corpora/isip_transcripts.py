"""Switchboard transcripts of Mississippi State (ISIP), and their markup turned into plain text, rule by rule.

A file `swb_ms98_transcriptions/20/2001/sw2001A-ms98-a-trans.text` has lines `sw2001A-ms98-a-0001 begin end text`, times
in seconds. The rules do what those of Kaldi's recipe do (egs/swbd/s5c/local: swbd1_data_prep.sh, swbd1_map_words.pl),
except where docs/data.md says so.
"""

import codecs
import functools
import re
from pathlib import Path
from typing import NamedTuple

from las.runtime.errors import DataError, require_known
from las.storage import bounded, folders

ALPHABET = " '-0123456789abcdefghijklmnopqrstuvwxyz"
"""Characters of a normalised text (kept noises have others)."""

NOISES = ("[noise]", "[vocalized-noise]", "[laughter]")
"""Noises, which are not words; `normalise` has an option for them."""

_SAID = """AIDS BASIC COBOL DINK DOS FORTRAN HUD LAN LISP MADD MASH NAFTA NASA NATO OPEC OSHA PAC PIN RAM ROM SAAB SALT
SCUD UNICEF UNIX WASP ZIP"""
SAID_AS_WORDS = tuple(_SAID.split())
"""Words in capitals that are pronounced as words, not spelled."""

_TRANSCRIPT = re.compile(r"sw(\d{4})([ab])-ms98-a-trans\.text", re.IGNORECASE)
_LINE = re.compile(
    r"sw(?P<call>\d{4})(?P<side>[AB])-ms98-a-\d+\s+(?P<start>\d{1,18}(?:\.\d*)?)\s+(?P<end>\d{1,18}(?:\.\d*)?)(?:\s+(?P<text>.*))?",
    re.IGNORECASE | re.ASCII,
)


class ISIPSegment(NamedTuple):
    """Line of a transcript: `side` is conversation and speaker (`sw02001-A`), times are seconds of the call."""

    side: str
    start_s: float
    end_s: float
    text: str

    @property
    def call(self) -> str:
        """Conversation: `sw02001`."""
        return self.side.partition("-")[0]

    @property
    def id(self) -> str:
        """Kaldi's name of the segment, with times in hundredths of a second: `sw02001-A_000098-001156`."""
        return f"{self.side}_{int(100 * self.start_s + 0.5):06d}-{int(100 * self.end_s + 0.5):06d}"


class RewriteRule(NamedTuple):
    """Rule for the words of a transcript: matches of `pattern` become `replacement`; `example` is (before, after)."""

    name: str
    pattern: re.Pattern[str]
    replacement: str
    example: tuple[str, str]


def _rule(name: str, pattern: str, replacement: str, before: str, after: str) -> RewriteRule:
    return RewriteRule(name, re.compile(pattern, re.IGNORECASE), replacement, (before, after))


RULES = (
    _rule("silence", r"^\[silence\]$", "", "[silence]", ""),
    _rule("asides", r"<[be]_aside>", "", "<b_aside>", ""),
    _rule("laughed words", r"^\[laughter-(.+)\](-?)$", r"\1\2", "[laughter-story]", "story"),
    _rule("pronounced otherwise", r"^\[(.+)/.+\](-?)$", r"\1\2", "[it'n/isn't]", "it'n"),
    _rule("beginning cut", r"^-?\[[^][]+\](.+)$", r"-\1", "-[un]til", "-til"),
    _rule("end cut", r"^(.+)\[[^][]+\]-?$", r"\1-", "a[round]-", "a-"),
    _rule("end cut, mistyped", r"^([^][]+)\[.+\]$", r"\1-", "ex[specially]-/especially]", "ex-"),
    _rule("middle cut", r"([a-z])\[[^][]+\]([a-z])", r"\1-\2", "ammu[n]it-", "ammu-it-"),
    _rule("coinages", r"^\{(.+)\}$", r"\1", "{chowpherd}", "chowpherd"),
    _rule("pronunciation variants", r"_\d", "", "them_1's", "them's"),
    _rule("ampersands", r"&", " and ", "A&E", "a and e"),
)
"""Rules in the order in which they are applied to each word, without regard to case."""


def normalise(text: str, noises: str = "removed") -> str:
    """Normalise a transcript to words in lower case, without markup; `noises` are `removed` or `kept`.

    After `RULES`, acronyms are spelled (`acronym`), and characters outside `ALPHABET` are removed from the words.
    Raises ConfigError for another value of `noises`.
    """
    require_known("noises", noises, ("removed", "kept"))
    words: list[str] = []
    for written in text.split():
        if written.lower() not in NOISES:
            words += _words(written)
        elif noises == "kept":
            words.append(written.lower())
    return " ".join(words)


def markup_left(text: str) -> list[str]:
    """List the words of a transcript with characters that no rule covers; `normalise` removes these characters."""
    return [word for word in text.split() if word.lower() not in NOISES and _is_odd(word)]


def acronym(word: str) -> str:
    """Spell an acronym (two or more capitals, or PhD): `TV` becomes `t v`, `TV's` and `TVs` become `t v's`.

    Words in `SAID_AS_WORDS` and all other words are returned unchanged.
    """
    match = re.fullmatch(r"([A-Z]{2,}|PhD)('s|s)?", word)
    if match is None or match[1] in SAID_AS_WORDS:
        return word
    return " ".join(match[1].lower()) + ("'s" if match[2] else "")


def read(path: Path) -> list[ISIPSegment]:
    """Read the segments of a transcript, in file order. Raises DataError naming file and line."""
    try:
        content = bounded.read(path, bounded.LINES).removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise DataError(f"{path}: cannot read the transcript ({bounded.reason(error)})") from error
    lines = enumerate(content.decode("latin-1").splitlines(), start=1)
    segments = [_segment(line, f"{path}:{number}") for number, line in lines if line.strip()]
    if not segments:
        raise DataError(f"{path}: there are no segments in it. Copy it again")
    return segments


def find(root: Path) -> dict[str, Path]:
    """Find the transcripts below a folder, by side of conversation (`sw02001-A`), in any case of letters.

    Raises DataError for two transcripts of a side.
    """
    transcripts: dict[str, Path] = {}
    for path in folders.search(root).files:
        if match := _TRANSCRIPT.fullmatch(path.name):
            side = f"sw0{match[1]}-{match[2].upper()}"
            if side in transcripts:
                raise DataError(f"{path}: {side} is transcribed in {transcripts[side]} too. Remove one of them")
            transcripts[side] = path
    return transcripts


@functools.cache
def _words(written: str) -> tuple[str, ...]:
    """Normalised words of one word of a transcript: none, one or several."""
    return tuple(word for word in map(_plain, _spoken(written)) if word)


@functools.cache
def _is_odd(written: str) -> bool:
    return any(_plain(word) != word for word in _spoken(written))


def _spoken(written: str) -> tuple[str, ...]:
    """Apply the rules and spell acronyms in one word of a transcript; other characters are unchanged."""
    word = written
    for rule in RULES:
        word = rule.pattern.sub(rule.replacement, word)
    return tuple(spelled for part in word.split() for spelled in acronym(part).lower().split())


def _plain(word: str) -> str:
    """Remove characters outside the alphabet; empty if no letter or digit is left."""
    plain = "".join(character for character in word if character in ALPHABET)
    return plain if re.search(r"[a-z0-9]", plain) else ""


def _segment(line: str, where: str) -> ISIPSegment:
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise DataError(f"{where}: {line!r} is not `sw2001A-ms98-a-0001 begin end text` with times in seconds")
    start_s, end_s = float(match["start"]), float(match["end"])
    if start_s >= end_s:
        raise DataError(f"{where}: the segment ends at {end_s} s, which is not after its begin at {start_s} s")
    return ISIPSegment(f"sw0{match['call']}-{match['side'].upper()}", start_s, end_s, match["text"] or "")
