"""Switchboard-1 (LDC97S62, 300 hours) with the transcripts of Mississippi State, and the Hub5 evaluations to test it.

Segments, names of utterances, the cap on repeated texts and one of the two development parts are those of Kaldi's
recipe (egs/swbd/s5c); the other development part is that of Zeineldeen et al. 2020.
"""

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from las.data.corpora import hub5, isip_transcripts, telephone_calls
from las.data.corpora.base import Corpus, stamp
from las.data.corpora.isip_transcripts import ISIPSegment
from las.data.manifest import Utterance
from las.data.sources.utterances import OVERSHOOT_S
from las.data.tokenizers import Tokenizer
from las.runtime.errors import ConfigError, DataError, first_of, require_known
from las.scoring.error_rates import Score

DEV = {"kaldi": 4000, "z20": 3000}
"""Number of segments in the development part, the first in the order of their names."""

NUM_CALLS = (2435, 2438)
"""Numbers of audio files of a complete copy: the LDC has shipped it with and without three of the calls."""

NUM_SEGMENTS, SEGMENT_TOLERANCE = 264_333, 0.005
"""Number of segments with more than silence in a complete copy, and its relative tolerance."""

Transcribed = tuple[ISIPSegment, str]
"""Segment with its normalised text."""

_CALL = re.compile(r"sw0?(\d{4})")
_RIGHT_TREE = """A right tree looks like this (upper or lower case, in folders of any names):
  LDC97S62/.../sw02001.sph  sw02005.sph ...
  swb_ms98_transcriptions/20/2001/sw2001A-ms98-a-trans.text  sw2001B-ms98-a-trans.text ...
Set corpus.root to the first and corpus.transcripts to the second, or corpus.root to a folder that holds both"""


class Copy(NamedTuple):
    """Copy of the corpus on disk: calls by number (`sw02001`), transcripts by side (`sw02001-A`)."""

    audio: dict[str, Path]
    transcripts: dict[str, Path]

    def notes(self, partial: bool) -> list[str]:
        """Return counts of a partial copy, and names of sides without transcript or audio."""
        lines = [f"a partial copy, {len(self.audio)} of {NUM_CALLS[-1]} calls"] if partial else []
        without_audio = sorted(side for side in self.transcripts if side.partition("-")[0] not in self.audio)
        for label, sides in (("transcript", self.without_transcript()), ("audio", without_audio)):
            if sides:
                lines.append(f"{len(sides)} sides of calls have no {label}: {first_of(sides, 6)}")
        return lines

    def without_transcript(self) -> list[str]:
        """List the sides of calls that have no transcript."""
        sides = (f"{call}-{side}" for call in self.audio for side in "AB")
        return sorted(side for side in sides if side not in self.transcripts)


