"""Comparison of two runs: the keys in which they differ, their curves, and significance tests on their test sets.

A test set is what the references beside the hypotheses say (`references.<split>.jsonl` of a run folder, or of its
`decoded/`), so that neither audio nor manifests are needed; the corpus of the first run's config scores both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from markupsafe import Markup

from las.config.build import build, flatten
from las.config.public import with_public_names
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.reproduction import charts, learning_curves
from las.runtime import templates
from las.runtime.errors import LasError
from las.scoring import error_rates, significance, tables, transcript_files
from las.scoring.significance import Comparison
from las.scoring.transcript_files import Transcript
from las.storage import run_records, run_summary
from las.storage.run_summary import RunSummary

CURVES = (
    ("Validation loss", "nats per target", learning_curves.validation_values("dev_loss")),
    ("Validation error rate", "dev error in %", learning_curves.validation_error_rates),
    ("Training loss", "smoothed nats per target", learning_curves.update_values("loss")),
    ("Norm of the gradient", "norm before clipping", learning_curves.update_values("gradient_norm")),
)
ABSENT = "(absent)"
OMITTED = ("run_dir",)
"""Keys that differ between any two runs."""


@dataclass(frozen=True)
class Run:
    """One of two compared runs, which the page calls by its `label`."""

    directory: Path
    label: str

    @cached_property
    def config(self) -> dict[str, Any]:
        """The stored config. Raises StorageError for a damaged one."""
        return with_public_names(run_records.config(self.directory))

    @cached_property
    def summary(self) -> RunSummary:
        """The line of `las runs` about it."""
        return run_summary.read(self.directory)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the events of its training. Raises StorageError for a damaged line."""
        return run_records.events(self.directory)

    def hypotheses(self) -> dict[str, Path]:
        """Return the hypotheses of each split: those of the end of the training, else those of `las decode`."""
        found = _of_splits(self.directory / "decoded", "hypotheses")
        with_references = _of_splits(self.directory / "decoded", "references")  # others are of recordings
        found = {split: path for split, path in found.items() if split in with_references}
        return found | _of_splits(self.directory, "hypotheses")

    def references(self) -> dict[str, Path]:
        """Return the references of each split, likewise."""
        return _of_splits(self.directory / "decoded", "references") | _of_splits(self.directory, "references")


@dataclass(frozen=True)
class ComparedSplit:
    """A split that both runs decoded: the comparison, or the reason why there is none."""

    split: str
    metric: str = ""
    comparison: Comparison | None = None
    reason: str = ""


def pair(first: Path, second: Path) -> tuple[Run, Run]:
    """Two runs with different labels: by name, by name and seed, or by folder."""
    summaries = [run_summary.read(folder) for folder in (first, second)]
    for labels in (
        [str(each.name) for each in summaries],
        [f"{each.name}, seed {each.seed}" for each in summaries],
        [str(each.folder) for each in summaries],
    ):
        if labels[0] != labels[1] and "None" not in " ".join(labels):
            break
    return Run(first, labels[0]), Run(second, labels[1])


def differing_keys(first: Run, second: Run) -> list[tuple[str, str, str]]:
    """Keys of the configs that differ, with both values."""
    configs = [flatten(run.config) for run in (first, second)]
    keys = sorted(configs[0].keys() | configs[1].keys())
    values = [(key, *(_shown(config.get(key, ...)) for config in configs)) for key in keys if key not in OMITTED]
    return [(key, one, other) for key, one, other in values if one != other]


def compared_splits(first: Run, second: Run) -> list[ComparedSplit]:
    """Every split that both runs decoded, compared where both decoded the same references."""
    decoded = [run.hypotheses() for run in (first, second)]
    splits = [split for split in decoded[0] if split in decoded[1]]
    if not splits:
        have = "; ".join(f"{run.label}: {', '.join(run.hypotheses()) or 'nothing'}" for run in (first, second))
        return [ComparedSplit("test", reason=f"no split was decoded by both ({have})")]
    return [_compared(split, first, second) for split in splits]


