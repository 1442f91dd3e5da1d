"""Scoring of the Hub5 evaluations of conversational English, as NIST's `hubscr.pl -V -l english -h hub5` does it.

Both sides are sorted by file, channel and begin, filtered by the mapping rules (upper case, hyphens inside words
split), and scored with sclite's -F -D: optional words and fragments count as correct where they may. Recordings named
sw* are the Switchboard part (SWB) of a test and those named en* the CallHome part (CH), which published results give
apart and together.

Two steps that most published numbers contain and NIST's script does not are functions of their own here, for the
caller to use: `repaired` for the reference of LDC2002T43, which hubscr.pl refuses as it is, and `without_noises` for
hypotheses. As -V says, NIST's validators are not run.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from las.runtime.errors import DataError
from las.scoring import error_rates, segments
from las.scoring.alignment import AlignmentRules
from las.scoring.ctm import CTMWord
from las.scoring.glm import Glm
from las.scoring.stm import Segment

SUBSETS = {"sw": "SWB", "en": "CH"}
"""Parts of a test by how the names of its recordings begin."""

HESITATIONS = frozenset(
    ("UH", "UM", "EH", "MM", "HM", "AH", "HUH", "HA", "ER", "OOF", "HEE", "ACH", "EEE", "EW", "%HESITATION")
)
NOISES = frozenset(("[NOISE]", "[LAUGHTER]", "[VOCALIZED-NOISE]", "<UNK>"))
RULES = AlignmentRules(optional_words=True, fragments=True)


def score(reference: Iterable[Segment], hypothesis: Iterable[CTMWord], glm: Glm, seed: int = 0) -> error_rates.Score:
    """Errors in total, by speaker, and in the subsets SWB and CH; ids are sclite's, `speaker-007`.

    `seed` is that of the confidence interval. Raises DataError for texts the rules cannot be applied to, for words in
    a channel without segments, and for alternatives in the hypothesis: hubscr.pl tears them apart by sorting.
    """
    pairs = segments.time_segments(*filtered(reference, hypothesis, glm))
    subsets = {pair.id: _subset(pair.segment.file) for pair in pairs}
    return segments.summarise(pairs, subsets, RULES, seed)


def filtered(
    reference: Iterable[Segment], hypothesis: Iterable[CTMWord], glm: Glm
) -> tuple[list[Segment], list[CTMWord]]:
    """Sort and filter both sides, as hubscr.pl does for its .filt files."""
    words = sorted(hypothesis, key=lambda word: (word.file, word.channel, word.start_s))
    for word in words:
        if word.tag:
            place = f"file {word.file}, channel {word.channel}"
            raise DataError(f"{place}: alternatives ({word.text}) in a Hub5 hypothesis: only the glm may make them")
    ordered = sorted(reference, key=lambda segment: (segment.file, segment.channel, segment.start_s))
    return glm.filter_segments(ordered), glm.filter_words(words)


def repaired(reference: Sequence[Segment]) -> list[Segment]:
    """Return the reference without what csrfilt.sh refuses in LDC's files, as Kaldi's preparation of eval2000 repairs
    it.

    `((` and `))` become one bracket each, and the marks of an aside (`<B_ASIDE>`, `<E_ASIDE>`) are removed.
    """
    changes = ((r"\({2,}", "("), (r"\){2,}", ")"), (r"<[BE]_ASIDE>", ""))
    repaired_segments = []
    for segment in reference:
        text = segment.text
        for pattern, replacement in changes:
            text = re.sub(pattern, replacement, text)
        repaired_segments.append(replace(segment, text=" ".join(segments.tokens(text))))
    return repaired_segments


def without_noises(hypothesis: Iterable[CTMWord]) -> list[CTMWord]:
    """Hypothesis without tokens that are not scored as words: noises, `<unk>`, hesitations, partial words (`wor-`).

    Hesitations are optional in the reference, so leaving them out costs nothing and saves insertions. Kaldi's
    Switchboard recipe (s5c, score_sclite.sh) drops these words too; its pattern also drops the word `laughter`.
    """
    unscored = NOISES | HESITATIONS
    return [word for word in hypothesis if word.text.upper() not in unscored and not word.text.endswith("-")]


def _subset(file: str) -> tuple[str, ...]:
    return tuple(name for start, name in SUBSETS.items() if file.lower().startswith(start))
