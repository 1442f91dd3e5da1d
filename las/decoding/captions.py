"""Transcriptions as files: text, JSON lines, NIST CTM, and captions in SubRip (.srt) and WebVTT (.vtt)."""

import functools
import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from las.data.audio.streaming import MIX
from las.decoding.transcription import TimedWord, Transcription
from las.scoring import ctm

LONGEST_TEXT, LONGEST_S = 84, 6.0
"""Maximum length of a caption in characters (two lines of 42, as is usual on screens) and in seconds."""
PAUSE_S = 0.8
"""A pause between words, in seconds, that starts a new caption."""


def text(recordings: Sequence[Transcription]) -> str:
    """Text with one line for each recording, which begins with its id and a tab if there are several recordings."""
    if len(recordings) == 1:
        return f"{recordings[0].text}\n"
    return "".join(f"{recording.id}\t{recording.text}\n" for recording in recordings)


def json_lines(recordings: Sequence[Transcription]) -> Iterator[str]:
    """JSON lines, one object per recording, with words, tokens, times and confidences; in parts, to bound memory."""
    for recording in recordings:
        yield from recording.json_parts()
        yield "\n"


def time_marks(recordings: Sequence[Transcription], ids: Sequence[str] = ()) -> str:
    """NIST CTM with a line for each word, times in seconds, channels counted from 1; the mean of all is channel 1.

    Recordings have their `recording_names` among all `ids`, by default among themselves.
    """
    names = dict(zip(ids, recording_names(ids), strict=True))
    own = [names[each.id] for each in recordings] if ids else recording_names([each.id for each in recordings])
    return ctm.text(
        ctm.CTMWord(
            name,
            "1" if recording.channel == MIX else str(recording.channel + 1),
            round(word.start_s, 3),
            round(word.end_s - word.start_s, 3),
            word.text,
            round(word.confidence, 4),
        )
        for name, recording in zip(own, recordings, strict=True)
        for word in recording.words
    )


def recording_names(ids: Sequence[str]) -> list[str]:
    """Short names that tell recordings apart, also in one case of letters: `0001`, or with folders `s1-0001`.

    The name of a file without its ending; of files whose names are equal, with the ending (`x-wav`) or as many folders
    as differ, and with a number where that does not help. Blanks become `_`.
    """
    candidates = [_candidates(Path(each), number) for number, each in enumerate(ids, start=1)]
    while True:
        count = Counter(each[-1].casefold() for each in candidates)
        equal = [each for each in candidates if count[each[-1].casefold()] > 1 and len(each) > 1]
        if not equal:
            return [each[-1] for each in candidates]
        for each in equal:
            each.pop()


def _candidates(path: Path, number: int) -> list[str]:
    """Names of a file, the shortest last."""
    folders = path.relative_to(path.anchor).parts[:-1]
    own = path.stem, f"{path.stem}-{path.suffix[1:]}"
    names = ["-".join([*folders[len(folders) - depth :], name]) for depth in range(len(folders) + 1) for name in own]
    return [re.sub(r"\s|^;", "_", name) for name in (f"{names[-1]}-{number}", *reversed(names))]


def writer(kind: str, ids: Sequence[str]) -> Callable[[Sequence[Transcription]], str | Iterator[str]]:
    """Return the writer of a format for some of the recordings `ids`, which have the same names in every file of it."""
    return functools.partial(time_marks, ids=ids) if kind == "ctm" else FORMATS[kind]


def subrip(recordings: Sequence[Transcription]) -> str:
    """SubRip captions (.srt) of one recording."""
    (recording,) = recordings
    return "\n".join(
        f"{number}\n{clock(cue[0].start_s, ',')} --> {clock(cue[-1].end_s, ',')}\n{_lines(cue)}\n"
        for number, cue in enumerate(cues(recording.words), start=1)
    )


def web_vtt(recordings: Sequence[Transcription]) -> str:
    """WebVTT captions (.vtt) of one recording."""
    (recording,) = recordings
    blocks = [
        f"{clock(cue[0].start_s, '.')} --> {clock(cue[-1].end_s, '.')}\n{html.escape(_lines(cue), quote=False)}\n"
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
"""Writers by the name of the format, which is also its suffix."""
OF_ONE = ("srt", "vtt")
"""Formats whose files hold one recording."""


def cues(words: Sequence[TimedWord]) -> Iterator[list[TimedWord]]:
    """Words grouped into captions: without a long pause inside, and within the limits of length and duration."""
    cue: list[TimedWord] = []
    for word in words:
        length = sum(len(previous.text) + 1 for previous in cue) + len(word.text)
        full = length > LONGEST_TEXT or (cue and word.end_s - cue[0].start_s > LONGEST_S)
        if cue and (full or word.start_s - cue[-1].end_s > PAUSE_S):
            yield cue
            cue = []
        cue.append(word)
    if cue:
        yield cue


def clock(seconds: float, point: str) -> str:
    """Return a time as `01:02:03,045`, with `point` before the milliseconds."""
    minutes, milliseconds = divmod(round(1000 * seconds), 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}{point}{milliseconds % 1000:03d}"


def _lines(cue: Sequence[TimedWord]) -> str:
    """Return the words of a caption, in two lines of about the same length if they do not fit into one."""
    text = " ".join(word.text for word in cue)
    if len(text) <= LONGEST_TEXT // 2:
        return text
    middle = text.find(" ", len(text) // 2)
    return text if middle < 0 else f"{text[:middle]}\n{text[middle + 1 :]}"
