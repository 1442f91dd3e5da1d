"""Transcriptions as files: text, JSON lines, NIST's CTM, and captions as SubRip (.srt) and WebVTT (.vtt) have them."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from las.decoding.transcription import Transcription
from las.decoding.word_timing import Word
from las.scoring import ctm

LONGEST_TEXT, LONGEST_S = 84, 6.0
"""Of one caption: two lines of 42 characters, as long as is usual on a screen."""
PAUSE_S = 0.8
"""A pause between words that begins a new caption."""


def text(recordings: Sequence[Transcription]) -> str:
    """One line for each recording: what was said alone if there is one recording, after name and tab if more."""
    if len(recordings) == 1:
        return f"{recordings[0].text}\n"
    return "".join(f"{each.id}\t{each.text}\n" for each in recordings)


def json_lines(recordings: Sequence[Transcription]) -> Iterator[str]:
    """One object for each recording, with words, tokens, times and confidences; in parts, as hours have many tokens."""
    for each in recordings:
        yield from each.json_parts()
        yield "\n"


def time_marks(recordings: Sequence[Transcription]) -> str:
    """CTM: a line for each word. A recording is called by its file's name without suffix and blanks, channel 1."""
    return ctm.text(
        ctm.Word(
            re.sub(r"\s", "_", Path(each.id).stem),
            "1",
            round(word.start_s, 3),
            round(word.end_s - word.start_s, 3),
            word.text,
            round(word.confidence, 4),
        )
        for each in recordings
        for word in each.words
    )


def subrip(recordings: Sequence[Transcription]) -> str:
    """SubRip, of one recording."""
    (recording,) = recordings
    return "\n".join(
        f"{number}\n{clock(cue[0].start_s, ',')} --> {clock(cue[-1].end_s, ',')}\n{_lines(cue)}\n"
        for number, cue in enumerate(cues(recording.words), start=1)
    )


def web_vtt(recordings: Sequence[Transcription]) -> str:
    """WebVTT, of one recording."""
    (recording,) = recordings
    blocks = [
        f"{clock(cue[0].start_s, '.')} --> {clock(cue[-1].end_s, '.')}\n{_escaped(_lines(cue))}\n"
        for cue in cues(recording.words)
    ]
    return "\n".join(["WEBVTT\n", *blocks])


FORMATS: dict[str, Callable[[Sequence[Transcription]], str | Iterator[str]]] = {
    "txt": text,
    "jsonl": json_lines,
    "ctm": time_marks,
    "srt": subrip,
    "vtt": web_vtt,
}
"""By name, which is the suffix too."""
OF_ONE = ("srt", "vtt")
"""Formats that hold one recording."""


def cues(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Words that are shown together: no pause within, not too long to read or to wait for."""
    cue: list[Word] = []
    for word in words:
        length = sum(len(each.text) + 1 for each in cue) + len(word.text)
        full = length > LONGEST_TEXT or (cue and word.end_s - cue[0].start_s > LONGEST_S)
        if cue and (full or word.start_s - cue[-1].end_s > PAUSE_S):
            yield cue
            cue = []
        cue.append(word)
    if cue:
        yield cue


def clock(seconds: float, point: str) -> str:
    """`01:02:03,045`"""
    minutes, milliseconds = divmod(round(1000 * seconds), 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}{point}{milliseconds % 1000:03d}"


def _lines(cue: Sequence[Word]) -> str:
    """The words in two lines if they are too many for one; the first is not the longer one by more than a word."""
    whole = " ".join(word.text for word in cue)
    if len(whole) <= LONGEST_TEXT // 2:
        return whole
    middle = whole.find(" ", len(whole) // 2)
    return whole if middle < 0 else f"{whole[:middle]}\n{whole[middle + 1 :]}"


def _escaped(lines: str) -> str:
    return lines.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
