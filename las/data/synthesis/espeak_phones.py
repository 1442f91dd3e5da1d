"""Conversion of eSpeak NG's phone events to TIMIT's labels with times.

The table was made for las: formants of the accents of `ACCENTS` were measured to tell the vowels that end in an r
(American) from those that do not. In Scottish English that r is a separate phone. eSpeak has one phone for a stop or an
affricate; it is split at the burst into closure and release, as in TIMIT's labels.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from las.data.synthesis.espeak import Phone
from las.runtime.errors import DataError, suggest

# Position in the list = TIMIT's dialect folder: DR1 is the first.
ACCENTS = ("en-us", "en-gb-x-rp", "en-gb-scotland", "en-029", "en-us-nyc", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en")
RHOTIC_VOWELS_WITHIN = frozenset({"en-us"})
STRESS_MARKS = "',%="
SILENCES = frozenset({"_", "_:", "_!", "_|"})
# `;` is the glide between a high front vowel and the next vowel: its audio belongs to the vowel before it.
GLIDE = ";"

_COMMON = """
p p|b b|t t|t2 t|t[ t|d d|k k|g g|tS ch|dZ jh|f f|v v|T th|D dh|s s|z z|S sh|Z zh|h hh|m m|n n|N ng|l l|r r|r- r|j y
w w|w# w|t# dx|? q|n- en|@L el
I ih|I2 ix|I# ix|i iy|i: iy|E eh|a ae|aa ae|a/ ae|A: aa|0 aa|O: ao|O2 ao|O ao|V ah|U uh|u uw|u: uw
eI ey|aI ay|aI2 ay|OI oy|aU aw|oU ow|@ ax|@2 ax|a# ax|@- ax-h|3: er|IR er|VR er|i@ iy ax|aI@ ay ax
"""
_WITHOUT_R = "3 ax|A@ aa|O@ ao|o@ ao|e@ eh ax|i@3 ih ax|U@ uh ax|aI3 ay ax"
_WITH_R = "3 axr|A@ aa r|O@ ao r|o@ ao r|e@ eh r|i@3 ih r|U@ uh r|aI3 ay axr"
CLOSURES = {"p": "pcl", "t": "tcl", "k": "kcl", "b": "bcl", "d": "dcl", "g": "gcl", "ch": "tcl", "jh": "dcl"}
FIRST_SHARE = 0.6  # of a phone with two labels, for the first, where the audio has no clear border
FRAME = 32  # samples, 2 ms
LONGEST_CLOSURE = 1600  # samples, 100 ms
SHORTEST_RELEASE = 160  # samples, 10 ms, or a quarter of a short stop: the rise after it is the next vowel's
SILENCE_DB = 40.0  # below the mean of the utterance
BURST_RISE_DB = 6.0


class Label(NamedTuple):
    """TIMIT label with first sample, end (the sample after its last), and text position of its word."""

    start: int
    end: int
    symbol: str
    text_position: int


def timit_labels(mnemonic: str, accent: str) -> tuple[str, ...]:
    """Look up the TIMIT labels of a phone, closures not yet split. Raises DataError for an unknown mnemonic."""
    table = _table(_COMMON + (_WITH_R if accent in RHOTIC_VOWELS_WITHIN else _WITHOUT_R))
    bare = mnemonic.lstrip(STRESS_MARKS)
    if bare not in table:
        raise DataError(
            f"eSpeak NG's phone {mnemonic!r} (accent {accent}) has no TIMIT label: add it to "
            f"las/data/synthesis/espeak_phones.py.{suggest(bare, table)}"
        )
    return table[bare]


@functools.cache
def _table(rows: str) -> dict[str, tuple[str, ...]]:
    """Labels by mnemonic of lines of rows `mnemonic label ...`."""
    return {name: tuple(labels) for name, *labels in map(str.split, rows.strip().replace("\n", "|").split("|"))}


def closure_start(audio: np.ndarray, previous: int, start: int) -> int:
    """First sample of the silence before a stop, or `start` without one.

    eSpeak's event of a voiceless stop is at its burst: the silent closure is the end of the preceding phone.
    audio: float [samples]. previous: first sample of that phone, of which at least half remains.
    """
    earliest = max(start - LONGEST_CLOSURE, (previous + start) // 2)
    windows = np.arange(earliest, start - FRAME + 1, FRAME // 4)
    if len(windows) == 0:
        return start
    power = _power(audio, windows, FRAME)
    quiet = power < 10 ** (-SILENCE_DB / 10) * np.mean(np.square(audio))
    if not quiet.any():
        return start
    last = int(np.flatnonzero(quiet)[-1])
    loud_before = np.flatnonzero(~quiet[:last])
    first = int(loud_before[-1]) + 1 if len(loud_before) else 0
    near_event = start - windows[last] < 8 * FRAME
    long_enough = windows[last] - windows[first] >= 2 * FRAME
    return int(windows[first]) if near_event and long_enough else start


def burst(audio: np.ndarray, start: int, end: int) -> int:
    """Last sample of a stop's closure: the steepest rise of energy, or 60 % of the way without one.

    audio: float [samples]. Energy is measured over 8 ms, about one period of a voice.
    """
    window = max(1, min(4 * FRAME, (end - start) // 4))
    candidates = np.arange(start + window, end - min(SHORTEST_RELEASE, (end - start) // 4), 4)
    fallback = start + round(FIRST_SHARE * (end - start))
    if len(candidates) == 0:
        return fallback
    floor = 1e-7 * np.mean(np.square(audio)) + 1e-20
    power_before, power_after = _power(audio, candidates - window, window), _power(audio, candidates, window)
    rise_db = 10 * np.log10((power_after + floor) / (power_before + floor))
    best = int(np.argmax(rise_db))
    return int(candidates[best]) if rise_db[best] >= BURST_RISE_DB else fallback


def _power(audio: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Mean power of the `length` samples from each of `starts` on; those past the end count as silence."""
    base = int(starts[0])
    total = np.concatenate([[0.0], np.cumsum(np.square(audio[base : int(starts[-1]) + length]))])
    ends = np.minimum(starts - base + length, len(total) - 1)
    return np.asarray((total[ends] - total[starts - base]) / length)


class _Group(NamedTuple):
    start: int  # eSpeak's sample
    labels: tuple[str, ...]
    text_positions: tuple[int, ...]


def _groups(phones: Sequence[Phone], accent: str) -> list[_Group]:
    """Group phones without duration with the preceding phone, with all their labels; pauses have no label."""
    groups: list[_Group] = []
    for phone, following in zip(phones, [*phones[1:], None], strict=True):
        bare = phone.mnemonic.lstrip(STRESS_MARKS)
        timeless = following is not None and following.start <= phone.start
        if bare in SILENCES:
            if not timeless and (not groups or groups[-1].labels):  # consecutive silences are one pause
                groups.append(_Group(phone.start, (), ()))
            continue
        previous = groups[-1] if groups and groups[-1].labels else None
        if bare == GLIDE and previous:
            continue
        labels = timit_labels(bare, accent)
        if labels[0] == "r" and previous and previous.labels[-1] == "r" and len(previous.labels) > 1:
            # the r is in the American vowel already, and here a separate phone too
            previous = groups[-1] = _Group(previous.start, previous.labels[:-1], previous.text_positions[:-1])
        positions = (phone.text_position,) * len(labels)
        if timeless and previous:
            groups[-1] = _Group(previous.start, previous.labels + labels, previous.text_positions + positions)
        else:
            groups.append(_Group(phone.start, labels, positions))
    return groups


def label(phones: Sequence[Phone], scale: float, offset: int, audio: np.ndarray, accent: str) -> list[Label]:
    """Label all of `audio` with TIMIT labels, `h#` at both ends.

    phones: phones of an utterance, in order, the last one a silence. scale, offset: eSpeak's sample n is sample
    `offset + scale * n` of `audio`, float [samples], without noise. A phone without a duration in eSpeak (an l or r at
    the end of a vowel) gets the last part of the preceding phone.
    Raises DataError for an unknown mnemonic and for a phone without any sample.
    """
    groups = _groups(phones, accent)
    while groups and not groups[0].labels:
        groups.pop(0)
    while len(groups) > 1 and not groups[-2].labels:
        groups.pop()
    if len(groups) < 2 or groups[-1].labels:
        raise DataError(f"eSpeak NG's phones do not end in a silence: {[phone.mnemonic for phone in phones]}")
    starts = [offset + round(scale * group.start) for group in groups]
    for index, group in enumerate(groups):
        if group.labels and group.labels[0] in CLOSURES:
            starts[index] = closure_start(audio, starts[index - 1] if index else 0, starts[index])
    labels = [Label(0, starts[0], "h#", 0)]
    for group, start, end in zip(groups, starts, starts[1:], strict=False):
        labels += _divide(group, start, end, audio)
    labels.append(Label(starts[-1], len(audio), "h#", 0))
    for label in labels:
        if label.end <= label.start:
            raise DataError(f"the phone {label.symbol} at sample {label.start} has no length: {[*phones]}")
    return labels


def _divide(group: _Group, start: int, end: int, audio: np.ndarray) -> list[Label]:
    """Divide the time of a group among its labels: shares of 60 %, and closures up to the burst."""
    if not group.labels:
        return [Label(start, end, "pau", 0)]
    labels = []
    for index, (symbol, position) in enumerate(zip(group.labels, group.text_positions, strict=True)):
        is_last = index == len(group.labels) - 1
        middle = end if is_last else start + round(FIRST_SHARE * (end - start))
        if symbol in CLOSURES:
            released = burst(audio, start, middle)
            labels.append(Label(start, released, CLOSURES[symbol], position))
            labels.append(Label(released, middle, symbol, position))
        else:
            labels.append(Label(start, middle, symbol, position))
        start = middle
    return labels
