"""Which words of a ctm belong to which segment of a stm: sclite's rule, and its scoring of the two.

Files and channels are gone through in the order of the stm. Of the words of a channel, each segment takes those whose
middle lies before its end, as they come, up to the first that does not; the last segment takes all that are left. So
what is heard in a gap counts with the segment behind the gap, and where segments overlap, the earlier line of the
file has what it says first. A channel without words is one in which nothing was heard; words of a channel that the
stm does not have, or has in another order, are an error, as they are for sclite (SCTK 2.4, stm2ctm.c). Names of
files, channels and speakers are the same in both cases of letters.
"""

import re
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from las.runtime.errors import DataError
from las.scoring import error_rates
from las.scoring.alignment import Rules, align
from las.scoring.ctm import BEGIN, END, OR, Word, check_alternatives
from las.scoring.stm import Segment

REFERENCE, HYPOTHESIS = "reference", "hypothesis"

_TOKEN = re.compile(r"\S+", re.ASCII)


@dataclass(frozen=True)
class Pair:
    """A segment that is scored, under sclite's id for it, with the tokens of the text and of what was heard."""

    id: str
    segment: Segment
    reference: list[str]
    hypothesis: list[str]


class _Heard(NamedTuple):
    """A word, or alternatives as one, with the time in seconds that decides where it belongs."""

    middle_s: float
    words: tuple[Word, ...]


def time_segments(segments: Sequence[Segment], words: Sequence[Word], reduce: Collection[str] = ()) -> list[Pair]:
    """The segments to score, in order, with the words that belong to each. Ignored segments keep their words and are
    left out, words and all.

    `reduce` is sclite's -m: with "reference", segments outside the time that the words span are left out; with
    "hypothesis", words outside the time that the remaining segments span. Raises DataError for words without a
    segment's channel and for alternatives that are not well formed.
    """
    check_alternatives(words, [f"{word.file} {word.channel}: ctm line {n} of words" for n, word in enumerate(words, 1)])
    channels = [(name, list(group)) for name, group in groupby(words, _channel)]
    spoken: Counter[str] = Counter()
    pairs = []
    for name, group in groupby(segments, _channel):
        heard = channels.pop(0)[1] if channels and channels[0][0] == name else []
        for segment, taken in _shared_out(list(group), heard, reduce):
            speaker = segment.speaker.lower()
            pairs.append(Pair(f"{speaker}-{spoken[speaker]:03d}", segment, tokens(segment.text), _tokens(taken)))
            spoken[speaker] += 1
    if channels:
        file, channel = channels[0][0]
        raise DataError(
            f"the hypothesis has words for file {file!r}, channel {channel!r}, where the reference has no segments "
            f"left: is that file missing there, or in another order? Sort both: sort -s -k1,1 -k2,2"
        )
    return pairs


def score(
    segments: Sequence[Segment],
    words: Sequence[Word],
    rules: Rules = Rules(),  # noqa: B008 - frozen
    reduce: Collection[str] = (),
    seed: int = 0,
) -> error_rates.Score:
    """Errors of a ctm against a stm by sclite's rules; subsets are the labels of the stm. See `time_segments`."""
    pairs = time_segments(segments, words, reduce)
    subsets = {pair.id: pair.segment.labels for pair in pairs}
    return summarise(pairs, subsets, rules, seed)


def summarise(
    pairs: Sequence[Pair], subsets: dict[str, tuple[str, ...]], rules: Rules, seed: int = 0
) -> error_rates.Score:
    """Align pairs and count their errors by speaker and by the subsets of each id."""
    alignments = align([pair.reference for pair in pairs], [pair.hypothesis for pair in pairs], rules)
    return error_rates.summarise(
        dict(zip((pair.id for pair in pairs), alignments, strict=True)),
        speakers={pair.id: pair.segment.speaker.lower() for pair in pairs},
        subsets=subsets,
        seed=seed,
    )


def tokens(text: str) -> list[str]:
    """Tokens of a text, as alignment takes them."""
    return _TOKEN.findall(text)


def _channel(line: Segment | Word) -> tuple[str, str]:
    return line.file.lower(), line.channel.lower()


def _shared_out(
    segments: list[Segment], words: list[Word], reduce: Collection[str]
) -> Iterable[tuple[Segment, list[Word]]]:
    """The scored segments of a channel with their words."""
    last = segments[-1]
    if REFERENCE in reduce and words:
        start_s, end_s = words[0].start_s, words[-1].start_s + words[-1].duration_s
        kept = [each for each in segments if start_s < _single(each.end_s) and end_s > _single(each.start_s)]
    else:
        kept = segments
    left = _heard(words)
    for segment in kept:
        count = len(left) if segment is last else 0
        while count < len(left) and left[count].middle_s < _single(segment.end_s):
            count += 1
        taken, left = left[:count], left[count:]
        if not segment.ignored:
            inside = [each for each in taken if HYPOTHESIS not in reduce or _within(each.words, kept)]
            yield segment, [word for each in inside for word in each.words]


def _heard(words: list[Word]) -> list[_Heard]:
    heard = []
    start = 0
    for end, word in enumerate(words, start=1):
        if word.tag in (None, END) and (words[start].tag is None or word.tag == END):
            middles = (each.start_s + each.duration_s / 2 for each in words[start:end] if not each.tag)
            heard.append(_Heard(max(middles, default=0.0), tuple(words[start:end])))
            start = end
    return heard


def _within(words: tuple[Word, ...], segments: Sequence[Segment]) -> bool:
    """Whether any of the words touches the time that the segments span."""
    start_s = _single(min(segment.start_s for segment in segments))
    end_s = _single(max(segment.end_s for segment in segments))
    return any(not (word.start_s > end_s or word.start_s + word.duration_s < start_s) for word in words if not word.tag)


def _single(value: float) -> float:
    """The value in single precision, in which sclite keeps times of segments, but not those of words."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _tokens(words: list[Word]) -> list[str]:
    """Words as tokens of alignment, where alternatives are `{ a / b }` and an empty one is `@`."""
    found: list[str] = []
    for word in words:
        if word.tag == END and found[-1] == "/":
            found.append("@")
        found.append({BEGIN: "{", OR: "/", END: "}"}.get(word.tag or "", word.text))
    return found
