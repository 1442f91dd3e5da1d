"""Scores and comparisons as tables for the terminal, aligned utterances as text, and the page of a score."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console

from las.runtime import progress, templates
from las.runtime.errors import first_of
from las.scoring.error_rates import (
    SHORT_NAMES,
    UNITS,
    Alignment,
    ErrorRate,
    Interval,
    Score,
    count,
    percent,
    percent_within,
)
from las.scoring.significance import Comparison

COLUMNS = 110  # of a line of aligned words
LISTED = 30  # rows of the page's lists of frequent errors
MARKS = {"correct": "", "substitution": "S", "deletion": "D", "insertion": "I"}
TESTS = {
    "mapsswe": ("matched-pair sentence segments", "segments"),
    "sign": ("sign test", "speakers"),
    "wilcoxon": ("Wilcoxon signed rank", "speakers"),
    "mcnemar": ("McNemar on utterances", "utterances only one has right"),
}
"""Tests of a comparison: their names in print, and the unit of their pairs."""


def print_score(score: Score, metric: str, console: Console, num_confusions: int = 10) -> None:
    """Print errors by speaker, by subset and in total, the most frequent confusions, and missing hypotheses."""
    table = progress.table(*_headings("", metric))
    for rates in (score.speakers, score.subsets, {"total": score.total}):
        for name, rate in rates.items():
            table.add_row(name, *_cells(rate))
        table.add_section()
    console.print(table, markup=False)
    if score.confusions:
        confusions = (f"{c.reference} as {c.hypothesis} ({c.count})" for c in score.confusions[:num_confusions])
        console.print(f"most frequent confusions: {', '.join(confusions)}", markup=False)
    if score.missing:
        missing = f"{len(score.missing)} without a hypothesis, counted as deleted: {first_of(list(score.missing), 5)}"
        console.print(missing, markup=False)


def print_comparison(comparison: Comparison, names: tuple[str, str], metric: str, console: Console) -> None:
    """Print both systems, their difference, and every p value."""
    systems = progress.table(*_headings("system", metric))
    for name, rate in zip(names, (comparison.first, comparison.second), strict=True):
        systems.add_row(name, *_cells(rate))
    tests = progress.table("test", "pairs", "statistic", "p", "p of sc_stats")
    for name, outcome in comparison.tests.items():
        title, unit = TESTS[name]
        values = (f"{outcome.statistic:.3f}", probability(outcome.p), probability(outcome.sc_stats_p))
        tests.add_row(f"{title} ({unit})", str(outcome.pairs), *values)
    share = f"{names[1]} makes fewer errors in {100 * comparison.second_better:.1f} % of resampled tests"
    for part in (systems, difference(comparison, names), tests, share):
        console.print(part, markup=False)


def difference(comparison: Comparison, names: tuple[str, str]) -> str:
    """Describe the difference of two systems: `b.trn is 2.3 points below a.trn (-12.1 %)`"""
    points = 100 * comparison.difference
    relative = f" ({points / comparison.first.rate:+.1f} %)" if comparison.first.errors else ""
    return f"{names[1]} is {abs(points):.2f} points {'below' if points < 0 else 'above'} {names[0]}{relative}"


def probability(p: float) -> str:
    """Format a probability with three decimals, `<0.001` below them."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def aligned_text(utterances: Mapping[str, Alignment]) -> str:
    """Format every utterance as blocks of three lines: reference, hypothesis and S, D or I under each error.

    Errors are in capitals, words missing on one side are asterisks.
    """
    blocks = []
    for name, alignment in utterances.items():
        rate = count([alignment])
        counts = f"{rate.substitutions} sub {rate.deletions} del {rate.insertions} ins of {rate.words}"
        blocks.append("\n".join([f"{name}: {counts}", *_lines(alignment)]))
    return "\n\n".join(blocks) + "\n"


