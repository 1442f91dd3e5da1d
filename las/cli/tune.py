"""The verb `tune`: weights of scorers and the length normalisation that make the fewest errors on a split."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from las.cli import tune_scales, tune_trials
from las.cli.tune_scales import TriedScales
from las.config.build import Config, build, check_value, compose
from las.decoding.search import BeamSearch
from las.runtime import devices, distributed, progress
from las.runtime.errors import ConfigError
from las.scoring import error_rates
from las.scoring.error_rates import Score

LANGUAGE_MODELS = ("lm", "second_lm", "word_lm")
NUM_ROWS = 20
"""The number of best rows printed of a table; the best without a language model is added."""


class Point(NamedTuple):
    """One combination: a weight for each tuned scorer (0 leaves it out), and the length normalisation."""

    weights: dict[str, float]
    length_normalisation: float

    @property
    def has_lm(self) -> bool:
        """True if a language model takes part."""
        return any(self.weights.get(name) for name in LANGUAGE_MODELS)


class Tried(NamedTuple):
    """A combination and the errors of its hypotheses."""

    point: Point
    score: Score


def tune(overrides: list[str]) -> Sequence[Tried | TriedScales]:
    """Print the table of all combinations, best first, and keep the best for `search=tuned`: see configs/tune.yaml.

    Started by `torchrun`, the processes share the split.
    """
    config = compose("tune", overrides)
    return tune_scales.tune(config) if config["search"]["_target_"] in tune_scales.INSERTIONS else tune_weights(config)


def tune_weights(config: Config) -> list[Tried]:
    """Tune a beam search: weights of its scorers and length normalisation."""
    search = build(config["search"], where="search")
    if not isinstance(search, BeamSearch):
        raise ConfigError(
            "tune needs a beam search with scorers: search=beam_lm or search=beam_ctc_lm; for an acoustic model "
            "search=phone_bigram, or for words search=word_graph"
        )
    points = grid(config["search"], config["weights"], config["length_normalisation"], search)
    tune_trials.check(config)
    with distributed.process_group(devices.pick(config["device"])) as device, distributed.only_main_prints():
        trials = tune_trials.run(config, device, search, lambda: [with_weights(search, point) for point in points])
        tried = [Tried(point, score) for point, score in zip(points, trials.scores, strict=True)]
        tried.sort(key=lambda result: result.score.total.rate)  # stable: of equals, the one that was given first
        print_table(tried, trials.test_set, trials.corpus.metric)
        tune_trials.keep(config, reweighted(config["search"], tried[0].point), tried[0].score, trials)
    return tried


def grid(section: Config, weights: Mapping[str, Any], exponents: Any, search: BeamSearch) -> list[Point]:
    """All combinations for a search and its section of the config.

    Raises ConfigError for a scorer that the search lacks and for values that are no weights of it.
    """
    lists = {name: values for name, values in weights.items() if values is not None}
    for name, values in {**lists, "length_normalisation": exponents}.items():
        key = name if name == "length_normalisation" else f"weights.{name}"
        check_value(key, values, list[float])
        if not values:
            raise ConfigError(f"{key}={values} should list values, for example [0.0,0.1,0.3]")
    for name in lists.keys() - search.components.scorers.keys():
        raise ConfigError(
            f"weights.{name}: the search has no such scorer: leave it out (weights.{name}=null), or add it "
            "(configs/scorer has them, search=beam_lm and search=beam_ctc_lm have language models)"
        )
    points = [
        Point(dict(zip(lists, map(float, chosen), strict=True)), float(exponent))
        for exponent, *chosen in itertools.product(exponents, *lists.values())
    ]
    for point in points:
        build(reweighted(section, point), where="search")  # raises before anything is decoded
    return points


def with_weights(search: BeamSearch, point: Point) -> BeamSearch:
    """A search with the weights of a point."""
    return search.reweighted(point.weights, point.length_normalisation)


def print_table(tried: Sequence[Tried], title: str, metric: str) -> None:
    """The best combinations, and the best one without a language model if that is not among them."""
    names = list(tried[0].point.weights)
    table = Table(title=f"{title}, {len(tried)} combinations")
    for heading in (*names, "length_^", f"{error_rates.SHORT_NAMES[metric]} %", "sub", "del", "ins"):
        table.add_column(heading.replace("_", "\n"), justify="right", no_wrap=True)
    table.add_column()  # wraps on a narrow terminal, so that no number is cut off
    without = next((place for place, result in enumerate(tried) if not result.point.has_lm), None)
    for place in sorted({*range(min(NUM_ROWS, len(tried))), *([] if without is None else [without])}):
        point, total = tried[place].point, tried[place].score.total
        notes = ["best"] * (place == 0) + ["best without lm"] * (place == without)
        table.add_row(
            *(f"{point.weights[name]:g}" for name in names),
            f"{point.length_normalisation:g}",
            f"{100 * total.rate:.2f}",
            *(str(count) for count in (total.substitutions, total.deletions, total.insertions)),
            ", ".join(notes),
        )
    progress.console.print(table)


def reweighted(search: Config, point: Point) -> Config:
    """The section of a search with the weights of a point, without scorers of weight 0."""
    chosen = {**search, "length_normalisation": point.length_normalisation}
    for name, weight in point.weights.items():
        chosen[name] = {**search[name], "weight": weight}
        if not weight:
            del chosen[name]
    return chosen
