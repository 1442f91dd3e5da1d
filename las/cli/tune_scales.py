"""Tuning of the scales of a search for acoustic models (`las tune search=phone_bigram`, `search=word_graph`)."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from las.cli import tune_trials
from las.config.build import Config, build, check_value
from las.decoding.base import Search
from las.runtime import devices, distributed, progress
from las.runtime.errors import ConfigError
from las.scoring import error_rates
from las.scoring.error_rates import Score

INSERTIONS = {"las.PhoneBigramSearch": "insertion", "las.WordGraphSearch": "word_insertion"}
"""Searches that have scales, and what each calls the score of every phone or word, `scales.insertion`."""
MOUNTED = ("length_reward", "coverage")
"""Scorers that configs/tune.yaml adds to any search."""
NUM_ROWS = 20


class TriedScales(NamedTuple):
    """A combination of scales by name, and the errors of its hypotheses."""

    scales: dict[str, float]
    score: Score


def tune(config: Config) -> list[TriedScales]:
    """Print the table of all combinations of scales, best first, and keep the best for `search=tuned`."""
    section = {key: value for key, value in config["search"].items() if key not in MOUNTED}
    search = build(section, where="search")
    points = grid(config["scales"], INSERTIONS[section["_target_"]])
    for point in points:
        build({**section, **point}, where="scales")  # raises before anything is decoded
    tune_trials.check(config)
    with distributed.process_group(devices.pick(config["device"])) as device, distributed.only_main_prints():
        trials = tune_trials.run(config, device, search, lambda: [with_scales(search, point) for point in points])
        tried = [TriedScales(point, score) for point, score in zip(points, trials.scores, strict=True)]
        tried.sort(key=lambda each: each.score.total.rate)  # stable: of equals, the one that was given first
        print_table(tried, trials)
        tune_trials.keep(config, {**section, **tried[0].scales}, tried[0].score, trials)
    return tried


def with_scales(search: Search, scales: Mapping[str, float]) -> Search:
    """A search with other scales, and the graph of the given one."""
    changed = copy.copy(search)
    for name, value in scales.items():
        setattr(changed, name, value)
    return changed


def grid(scales: Mapping[str, Any], insertion: str) -> list[dict[str, float]]:
    """All combinations of the scales that have a list; `insertion` is the search's name of that scale.

    Raises ConfigError for values that are no list of numbers.
    """
    lists = {name: values for name, values in scales.items() if values is not None}
    for name, values in lists.items():
        check_value(f"scales.{name}", values, list[float])
        if not values:
            raise ConfigError(f"scales.{name}=[] should list values, for example [1.0,2.0]; null leaves the search's")
    names = [insertion if name == "insertion" else name for name in lists]
    return [dict(zip(names, map(float, chosen), strict=True)) for chosen in itertools.product(*lists.values())]


def print_table(tried: Sequence[TriedScales], trials: tune_trials.Trials) -> None:
    """The best combinations."""
    table = Table(title=f"{trials.test_set}, {len(tried)} combinations")
    for heading in (*tried[0].scales, f"{error_rates.SHORT_NAMES[trials.corpus.metric]} %", "sub", "del", "ins"):
        table.add_column(heading.replace("_", "\n"), justify="right", no_wrap=True)
    for each in tried[:NUM_ROWS]:
        total = each.score.total
        counts = (total.substitutions, total.deletions, total.insertions)
        scales = (f"{value:g}" for value in each.scales.values())
        table.add_row(*scales, f"{100 * total.rate:.2f}", *(str(count) for count in counts))
    progress.console.print(table)