def _lines(alignment: Alignment) -> Iterator[str]:
    """Yield the three rows of an utterance, again below where they are longer than `COLUMNS`."""
    chunk: list[tuple[str, str, str]] = []
    used = 0
    for aligned in alignment:
        column = _column(*aligned)
        width = max(map(cell_len, column)) + 2
        if chunk and used + width > COLUMNS:
            yield from _rows(chunk)
            chunk, used = [], 0
        chunk.append(column)
        used += width
    yield from _rows(chunk)


def _column(reference: str | None, hypothesis: str | None, kind: str) -> tuple[str, str, str]:
    if kind == "correct":
        return reference or "", hypothesis or "", ""
    stars = "*" * cell_len(reference or hypothesis or "")
    upper = [stars if word is None else word.upper() for word in (reference, hypothesis)]
    return upper[0], upper[1], MARKS[kind]


def _rows(columns: list[tuple[str, str, str]]) -> Iterator[str]:
    widths = [max(map(cell_len, column)) for column in columns]
    for row, title in enumerate(("  reference ", "  hypothesis", "            ")):
        padded = zip((column[row] for column in columns), widths, strict=True)
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in padded]
        yield f"{title}  {'  '.join(cells)}".rstrip()


class Slice(NamedTuple):
    """A part of a test by a property of its utterances, such as `seconds 5 to 10`."""

    name: str
    rate: ErrorRate
    interval: Interval


def page(
    score: Score,
    metric: str,
    title: str,
    convention: str,
    slices: Sequence[Slice] = (),
    sounds: Mapping[str, str] | None = None,
) -> str:
    """Render a score as an HTML page: rate and interval, parts, frequent errors, all utterances, most errors first.

    `sounds` are addresses of recordings by utterance id.
    """
    subsets = {f"subset {name}": rate for name, rate in score.subsets.items()}
    utterances = [(name, count([alignment]), alignment) for name, alignment in score.utterances.items()]
    return templates.render(
        "score.html",
        title=title,
        convention=convention,
        rate=f"{SHORT_NAMES[metric]} {percent_within(score.total, score.interval)}",
        interval_over="" if score.interval is None else score.interval_over,
        total=score.total,
        unit=UNITS[metric],
        missing=len(score.missing),
        part_headings=_headings("", metric),
        parts=[[name, *_cells(rate)] for name, rate in ({**score.speakers, **subsets, "total": score.total}).items()],
        slice_headings=["", "utterances", UNITS[metric], f"{SHORT_NAMES[metric]}, 95 % interval"],
        slices=[[name, rate.utterances, rate.words, percent_within(rate, within)] for name, rate, within in slices],
        sounds=sounds or {},
        frequent=_frequent_errors(score),
        utterances=sorted(utterances, key=lambda utterance: -utterance[1].errors),
    )


def _frequent_errors(score: Score) -> list[tuple[str, list[tuple[str, int]]]]:
    """List the most frequent confusions, deletions and insertions, each with its number of occurrences."""
    confused = [(f"{pair.reference} as {pair.hypothesis}", pair.count) for pair in score.confusions[:LISTED]]
    aligned = [pair for alignment in score.utterances.values() for pair in alignment]
    deleted = Counter(str(pair.reference) for pair in aligned if pair.kind == "deletion").most_common(LISTED)
    inserted = Counter(str(pair.hypothesis) for pair in aligned if pair.kind == "insertion").most_common(LISTED)
    return [("confused", confused), ("deleted", deleted), ("inserted", inserted)]


def _headings(first: str, metric: str) -> list[str]:
    numbers = ["utterances", UNITS[metric], "correct %", "sub %", "del %", "ins %", f"{SHORT_NAMES[metric]} %"]
    return [first, *numbers]


def _cells(rate: ErrorRate) -> list[str]:
    kinds = (rate.correct, rate.substitutions, rate.deletions, rate.insertions, rate.errors)
    return [str(rate.utterances), str(rate.words), *(percent(number, rate) for number in kinds)]
