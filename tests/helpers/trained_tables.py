"""Tables of results as they would be after trainings."""

from collections.abc import Mapping, Sequence

from las.reproduction.results import Line, Outcome, Table

Rates = Mapping[str, Sequence[float | None]]


def table(rates: Rates, measure: str = "test", tier: str = "open", name: str = "any") -> Table:
    """A table of rows with one number for each seed; None is a broken training."""
    lines = []
    for row, values in rates.items():
        outcomes = [
            Outcome(seed, 1, 100, "abc", *(("", {measure: value}) if value is not None else ("NaN", {})), None)
            for seed, value in enumerate(values, start=1)
        ]
        lines.append(Line(row, row, tuple(outcomes)))
    return Table(name, tier, "synthetic", "wer", "las reproduce", tuple(lines))
