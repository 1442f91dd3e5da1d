"""Error rates with what they are made of: kinds of errors, speakers, confusions, and a confidence interval.

Rates are fractions here and become % only where they are printed.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import kaldialign
from rich.console import Console
from rich.table import Table

from las.errors import DataError, suggest
from las.scoring.alignment import Pair, align

SHORT_NAMES = {"phone_error_rate": "PER", "wer": "WER"}
"""The metrics and what they are called in print."""

REPLICATIONS = 10_000  # of the bootstrap, as Bisani and Ney recommend
NO_SPEAKER = "(no speaker)"


@dataclass(frozen=True)
class ErrorRate:
    """Errors of a set of utterances."""

    substitutions: int
    deletions: int
    insertions: int
    reference_tokens: int
    utterances: int

    @property
    def errors(self) -> int:
        """Substitutions, deletions and insertions together."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Errors per reference token; where references are empty, the number of insertions."""
        return self.errors / max(self.reference_tokens, 1)


@dataclass(frozen=True)
class Confusion:
    """How often `hypothesis` stood where `reference` was spoken."""

    reference: str
    hypothesis: str
    count: int


@dataclass(frozen=True)
class Score:
    """Errors of a test.

    `interval` is the 95 % confidence interval of the total rate (None where no reference has a token), `speakers` the
    parts of the total where speakers are known, `missing` the ids without a hypothesis, `confusions` every
    substitution, most frequent first.
    """

    total: ErrorRate
    interval: tuple[float, float] | None
    speakers: dict[str, ErrorRate]
    missing: tuple[str, ...]
    confusions: tuple[Confusion, ...]


def error_rate(
    references: Mapping[str, list[str]],
    hypotheses: Mapping[str, list[str]],
    speakers: Mapping[str, str | None] | None = None,
    seed: int = 0,
) -> Score:
    """Score hypotheses against references, both lists of tokens by utterance id.

    A reference without a hypothesis counts as deleted and is listed as missing. `speakers` gives the speaker of each
    id; `seed` is that of the bootstrap. Raises DataError for a hypothesis without a reference and for no references.
    """
    if not references:
        raise DataError("there is nothing to score: the reference has no utterances")
    for name in hypotheses:
        if name not in references:
            raise DataError(
                f"hypothesis {name!r} has no reference: are these files of the same test?{suggest(name, references)}"
            )
    names = list(references)
    spoken = [references[name] for name in names]
    heard = [hypotheses.get(name, []) for name in names]
    alignments = align(spoken, heard)
    by_speaker: dict[str, list[list[Pair]]] = defaultdict(list)
    for name, pairs in zip(names, alignments, strict=True):
        by_speaker[(speakers or {}).get(name) or NO_SPEAKER].append(pairs)
    return Score(
        total=_count(alignments),
        interval=_interval(spoken, heard, seed),
        speakers={name: _count(by_speaker[name]) for name in sorted(by_speaker) if by_speaker.keys() != {NO_SPEAKER}},
        missing=tuple(name for name in names if name not in hypotheses),
        confusions=_confusions(alignments),
    )


def _count(alignments: Sequence[list[Pair]]) -> ErrorRate:
    pairs = [pair for alignment in alignments for pair in alignment]
    deletions = sum(heard is None for _, heard in pairs)
    insertions = sum(spoken is None for spoken, _ in pairs)
    substitutions = sum(spoken != heard for spoken, heard in pairs) - deletions - insertions
    return ErrorRate(substitutions, deletions, insertions, len(pairs) - insertions, len(alignments))


def _confusions(alignments: Iterable[list[Pair]]) -> tuple[Confusion, ...]:
    counts = Counter(
        (spoken, heard)
        for alignment in alignments
        for spoken, heard in alignment
        if spoken is not None and heard is not None and spoken != heard
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Confusion(spoken, heard, count) for (spoken, heard), count in ordered)


def _interval(references: list[list[str]], hypotheses: list[list[str]], seed: int) -> tuple[float, float] | None:
    """95 % interval of the error rate under resampling of utterances (Bisani and Ney 2004, ICASSP): the mean of the
    resampled rates plus and minus 1.96 standard deviations, not below 0."""
    found = kaldialign.bootstrap_wer_ci(references, hypotheses, replications=REPLICATIONS, seed=seed)
    low, high = found["ci95min"], found["ci95max"]
    if not (math.isfinite(low) and math.isfinite(high)):  # a sample without a single reference token
        return None
    return max(0.0, low), high


def as_dict(score: Score, metric: str) -> dict[str, Any]:
    """What result.json keeps of a score; `metric` is the key of the rate."""
    return {
        metric: score.total.rate,
        **asdict(score.total),
        "missing": len(score.missing),
        "interval": None if score.interval is None else list(score.interval),
    }


def line(score: Score, metric: str) -> str:
    """`PER 12.3 % [11.0, 13.6]  (sub 7.1 del 3.0 ins 2.2)`, and the number of missing hypotheses if there are any."""
    total = score.total
    kinds = (("sub", total.substitutions), ("del", total.deletions), ("ins", total.insertions))
    parts = " ".join(f"{name} {_percent(count, total)}" for name, count in kinds)
    interval = "" if score.interval is None else f" [{100 * score.interval[0]:.1f}, {100 * score.interval[1]:.1f}]"
    missing = f", {len(score.missing)} without a hypothesis" if score.missing else ""
    return f"{SHORT_NAMES[metric]} {100 * total.rate:.1f} %{interval}  ({parts}){missing}"


def print_table(score: Score, metric: str, console: Console, num_confusions: int = 10) -> None:
    """Errors by speaker and in total, the most frequent confusions, and what is missing."""
    table = Table()
    for heading in ("speaker", "utterances", "tokens", "sub %", "del %", "ins %", f"{SHORT_NAMES[metric]} %"):
        table.add_column(heading, justify="left" if heading == "speaker" else "right")
    for speaker, rate in score.speakers.items():
        table.add_row(speaker, *_cells(rate))
    table.add_section()
    table.add_row("total", *_cells(score.total))
    console.print(table, markup=False)
    if score.confusions:
        shown = (f"{c.reference} as {c.hypothesis} ({c.count})" for c in score.confusions[:num_confusions])
        console.print(f"most frequent confusions: {', '.join(shown)}", markup=False)
    if score.missing:
        names = ", ".join(score.missing[:5]) + (", ..." if len(score.missing) > 5 else "")
        console.print(f"{len(score.missing)} without a hypothesis, counted as deleted: {names}", markup=False)


def _cells(rate: ErrorRate) -> list[str]:
    kinds = (rate.substitutions, rate.deletions, rate.insertions, rate.errors)
    return [str(rate.utterances), str(rate.reference_tokens), *(_percent(count, rate) for count in kinds)]


def _percent(count: int, rate: ErrorRate) -> str:
    return f"{100 * count / max(rate.reference_tokens, 1):.1f}"
