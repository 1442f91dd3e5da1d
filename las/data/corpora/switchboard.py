"""Switchboard-1 (LDC97S62, 300 hours) with the transcripts of Mississippi State, and the Hub5 evaluations to test it.

Segments, names of utterances, the cap on repeated texts and one of the two development parts are those of Kaldi's
recipe (egs/swbd/s5c); the other development part is that of Zeineldeen et al. 2020.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from las.data.corpora import hub5, isip_transcripts, telephone_calls
from las.data.corpora.base import Corpus, stamp
from las.data.manifest import Utterance
from las.data.tokenizers import Tokens
from las.runtime.errors import ConfigError, DataError, suggest
from las.scoring.error_rates import Score

DEV = {"kaldi": 4000, "z20": 3000}
"""How many of the first segments, in the order of their names, are the development part."""

NUM_CALLS = (2435, 2438)
"""Audio files of a whole copy: the LDC has shipped it with and without three of the calls."""

NUM_SEGMENTS, SEGMENT_TOLERANCE = 264_333, 0.005
"""Segments that hold more than silence, and by what share a whole copy may differ."""

_CALL = re.compile(r"sw0?(\d{4})")
_RIGHT_TREE = """A right tree looks like this (upper or lower case, in folders of any names):
  LDC97S62/.../sw02001.sph  sw02005.sph ...
  swb_ms98_transcriptions/20/2001/sw2001A-ms98-a-trans.text  sw2001B-ms98-a-trans.text ...
