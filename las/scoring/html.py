"""HTML page of a score, self-contained: no network, no script; for light and dark, wide and narrow screens."""

from collections import Counter
from collections.abc import Iterator

from las.runtime import templates
from las.scoring.error_rates import SHORT_NAMES, UNITS, Score, count, percent

LISTED = 30  # rows of the lists of frequent errors


def page(score: Score, metric: str, title: str, convention: str) -> str:
    """The page of a score: rate and interval, parts, frequent errors, and every utterance, most errors first."""
    limits = "" if score.interval is None else f" [{100 * score.interval[0]:.1f}, {100 * score.interval[1]:.1f}]"
    short, unit = SHORT_NAMES[metric], UNITS[metric]
    utterances = [(name, count([alignment]), alignment) for name, alignment in score.utterances.items()]
    return templates.render(
        "score.html",
        title=title,
        convention=convention,
        rate=f"{short} {100 * score.total.rate:.1f} %{limits}",
        interval_over="" if score.interval is None else score.interval_over,
        total=score.total,
        unit=unit,
        missing=len(score.missing),
        part_headings=["", "utterances", unit, "correct %", "sub %", "del %", "ins %", f"{short} %"],
        parts=list(_parts(score)),
        frequent=_frequent_errors(score),
        utterances=sorted(utterances, key=lambda utterance: -utterance[1].errors),
    )


def _parts(score: Score) -> Iterator[list[str]]:
    """A row for each speaker, each subset and the total."""
    parts = {**score.speakers, **{f"subset {name}": rate for name, rate in score.subsets.items()}, "total": score.total}
    for name, rate in parts.items():
        counts = (rate.correct, rate.substitutions, rate.deletions, rate.insertions, rate.errors)
        yield [name, str(rate.utterances), str(rate.words), *(percent(number, rate) for number in counts)]


def _frequent_errors(score: Score) -> list[tuple[str, list[tuple[str, int]]]]:
    """The most frequent confusions, deletions and insertions, each with its number of occurrences."""
    confused = [(f"{pair.reference} as {pair.hypothesis}", pair.count) for pair in score.confusions]
    aligned = [pair for alignment in score.utterances.values() for pair in alignment]
    deleted = Counter(str(pair.reference) for pair in aligned if pair.kind == "deletion").most_common(LISTED)
    inserted = Counter(str(pair.hypothesis) for pair in aligned if pair.kind == "insertion").most_common(LISTED)
    return [("confused", confused[:LISTED]), ("deleted", deleted), ("inserted", inserted)]