class Switchboard(Corpus):
    """Corpus Switchboard; `text` is normalised by `isip_transcripts.normalise`, each side of a call is a speaker.

    root: folder with the calls. transcripts: folder with the transcripts (null: below root). hub5_00, hub5_01: folders
    of the test sets, which are splits only if given; hub5_00_transcripts: folder with the STM of Hub5'00 (null: below
    hub5_00). glm: mapping rules for both (null: those of Hub5'00). fillers: see `hub5.TestSet`. dev: `kaldi` or `z20`.
    max_repeats: maximum number of training utterances with the same text (null: no cap). noises: see
    `isip_transcripts.normalise`. partial: accept an incomplete copy. Raises ConfigError for other values.
    """

    sample_rate = 8000
    channels = 2
    metric = "wer"

    def __init__(
        self,
        name: str,
        root: str,
        tokens: Tokenizer,
        transcripts: str | None = None,
        hub5_00: str | None = None,
        hub5_00_transcripts: str | None = None,
        hub5_01: str | None = None,
        glm: str | None = None,
        fillers: str = "removed",
        dev: str = "kaldi",
        max_repeats: int | None = 300,
        noises: str = "removed",
        partial: bool = False,
    ) -> None:
        super().__init__(name, tokens)
        require_known("dev", dev, DEV)
        require_known("fillers", fillers, hub5.FILLERS)
        isip_transcripts.normalise("", noises)
        if max_repeats is not None and max_repeats < 1:
            raise ConfigError(f"corpus.max_repeats={max_repeats} leaves nothing: 1 or more, or null for no cap")
        self.root = _absolute(root)
        self.transcripts = _absolute(transcripts or root)
        self.dev, self.max_repeats, self.noises, self.partial = dev, max_repeats, noises, partial
        reference = hub5_00_transcripts or hub5_00
        rules = glm or reference
        folders = {"hub5_00": (hub5_00, reference, rules), "hub5_01": (hub5_01, hub5_01, rules or hub5_01)}
        self.tests = {
            test: hub5.TestSet(test, _absolute(calls_at), _absolute(stm_at), _absolute(glm_at), fillers, partial)
            for test, (calls_at, stm_at, glm_at) in folders.items()
            if calls_at is not None
        }
        self.splits = ("train", "dev", *self.tests)

    def settings(self) -> dict[str, Any]:
        keys = ("dev", "max_repeats", "noises", "partial")
        tests = {name: [str(test.audio), str(test.transcripts)] for name, test in self.tests.items()}
        folders = {"root": str(self.root), "transcripts": str(self.transcripts), "tests": tests}
        return super().settings() | folders | {key: getattr(self, key) for key in keys}

    def inventory(self) -> list[str]:
        tested = (reference.audio for test in self.tests.values() for reference in test.references.values())
        transcripts = map(stamp, self._copy.transcripts.values())
        return sorted({*transcripts, *map(str, self._copy.audio.values()), *map(str, tested)})

    def utterances(self, split: str) -> list[Utterance]:
        """List the utterances of a split. Raises DataError naming a faulty file (and line), or missing files."""
        split = self.known_split(split)
        if split in self.tests:
            return self.tests[split].utterances()
        return [self._utterance(segment, text) for segment, text in self._parts[split]]

    def _utterance(self, segment: ISIPSegment, text: str) -> Utterance:
        audio, times_s = self._copy.audio[segment.call], (segment.start_s, segment.end_s)
        call_s = self._durations[audio]
        return telephone_calls.utterance(segment.id, audio, segment.side[-1], times_s, text, segment.side, call_s)

    def normalise(self, text: str) -> list[str]:
        """Split a text into words in lower case, without noises."""
        return [word for word in text.lower().split() if word not in isip_transcripts.NOISES]

    def score(self, split: str, utterances: Sequence[Utterance], texts: Mapping[str, str]) -> Score:
        """Score decoded texts of a split; the Hub5 evaluations by NIST's rules, with the parts SWB and CH."""
        test = self.tests.get(split)
        return super().score(split, utterances, texts) if test is None else test.score(utterances, texts)

    def provenance(self, split: str) -> dict[str, str]:
        """Properties of the scoring that a result must state: for the Hub5 evaluations name and hash of the GLM."""
        return self.tests[split].provenance() if split in self.tests else super().provenance(split)

    def notes(self) -> list[str]:
        """Return the notes about missing calls and transcripts, omitted segments, and the counts of the test sets."""
        lines = [f"{self.name}: {line}" for line in (*self._copy.notes(self.partial), *self._left_out())]
        return lines + [line for test in self.tests.values() for line in test.notes()]

    def _left_out(self) -> list[str]:
        worded = sum(len(self._worded(part)) for part in self._borders)
        num_repeated = worded - sum(map(len, self._parts.values()))
        odd = [(each.id, word) for each in self._segments for word in isip_transcripts.markup_left(each.text)]
        call_s = {call: self._durations[audio] for call, audio in self._copy.audio.items()}
        counts = {
            "segments hold nothing but noises and are left out": len(self._segments) - worded,
            f"training utterances are left out, whose text occurs more than {self.max_repeats} times": num_repeated,
            f"segments end after their call: cut at its end, or listed (from {OVERSHOOT_S} s)": sum(
                each.end_s > call_s[each.call] > 0 for each in self._segments
            ),
            f"words hold markup that no rule knows, left out of them, the first {odd[:3]}": len(odd),
        }
        return [f"{count:,} {description}" for description, count in counts.items() if count]

    @functools.cached_property
    def _copy(self) -> Copy:
        """Copy of the corpus. Raises DataError unless it is complete, or `partial` is set."""
        copy = Copy(telephone_calls.find(self.root, _call), isip_transcripts.find(self.transcripts))
        if not copy.audio or not copy.transcripts:
            where = f"no calls in {self.root}" if not copy.audio else f"no transcripts in {self.transcripts}"
            raise DataError(f"{self.name}: there are {where}.\n{_RIGHT_TREE}")
        if not self.partial and (len(copy.audio) not in NUM_CALLS or copy.without_transcript()):
            raise DataError(
                f"{self.root}: this is not the whole of Switchboard: {'; '.join(copy.notes(partial=True))}.\n"
                "Copy what is missing, or set corpus.partial=true to accept a sample, which prints its counts"
            )
        return copy

    @functools.cached_property
    def _durations(self) -> dict[Path, float]:
        return telephone_calls.durations(self._copy.audio.values())

    @functools.cached_property
    def _segments(self) -> list[ISIPSegment]:
        """Segments with audio and more than silence, sorted by id; the first are the development part."""
        audio, transcripts = self._copy
        paths = (path for side, path in transcripts.items() if side.partition("-")[0] in audio)
        read = itertools.chain.from_iterable(map(isip_transcripts.read, paths))
        spoken = (segment for segment in read if isip_transcripts.normalise(segment.text, "kept"))
        segments = sorted(spoken, key=lambda segment: segment.id)
        if not self.partial and abs(len(segments) - NUM_SEGMENTS) > SEGMENT_TOLERANCE * NUM_SEGMENTS:
            raise DataError(
                f"{self.transcripts}: {len(segments):,} segments hold more than silence, expected {NUM_SEGMENTS:,} "
                f"within {100 * SEGMENT_TOLERANCE:g} %. Copy the transcripts again, or set corpus.partial=true"
            )
        return segments

    @property
    def _borders(self) -> tuple[list[ISIPSegment], list[ISIPSegment]]:
        """Development part (at most a tenth of a small copy) and training part."""
        border = min(DEV[self.dev], math.ceil(len(self._segments) / 10))
        return self._segments[:border], self._segments[border:]

    def _worded(self, segments: list[ISIPSegment]) -> list[Transcribed]:
        texts = ((segment, isip_transcripts.normalise(segment.text, self.noises)) for segment in segments)
        return [(segment, text) for segment, text in texts if text]

    @functools.cached_property
    def _parts(self) -> dict[str, list[Transcribed]]:
        dev, train = map(self._worded, self._borders)
        if not dev or not train:
            raise DataError(f"{self.transcripts}: {len(dev)} + {len(train)} utterances are too few to hold some out")
        return {"train": capped(train, self.max_repeats), "dev": dev}


def capped(utterances: list[Transcribed], max_repeats: int | None) -> list[Transcribed]:
    """Limit utterances of the same text to `max_repeats`, spread evenly over all of them; None: no limit."""
    if max_repeats is None:
        return utterances
    total = Counter(text for _, text in utterances)
    num_seen: Counter[str] = Counter()
    utterances_kept = []
    for segment, text in utterances:
        previous, num_seen[text] = num_seen[text], num_seen[text] + 1
        share = min(max_repeats, total[text])
        if previous * share // total[text] < num_seen[text] * share // total[text]:
            utterances_kept.append((segment, text))
    return utterances_kept


def _call(name: str) -> str | None:
    match = _CALL.fullmatch(name.lower())
    return None if match is None else f"sw0{match[1]}"


def _absolute(path: str | None) -> Path:
    return Path(path or ".").expanduser().absolute()
