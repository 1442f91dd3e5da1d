"""English Hub5 evaluations as test sets of Switchboard: Hub5'00 (LDC2002S09, LDC2002T43) and Hub5'01 (LDC2002S13).

Segments and references come from the STM; scoring is NIST's (`las.scoring.hub5`) with the given GLM.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from las.data.corpora import isip_transcripts, telephone_calls
from las.data.manifest import Utterance
from las.runtime.errors import DataError, first_of
from las.scoring import ctm, hub5, stm
from las.scoring.error_rates import Score
from las.scoring.glm import Glm
from las.storage import folders

# Kaldi's results of eval2000 (egs/swbd/s5c/RESULTS): sentences and words, in total and of each part.
KNOWN = {"hub5_00": {"total": (4459, 42989), "SWB": (1831, 21395), "CH": (2628, 21594)}}
"""Numbers of segments and scored words of a complete copy, where published results state them."""

WORD_TOLERANCE = 0.002
"""Relative tolerance of the number of scored words: versions of the mapping rules split words differently."""

FILLERS = ("removed", "kept")
"""Treatment of noises, hesitations and partial words of a hypothesis before scoring."""

_STM = {"hub5_00": re.compile(r"hub5e_?00.*\.stm"), "hub5_01": re.compile(r"hub5e_?01.*\.stm")}
_GLM = re.compile(r"en\d+_hub5\.glm")
_LETTER = re.compile(r"(?<![^\s(])[A-Za-z]\.(?=['\s)]|$)")
_RIGHT_TREE = {
    "hub5_00": """A right tree looks like this (upper or lower case):
  LDC2002S09: hub5e_00/english/en_4156.sph  sw_4390.sph ...
  LDC2002T43: 2000_hub5_eng_eval_tr/reference/hub5e00.english.000405.stm  en20000405_hub5.glm
Set corpus.hub5_00 to the first and corpus.hub5_00_transcripts to the second""",
    "hub5_01": """A right tree looks like this (upper or lower case):
  LDC2002S13: hub5e_01/data/transcr/hub5e01.english.20010402.stm, and sw4653.sph ... anywhere below hub5e_01
Set corpus.hub5_01 to it""",
}
_SPOKEN = {"%hesitation": "uh", "%bcack": "uh-huh", "%bcnack": "huh-uh", "@": ""}


class Reference(NamedTuple):
    """Segment to decode: its entry in the STM, and its audio file."""

    segment: stm.Segment
    audio: Path

    @property
    def side(self) -> str:
        """Conversation and channel, which stand for the speaker."""
        return f"{self.segment.file}-{self.segment.channel}"


@dataclass
class TestSet:
    """Test set of one evaluation: `hub5_00` or `hub5_01`.

    audio: folder with the calls, at any depth. transcripts: folder with the STM, and perhaps the GLM, at any depth.
    rules: file of the mapping rules, or a folder that has one at any depth. fillers: `kept` scores hypotheses as they
    are; `removed` removes noises, hesitations and partial words first, like Kaldi's recipe. partial: accept missing
    calls.
    """

    __test__ = False  # not a test of pytest

    name: str
    audio: Path
    transcripts: Path
    rules: Path
    fillers: str
    partial: bool

    @functools.cached_property
    def glm(self) -> Glm:
        """Mapping rules. Raises DataError unless there is exactly one file of them."""
        advice = "Set corpus.glm to the mapping rules (LDC2002T43 has reference/en20000405_hub5.glm)"
        return Glm.read(_only_file(self.rules, _GLM, advice) if self.rules.is_dir() else self.rules)

    @functools.cached_property
    def segments(self) -> list[stm.Segment]:
        """All segments of the STM, unscored ones included, with the repairs that LDC's file needs."""
        return hub5.repaired(stm.read(_only_file(self.transcripts, _STM[self.name], _RIGHT_TREE[self.name])))

    @functools.cached_property
    def references(self) -> dict[str, Reference]:
        """Segments to decode by id, sorted by it. Raises DataError naming calls without audio."""
        files = telephone_calls.find(self.audio)
        missing = sorted({segment.file for segment in self.segments if segment.file.lower() not in files})
        if missing and not self.partial:
            raise DataError(
                f"{self.audio}: {len(missing)} calls of the STM have no audio: {first_of(missing, 5)}. Copy them, or "
                f"set corpus.partial=true to test without them.\n{_RIGHT_TREE[self.name]}"
            )
        references: dict[str, Reference] = {}
        for segment in self.segments:
            if segment.file.lower() in files and not segment.ignored:
                references[_unused(_id(segment), references)] = Reference(segment, files[segment.file.lower()])
        if not references:
            raise DataError(f"{self.audio}: no call of the STM has audio.\n{_RIGHT_TREE[self.name]}")
        return dict(sorted(references.items()))

    def utterances(self) -> list[Utterance]:
        """List the segments to decode, sorted by id; `text` is the reference without NIST's markup (`plain`)."""
        call_s = telephone_calls.durations({reference.audio for reference in self.references.values()})
        utterances = []
        for name, reference in self.references.items():
            segment, audio = reference
            times_s, text = (segment.start_s, segment.end_s), plain(segment.text)
            place = (name, audio, segment.channel.upper(), times_s)
            utterances.append(telephone_calls.utterance(*place, text, reference.side, call_s[audio]))
        return utterances

    def score(self, utterances: Sequence[Utterance], texts: Mapping[str, str]) -> Score:
        """Score decoded texts by id with NIST's counts, in total and in the parts SWB and CH.

        The words of a text get times spread evenly within their segment, so that they are scored there.
        """
        named = [self.references[utterance.id].segment for utterance in utterances]
        words = [
            word
            for utterance, segment in zip(utterances, named, strict=True)
            for word in timed(texts.get(utterance.id, ""), segment)
        ]
        if self.fillers == "removed":
            words = hub5.without_noises(words)
        ignored = [segment for segment in self.segments if segment.ignored]
        sides = {(segment.file, segment.channel) for segment in named}
        scored = named + [segment for segment in ignored if (segment.file, segment.channel) in sides]
        return hub5.score(scored, words, self.glm)

    def provenance(self) -> dict[str, str]:
        """Properties of the scoring that a result must state: name and hash of the mapping rules, and the fillers."""
        return {"glm": self.glm.name, "glm_sha256": self.glm.sha256, "fillers": self.fillers}

    def notes(self) -> list[str]:
        """Return counts of segments and scored words, compared with those of published results where known."""
        silent = self.score(self.utterances(), {})
        rates = {"total": silent.total} | silent.subsets
        measured = {part: (rate.utterances, rate.words) for part, rate in rates.items()}
        rules = f"GLM {self.glm.name}, sha256 {self.glm.sha256[:12]}, fillers {self.fillers}"
        lines = [f"{self.name}: {_counts(measured)}; {rules}"]
        letters = sum(len(_LETTER.findall(reference.segment.text)) for reference in self.references.values())
        if letters:
            found = f"{letters:,} words of the reference are letters with a period (I. B. M.)"
            lines.append(f"{self.name}: {found}; letters written without one, as Switchboard has them, count as errors")
        known = KNOWN.get(self.name, {})
        if any(not _agree(measured.get(part, (0, 0)), counts) for part, counts in known.items()):
            lines.append(f"{self.name}: not the test of published results, which is {_counts(known)}")
        return lines