def _compared(split: str, first: Run, second: Run) -> ComparedSplit:
    for run in (first, second):
        if split not in run.references():
            again = f"las decode checkpoint={run.directory} split={split}"
            return ComparedSplit(
                split, reason=f"{run.directory} has no references.{split}.jsonl, which `{again}` writes"
            )
    try:
        references = [transcript_files.read(run.references()[split]) for run in (first, second)]
        if references[0] != references[1]:
            return ComparedSplit(split, reason=f"different test sets: {_difference(*references)}")
        corpus: Corpus = build(first.config["corpus"], where="corpus")
        scores = [_score(corpus, split, references[0], run.hypotheses()[split]) for run in (first, second)]
        return ComparedSplit(split, corpus.metric, significance.compare(*scores))
    except LasError as error:
        return ComparedSplit(split, reason=str(error))


def _score(corpus: Corpus, split: str, references: Mapping[str, Transcript], path: Path) -> error_rates.Score:
    utterances = [Utterance(name, "", 0, 0.0, 0.0, each.text, each.speaker or "") for name, each in references.items()]
    return corpus.score(split, utterances, {name: each.text for name, each in transcript_files.read(path).items()})


def _difference(first: Mapping[str, Transcript], second: Mapping[str, Transcript]) -> str:
    """Return the difference of two test sets: `100 and 90 utterances, 80 in both, 3 of them with other transcripts`."""
    both = first.keys() & second.keys()
    other = sum(first[name].text != second[name].text for name in both)
    text = f"{len(first)} and {len(second)} utterances, {len(both)} in both"
    return text + (f", {other} of them with another transcript" if other else "")


def page(first: Run, second: Run, keys: list[tuple[str, str, str]], splits: list[ComparedSplit]) -> str:
    """Return the comparison as an HTML page without network or scripts, for light and dark, wide and narrow screens."""
    names = (first.label, second.label)
    figures = [
        charts.chart([learning_curves.series(run.label, [run], read) for run in (first, second)], "step", unit, title)
        for title, unit, read in CURVES
    ]
    return templates.render(
        "run_comparison.html",
        title=f"{first.label} and {second.label}",
        names=names,
        summaries=[run.summary for run in (first, second)],
        keys=keys,
        missing=charts.missing(),
        legend=charts.legend(names),
        figures=[figure for figure in figures if figure != Markup("")],
        highest=learning_curves.HIGHEST_PERCENT,
        splits=[_as_shown(split, names) for split in splits],
    )


def _as_shown(split: ComparedSplit, names: tuple[str, str]) -> dict[str, Any]:
    """Return a split as the template shows it."""
    if (comparison := split.comparison) is None:
        return {"split": split.split, "reason": split.reason}
    rate, unit = error_rates.SHORT_NAMES[split.metric], error_rates.UNITS[split.metric]
    systems = [
        [name, str(each.utterances), f"{each.words:,}", f"{100 * each.rate:.2f}", *map(str, _counts(each))]
        for name, each in zip(names, (comparison.first, comparison.second), strict=True)
    ]
    outcomes = [
        [f"{title} ({unit_of_pairs})", str(outcome.pairs), f"{outcome.statistic:.3f}", tables.probability(outcome.p)]
        for name, outcome in comparison.tests.items()
        for title, unit_of_pairs in [tables.TESTS[name]]
    ]
    return {
        "split": split.split,
        "reason": "",
        "headings": ["run", "utterances", unit, f"{rate} %", "sub", "del", "ins"],
        "systems": systems,
        "difference": tables.difference(comparison, names),
        "resampled": f"{names[1]} makes fewer errors in {100 * comparison.second_better:.1f} % of resampled tests",
        "tests": outcomes,
    }


def _counts(rate: error_rates.ErrorRate) -> tuple[int, int, int]:
    return rate.substitutions, rate.deletions, rate.insertions


def _of_splits(folder: Path, kind: str) -> dict[str, Path]:
    """Files `<kind>.<split>.jsonl` of a folder by split."""
    return {
        path.name.split(".")[1]: path for path in sorted(folder.glob(f"{kind}.*.jsonl")) if path.name.count(".") == 2
    }


def _shown(value: Any) -> str:
    return ABSENT if value is ... else str(value)