Set corpus.root to the first and corpus.transcripts to the second, or corpus.root to a folder that holds both"""


class Copy(NamedTuple):
    """What was found of the corpus: calls by number (`sw02001`), transcripts by side (`sw02001-A`)."""

    audio: dict[str, Path]
    transcripts: dict[str, Path]

    def notes(self, partial: bool) -> list[str]:
        """Counts of a partial copy, and what lacks its other half, by name."""
        lines = [f"a partial copy, {len(self.audio)} of {NUM_CALLS[-1]} calls"] if partial else []
        for what, sides in (("transcript", self.without_transcript()), ("audio", self.without_audio())):
            if sides:
                more = ", ..." if len(sides) > 6 else ""
                lines.append(f"{len(sides)} sides of calls have no {what}: {', '.join(sides[:6])}{more}")
        return lines

    def without_audio(self) -> list[str]:
        """Transcribed sides whose call has no audio."""
        return sorted(side for side in self.transcripts if side.partition("-")[0] not in self.audio)

    def without_transcript(self) -> list[str]:
        """Sides of calls that have no transcript."""
        sides = (f"{call}-{side}" for call in self.audio for side in "AB")
        return sorted(side for side in sides if side not in self.transcripts)


class Switchboard(Corpus):
    """Switchboard; `text` is normalised by `isip.normalise`, each side of a call is a speaker.

    root: folder with the calls. transcripts: folder with the transcripts (null: below root). hub5_00, hub5_01: folders
    of the test sets, whose splits exist only where these are given; hub5_00_transcripts: of the STM of Hub5'00 (null:
    below hub5_00). glm: mapping rules for both (null: those of Hub5'00). fillers: as of `hub5.TestSet`. dev: `kaldi`
    or `z20`. max_repeats: how often the same text is trained on (null: no cap). noises: as of `isip.normalise`.
    partial: accept a copy that is not complete. Raises ConfigError for values that are none of these.
    """

    sample_rate = 8000
    channels = 2
    metric = "wer"

    def __init__(
        self,
        name: str,
        root: str,
        tokens: Tokens,
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
        _known("dev", dev, DEV)
        _known("fillers", fillers, hub5.FILLERS)
        isip_transcripts.normalise("", noises)
        if max_repeats is not None and max_repeats < 1:
            raise ConfigError(f"corpus.max_repeats={max_repeats} leaves nothing: 1 or more, or null for no cap")
        self.root = _absolute(root)
        self.transcripts = _absolute(transcripts or root)
        self.dev, self.max_repeats, self.noises, self.partial = dev, max_repeats, noises, partial
        reference = hub5_00_transcripts or hub5_00
        rules = glm or reference
        places = {"hub5_00": (hub5_00, reference, rules), "hub5_01": (hub5_01, hub5_01, rules or hub5_01)}
        self.tests = {
            test: hub5.TestSet(test, _absolute(calls_at), _absolute(stm_at), _absolute(glm_at), fillers, partial)
            for test, (calls_at, stm_at, glm_at) in places.items()
            if calls_at is not None
        }
        self.splits = ("train", "dev", *self.tests)

    def settings(self) -> dict[str, Any]:
        keys = ("dev", "max_repeats", "noises", "partial")
        tests = {name: [str(test.audio), str(test.transcripts)] for name, test in self.tests.items()}
        places = {"root": str(self.root), "transcripts": str(self.transcripts), "tests": tests}
        return super().settings() | places | {key: getattr(self, key) for key in keys}

    def inventory(self) -> list[str]:
        tested = (each.audio for test in self.tests.values() for each in test.references.values())
        return sorted(
            {str(path) for path in (*self._copy.audio.values(), *map(stamp, self._copy.transcripts.values()), *tested)}
        )

    def utterances(self, split: str) -> list[Utterance]:
        """As `Corpus.utterances`; DataError names the file (and line) at fault, or what the copy lacks."""
        split = self.known_split(split)
        if split in self.tests:
            return self.tests[split].utterances()
        found = []
        for segment, text in self._parts[split]:
            call, _, channel = segment.side.partition("-")
            audio = self._copy.audio[call]
            times_s = (segment.start_s, segment.end_s)
            found.append(
                telephone_calls.utterance(
                    segment.id, audio, channel, times_s, text, segment.side, self._durations[audio]
                )
            )
        return found

    def normalise(self, text: str) -> list[str]:
        """Words in lower case, noises left out."""
        return [word for word in text.lower().split() if word not in isip_transcripts.NOISES]

    def score(self, split: str, utterances: Sequence[Utterance], texts: Mapping[str, str]) -> Score:
        """As `Corpus.score`; the Hub5 evaluations as NIST scores them, with the parts SWB and CH."""
        test = self.tests.get(split)
        return super().score(split, utterances, texts) if test is None else test.score(utterances, texts)

    def provenance(self, split: str) -> dict[str, str]:
        """What a result says about how a split was scored: for the Hub5 evaluations the GLM, by name and hash."""
        return self.tests[split].provenance() if split in self.tests else super().provenance(split)

    def notes(self) -> list[str]:
        """What of the copy is missing, what was left out of it, and the counts of the test sets."""
        lines = [f"{self.name}: {line}" for line in (*self._copy.notes(self.partial), *self._left_out())]
        return lines + [line for test in self.tests.values() for line in test.notes()]

    def _left_out(self) -> list[str]:
        worded = sum(len(self._worded(part)) for part in self._borders)
        kept = sum(map(len, self._parts.values()))
        odd = [(each.id, word) for each in self._segments for word in isip_transcripts.markup_left(each.text)]
        cut = [each for each in self._segments if each.end_s > self._durations[self._copy.audio[each.side[:7]]] > 0]
        lines = [
            (len(self._segments) - worded, "segments hold nothing but noises and are left out"),
            (worded - kept, f"training utterances are left out, whose text occurs more than {self.max_repeats} times"),
            (
                len(cut),
                f"segments end after their call: cut at its end, or listed (from {telephone_calls.OVERSHOOT_S} s)",
            ),
            (len(odd), f"words hold markup that no rule knows, left out of them, the first {odd[:3]}"),
        ]
        return [f"{count:,} {what}" for count, what in lines if count]

    @functools.cached_property
    def _copy(self) -> Copy:
        """What there is. Raises DataError unless it is a whole copy, or a partial one that may be."""
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
    def _segments(self) -> list[isip_transcripts.Segment]:
        """Every segment with audio that holds more than silence, by id: the order in which the parts are cut."""
        audio, transcripts = self._copy
        read = (each for side, path in transcripts.items() if side[:7] in audio for each in isip_transcripts.read(path))
        found = sorted(
            (each for each in read if isip_transcripts.normalise(each.text, "kept")), key=lambda each: each.id
        )
        if not self.partial and abs(len(found) - NUM_SEGMENTS) > SEGMENT_TOLERANCE * NUM_SEGMENTS:
            raise DataError(
                f"{self.transcripts}: {len(found):,} segments hold more than silence, expected {NUM_SEGMENTS:,} within "
                f"{100 * SEGMENT_TOLERANCE:g} %. Copy the transcripts again, or set corpus.partial=true"
            )
        return found

    @property
    def _borders(self) -> tuple[list[isip_transcripts.Segment], list[isip_transcripts.Segment]]:
        """The development part, in a small copy not more than a tenth, and the training part."""
        border = min(DEV[self.dev], math.ceil(len(self._segments) / 10))
        return self._segments[:border], self._segments[border:]

    def _worded(self, segments: list[isip_transcripts.Segment]) -> list[tuple[isip_transcripts.Segment, str]]:
        texts = ((each, isip_transcripts.normalise(each.text, self.noises)) for each in segments)
        return [(each, text) for each, text in texts if text]

    @functools.cached_property
    def _parts(self) -> dict[str, list[tuple[isip_transcripts.Segment, str]]]:
        dev, train = map(self._worded, self._borders)
        if not dev or not train:
            raise DataError(f"{self.transcripts}: {len(dev)} + {len(train)} utterances are too few to hold some out")
        return {"train": capped(train, self.max_repeats), "dev": dev}


def capped(
    utterances: list[tuple[isip_transcripts.Segment, str]], most: int | None
) -> list[tuple[isip_transcripts.Segment, str]]:
    """The utterances with at most so many of the same text, those that stay spread evenly over all of them."""
    if most is None:
        return utterances
    total = Counter(text for _, text in utterances)
    seen: Counter[str] = Counter()
    kept = []
    for segment, text in utterances:
        before, seen[text] = seen[text], seen[text] + 1
        share = min(most, total[text])
        if before * share // total[text] < seen[text] * share // total[text]:
            kept.append((segment, text))
    return kept


def _call(name: str) -> str | None:
    match = _CALL.fullmatch(name.lower())
    return None if match is None else f"sw0{match[1]}"


def _absolute(path: str | None) -> Path:
    return Path(path or ".").expanduser().absolute()


def _known(key: str, value: str, names: Iterable[str]) -> None:
    names = list(names)
    if value not in names:
        raise ConfigError(f"corpus.{key}={value}: expected one of {', '.join(names)}.{suggest(value, names)}")
