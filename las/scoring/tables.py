"""Tables of scores and comparisons for the terminal, and aligned utterances as text."""

from collections.abc import Iterable, Iterator, Mapping

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from las.scoring.error_rates import SHORT_NAMES, UNITS, Alignment, ErrorRate, Score, count, percent
from las.scoring.significance import Comparison

COLUMNS = 110  # of a line of aligned words
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
    table = _table("", "utterances", UNITS[metric], "correct %", "sub %", "del %", "ins %", f"{SHORT_NAMES[metric]} %")
    for rates in (score.speakers, score.subsets, {"total": score.total}):
        for name, rate in rates.items():
            table.add_row(name, *_cells(rate))
        table.add_section()
    console.print(table, markup=False)
    if score.confusions:
        confusions = (f"{c.reference} as {c.hypothesis} ({c.count})" for c in score.confusions[:num_confusions])
        console.print(f"most frequent confusions: {', '.join(confusions)}", markup=False)
    if score.missing:
        names = ", ".join(score.missing[:5]) + (", ..." if len(score.missing) > 5 else "")
        console.print(f"{len(score.missing)} without a hypothesis, counted as deleted: {names}", markup=False)


def print_comparison(comparison: Comparison, names: tuple[str, str], metric: str, console: Console) -> None:
    """Print both systems, their difference, and every p value."""
    systems = _table(
        "system", "utterances", UNITS[metric], "correct %", "sub %", "del %", "ins %", f"{SHORT_NAMES[metric]} %"
    )
    for name, rate in zip(names, (comparison.first, comparison.second), strict=True):
        systems.add_row(name, *_cells(rate))
    console.print(systems, markup=False)
    console.print(difference(comparison, names), markup=False)
    tests = _table("test", "pairs", "statistic", "p", "p of sc_stats")
    for name, outcome in comparison.tests.items():
        title, unit = TESTS[name]
        values = (f"{outcome.statistic:.3f}", probability(outcome.p), probability(outcome.sc_stats_p))
        tests.add_row(f"{title} ({unit})", str(outcome.pairs), *values)
    console.print(tests, markup=False)
    share = 100 * comparison.second_better
    console.print(f"{names[1]} makes fewer errors in {share:.1f} % of resampled tests", markup=False)


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
    columns = [_column(*aligned) for aligned in alignment]
    titles = ("  reference ", "  hypothesis", "            ")
    for chunk in _chunks(columns):
        widths = [max(map(cell_len, column)) for column in chunk]
        for row, title in enumerate(titles):
            cells = (column[row] for column in chunk)
            padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
            yield f"{title}  {'  '.join(padded)}".rstrip()


def _column(reference: str | None, hypothesis: str | None, kind: str) -> tuple[str, str, str]:
    """Reference word, hypothesis word and error mark of one column."""
    if kind == "correct":
        return reference or "", hypothesis or "", ""
    stars = "*" * cell_len(reference or hypothesis or "")
    upper = [stars if word is None else word.upper() for word in (reference, hypothesis)]
    return upper[0], upper[1], MARKS[kind]


def _chunks(columns: Iterable[tuple[str, str, str]]) -> Iterator[list[tuple[str, str, str]]]:
    """Group columns into lines of text."""
    chunk: list[tuple[str, str, str]] = []
    used = 0
    for column in columns:
        width = max(map(cell_len, column)) + 2
        if chunk and used + width > COLUMNS:
            yield chunk
            chunk, used = [], 0
        chunk.append(column)
        used += width
    yield chunk


def _table(first: str, *numbers: str) -> Table:
    """Create a table whose first column is text and whose others are numbers."""
    table = Table()
    table.add_column(first, overflow="fold")  # an ellipsis would hide the end of a path
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def _cells(rate: ErrorRate) -> list[str]:
    kinds = (rate.correct, rate.substitutions, rate.deletions, rate.insertions, rate.errors)
    return [str(rate.utterances), str(rate.words), *(percent(number, rate) for number in kinds)]