def timed(text: str, segment: stm.Segment) -> list[ctm.CTMWord]:
    """Give the words of a decoded text times spread evenly over the first nine tenths of a segment.

    sclite assigns a word to the segment of its middle, which must lie before the segment's end even after rounding
    to milliseconds. Noises in a text are not words.
    """
    words = [word for word in text.split() if word.lower() not in isip_transcripts.NOISES]
    step_s = 0.9 * (segment.end_s - segment.start_s) / max(len(words), 1)
    return [
        ctm.CTMWord(segment.file, segment.channel, segment.start_s + index * step_s, step_s, word)
        for index, word in enumerate(words)
    ]


def plain(text: str) -> str:
    """Convert a reference to a training-style text: lower case, first alternatives, optional words included.

    `{ GONNA / GOING TO } (%HESITATION) I. B. M.` is `gonna uh i b m`.
    """
    alternatives = re.compile(r"\{([^{}/]*)(?:/[^{}]*)?\}")
    while alternatives.search(text):
        text = alternatives.sub(r"\1", text)
    words = (word.strip("()").lower() for word in text.split() if word[0] not in "<[")
    spoken = (_SPOKEN.get(word, word).replace(".", "") for word in words)
    return isip_transcripts.normalise(" ".join(spoken))


def _id(segment: stm.Segment) -> str:
    """Kaldi's name of a segment, with times truncated to hundredths of a second: `en_4156-A_030185-030248`."""
    start, end = (int(100 * time_s) for time_s in (segment.start_s, segment.end_s))
    return f"{segment.file}-{segment.channel}_{start:06d}-{end:06d}"


def _unused(name: str, names: Mapping[str, Reference]) -> str:
    """Unused name: the name itself, with a dot for every earlier segment of the same name."""
    while name in names:
        name += "."
    return name


def _counts(parts: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{part} {words:,} words in {segments:,} segments" for part, (segments, words) in parts.items())


def _agree(counts: tuple[int, int], known: tuple[int, int]) -> bool:
    return counts[0] == known[0] and abs(counts[1] - known[1]) <= WORD_TOLERANCE * known[1]


def _only_file(folder: Path, name: re.Pattern[str], advice: str) -> Path:
    paths = [path for path in folders.search(folder).files if name.fullmatch(path.name.lower())]
    if len(paths) != 1:
        listed = f"found {', '.join(map(str, paths))}" if paths else f"found no file {name.pattern} in it"
        raise DataError(f"{folder}: {listed}, expected one.\n{advice}")
    return paths[0]
