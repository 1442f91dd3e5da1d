"""The English Hub5 evaluations as test sets of Switchboard: Hub5'00 (LDC2002S09, LDC2002T43) and Hub5'01 (LDC2002S13).

Segments and references come from the STM, scoring is NIST's (`las.scoring.hub5`) with the GLM that is named.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from las.data.corpora import isip_transcripts, telephone_calls
from las.data.manifest import Utterance
from las.runtime.errors import DataError
from las.scoring import ctm, hub5, stm
from las.scoring.error_rates import Score
from las.scoring.glm import Glm

# Kaldi's results of eval2000 (egs/swbd/s5c/RESULTS): sentences and words, in total and of each part.
KNOWN = {"hub5_00": {"total": (4459, 42989), "SWB": (1831, 21395), "CH": (2628, 21594)}}
"""Segments and scored words of a whole copy, where published results tell."""

WORD_TOLERANCE = 0.002
"""Share by which scored words may differ from the known number: mapping rules of other dates split words otherwise."""

FILLERS = ("removed", "kept")
"""What becomes of noises, hesitations and partial words of a hypothesis before it is scored."""

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
    """A segment to decode: its place in the STM, and its audio."""

    segment: stm.Segment
    audio: Path

    @property
    def side(self) -> str:
        return f"{self.segment.file}-{self.segment.channel}"


class TestSet:
    """One evaluation: `hub5_00` or `hub5_01`.

    audio: folder with the calls anywhere in it. transcripts: folder with the STM, and perhaps the GLM, anywhere in it.
    glm: file of the mapping rules, or a folder with one anywhere in it. fillers: `kept` scores what the model wrote;
    `removed` takes out noises, hesitations and partial words first, as Kaldi's recipe does. partial: accept missing
    calls.
    """

    __test__ = False  # not a test of pytest

    def __init__(self, name: str, audio: Path, transcripts: Path, glm: Path, fillers: str, partial: bool) -> None:
        self.name = name
        self.audio = audio
        self.transcripts = transcripts
        self._glm = glm
        self.fillers = fillers
        self.partial = partial

    @functools.cached_property
    def glm(self) -> Glm:
        """The mapping rules. Raises DataError when there are none, or several files of them."""
        advice = "Set corpus.glm to the mapping rules (LDC2002T43 has reference/en20000405_hub5.glm)"
        return Glm.read(_only_file(self._glm, _GLM, advice) if self._glm.is_dir() else self._glm)

    @functools.cached_property
    def segments(self) -> list[stm.Segment]:
        """The whole reference, what is not scored included, with the repairs every use of LDC's file needs."""
        return hub5.repaired(stm.read(_only_file(self.transcripts, _STM[self.name], _RIGHT_TREE[self.name])))

    @functools.cached_property
    def references(self) -> dict[str, Reference]:
        """The segments to decode by id, sorted by it. Raises DataError naming calls without audio."""
        files = telephone_calls.find(self.audio)
        missing = sorted({each.file for each in self.segments if each.file.lower() not in files})
        if missing and not self.partial:
            raise DataError(
                f"{self.audio}: {len(missing)} calls of the STM have no audio: {', '.join(missing[:5])}"
                f"{', ...' if len(missing) > 5 else ''}. Copy them, or set corpus.partial=true to test without them.\n"
                f"{_RIGHT_TREE[self.name]}"
            )
        found: dict[str, Reference] = {}
        for segment in self.segments:
            if segment.file.lower() in files and not segment.ignored:
                found[_unused(_id(segment), found)] = Reference(segment, files[segment.file.lower()])
        if not found:
            raise DataError(f"{self.audio}: no call of the STM has audio.\n{_RIGHT_TREE[self.name]}")
        return dict(sorted(found.items()))

    def utterances(self) -> list[Utterance]:
        """The segments to decode, sorted by id; `text` is the reference without NIST's markup (`plain`)."""
        call_s = telephone_calls.durations({each.audio for each in self.references.values()})
        return [
            telephone_calls.utterance(
                name,
                each.audio,
                each.segment.channel.upper(),
                (each.segment.start_s, each.segment.end_s),
                plain(each.segment.text),
                each.side,
                call_s[each.audio],
            )
            for name, each in self.references.items()
        ]

    def score(self, utterances: Sequence[Utterance], texts: Mapping[str, str]) -> Score:
        """Errors of decoded texts by id, as NIST counts them, in total and in the parts SWB and CH.

        The words of a text get times spread evenly within their segment, so that each is scored there.
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
        kept = named + [segment for segment in ignored if (segment.file, segment.channel) in sides]
        return hub5.score(kept, words, self.glm)

    def provenance(self) -> dict[str, str]:
        """What a result must say about how it was scored: the mapping rules by name and hash, and the fillers."""
        return {"glm": self.glm.name, "glm_sha256": self.glm.sha256, "fillers": self.fillers}

    def notes(self) -> list[str]:
        """Segments and scored words, and whether they are those of published results, where these are known."""
        silent = self.score(self.utterances(), {})
        rates = {"total": silent.total} | silent.subsets
        found = {part: (rate.utterances, rate.words) for part, rate in rates.items()}
        rules = f"GLM {self.glm.name}, sha256 {self.glm.sha256[:12]}, fillers {self.fillers}"
        lines = [f"{self.name}: {_counts(found)}; {rules}"]
        letters = sum(len(_LETTER.findall(each.segment.text)) for each in self.references.values())
        if letters:
            what = f"{letters:,} words of the reference are letters with a period (I. B. M.)"
            lines.append(f"{self.name}: {what}; letters written without one, as Switchboard has them, count as errors")
        known = KNOWN.get(self.name, {})
        if any(not _agree(found.get(part, (0, 0)), counts) for part, counts in known.items()):
            lines.append(f"{self.name}: not the test of published results, which is {_counts(known)}")
        return lines


def timed(text: str, segment: stm.Segment) -> list[ctm.Word]:
    """The words of a decoded text with times spread evenly over the first nine tenths of a segment.

    sclite counts a word where its middle lies: it must lie before the segment's end, also after rounding to
    milliseconds. Noises that a model writes are no words.
    """
    words = [word for word in text.split() if word.lower() not in isip_transcripts.NOISES]
    step_s = 0.9 * (segment.end_s - segment.start_s) / max(len(words), 1)
    return [
        ctm.Word(segment.file, segment.channel, segment.start_s + index * step_s, step_s, word)
        for index, word in enumerate(words)
    ]


def plain(text: str) -> str:
    """A reference as a model would write it: lower case, the first of alternatives, optional words said.

    `{ GONNA / GOING TO } (%HESITATION) I. B. M.` is `gonna uh i b m`.
    """
    alternatives = re.compile(r"\{([^{}/]*)(?:/[^{}]*)?\}")
    while alternatives.search(text):
        text = alternatives.sub(r"\1", text)
    words = (word.strip("()").lower() for word in text.split() if word[0] not in "<[")
    spoken = (_SPOKEN.get(word, word).replace(".", "") for word in words)
    return isip_transcripts.normalise(" ".join(spoken))


def _id(segment: stm.Segment) -> str:
    """Kaldi's name of the segment, with hundredths of a second cut off: `en_4156-A_030185-030248`."""
    start, end = (int(100 * time_s) for time_s in (segment.start_s, segment.end_s))
    return f"{segment.file}-{segment.channel}_{start:06d}-{end:06d}"


def _unused(name: str, names: Mapping[str, Reference]) -> str:
    """The name itself, with a dot for every segment before it that has the same times."""
    while name in names:
        name += "."
    return name


def _counts(parts: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{part} {words:,} words in {segments:,} segments" for part, (segments, words) in parts.items())


def _agree(found: tuple[int, int], known: tuple[int, int]) -> bool:
    return found[0] == known[0] and abs(found[1] - known[1]) <= WORD_TOLERANCE * known[1]


def _only_file(folder: Path, name: re.Pattern[str], advice: str) -> Path:
    found = sorted(path for path in folder.rglob("*") if name.fullmatch(path.name.lower()) and path.is_file())
    if len(found) != 1:
        listed = f"found {', '.join(map(str, found))}" if found else f"found no file {name.pattern} in it"
        raise DataError(f"{folder}: {listed}, expected one.\n{advice}")
    return found[0]
