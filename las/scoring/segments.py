"""Assignment of the words of a ctm to the segments of a stm, and scoring of the two, as sclite does it.

Files and channels are processed in the order of the stm. Of the words of a channel, each segment takes those whose
middle lies before its end, in order, up to the first that does not; the last segment takes all that are left. So
words in a gap count with the segment behind the gap, and where segments overlap, the earlier line of the file takes
them first. A channel without words has empty hypotheses; words of a channel that the stm lacks, or has in another
order, are an error, as they are for sclite (SCTK 2.4, stm2ctm.c). Names of files, channels and speakers ignore case.
"""

import re
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from las.runtime.errors import DataError
from las.scoring import error_rates
from las.scoring.alignment import NULL, AlignmentRules, align, untagged
from las.scoring.ctm import BEGIN, END, OR, CTMWord, check_alternatives
from las.scoring.stm import Segment
from las.scoring.word_network import Alternatives, Item, Marked

_TOKEN = re.compile(r"\S+", re.ASCII)


@dataclass(frozen=True)
class Pair:
    """Scored segment with sclite's id and the tokens of reference and hypothesis, as `align` takes them."""

    id: str
    segment: Segment
    reference: Marked
    hypothesis: list[Item]


class _TimedWord(NamedTuple):
    """Word, or a group of alternatives, with the time in seconds that decides its segment."""

    middle_s: float
    words: tuple[CTMWord, ...]


def time_segments(segments: Sequence[Segment], words: Sequence[CTMWord]) -> list[Pair]:
    """Assign words to the scored segments, in order. Ignored segments are left out together with their words.

    Raises DataError for words without a segment's channel and for alternatives that are not well formed.
    """
    check_alternatives(words, [f"{word.file} {word.channel}: ctm line {n} of words" for n, word in enumerate(words, 1)])
    channels = [(name, list(group)) for name, group in groupby(words, _channel)]
    num_segments: Counter[str] = Counter()
    pairs = []
    for name, group in groupby(segments, _channel):
        in_channel = channels.pop(0)[1] if channels and channels[0][0] == name else []
        for segment, assigned in _assign(list(group), in_channel):
            speaker = segment.speaker.lower()
            name_of_pair = f"{speaker}-{num_segments[speaker]:03d}"
            pairs.append(Pair(name_of_pair, segment, Marked(tokens(segment.text)), _items(assigned)))
            num_segments[speaker] += 1
    if channels:
        file, channel = channels[0][0]
        raise DataError(
            f"the hypothesis has words for file {file!r}, channel {channel!r}, where the reference has no segments "
            f"left: is that file missing there, or in another order? Sort both: sort -s -k1,1 -k2,2"
        )
    return pairs


def score(
    segments: Sequence[Segment],
    words: Sequence[CTMWord],
    rules: AlignmentRules = AlignmentRules(),  # noqa: B008 - frozen
    seed: int = 0,
) -> error_rates.Score:
    """Errors of a ctm against a stm by sclite's rules; subsets are the labels of the stm. See `time_segments`."""
    pairs = time_segments(segments, words)
    subsets = {pair.id: pair.segment.labels for pair in pairs}
    return summarise(pairs, subsets, rules, seed)


def summarise(
    pairs: Sequence[Pair], subsets: dict[str, tuple[str, ...]], rules: AlignmentRules, seed: int = 0
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
    """Tokens of a text in the form that alignment takes."""
    return _TOKEN.findall(text)


def _channel(line: Segment | CTMWord) -> tuple[str, str]:
    return line.file.lower(), line.channel.lower()


def _assign(segments: list[Segment], words: list[CTMWord]) -> Iterable[tuple[Segment, list[CTMWord]]]:
    remaining = _timed_words(words)
    for segment in segments:
        count = len(remaining) if segment is segments[-1] else 0
        while count < len(remaining) and remaining[count].middle_s < _single(segment.end_s):
            count += 1
        assigned, remaining = remaining[:count], remaining[count:]
        if not segment.ignored:
            yield segment, [word for timed in assigned for word in timed.words]


def _timed_words(words: list[CTMWord]) -> list[_TimedWord]:
    timed = []
    start = 0
    for end, word in enumerate(words, start=1):
        if word.tag in (None, END) and (words[start].tag is None or word.tag == END):
            middles = (each.start_s + each.duration_s / 2 for each in words[start:end] if not each.tag)
            timed.append(_TimedWord(max(middles, default=0.0), tuple(words[start:end])))
            start = end
    return timed


def _single(value: float) -> float:
    """Round a value to single precision, in which sclite keeps times of segments, but not those of words."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _items(words: list[CTMWord]) -> list[Item]:
    """Convert words to items of an alignment, without their tags. Only an alternative may be the empty word."""
    items: list[Item] = []
    open_items = items
    for word in words:
        if word.tag in (BEGIN, OR):
            if word.tag == BEGIN:
                alternatives = Alternatives([])
                items.append(alternatives)
            open_items = []
            alternatives.sequences.append(open_items)
        elif word.tag == END:
            open_items += [] if open_items else [None]
            open_items = items
        else:
            text = untagged(word.text)
            open_items.append(None if text == NULL and open_items is not items else text)
    return items
