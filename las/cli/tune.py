"""The verb `tune`: the weights or scales of a search that make the fewest errors on a split, kept for `search=tuned`.

The listener encodes the split once; every combination then searches the same encoded states.
"""

import copy
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.table import Table

from las.config.build import Config, build, check_value, check_values, compose
from las.data.corpora.base import Corpus
from las.data.loader import BatchSize, Loader, drop_unknown_symbols, sequential
from las.data.manifest import Utterance
from las.decoding import evaluation, tuned_search
from las.decoding.base import Search
from las.decoding.search import BeamSearch
from las.decoding.transcriber import Transcriber, load
from las.nn.kernels import choice
from las.runtime import devices, distributed, progress
from las.runtime.errors import ConfigError
from las.scoring import error_rates
from las.scoring.error_rates import Score
from las.storage import atomic
from las.training import data_preparation

LANGUAGE_MODELS = ("lm", "second_lm", "word_lm")
LENGTH = "length_normalisation"
INSERTIONS = {"las.PhoneBigramSearch": "insertion", "las.WordGraphSearch": "word_insertion"}
"""Searches that have scales, and what each calls the score of every phone or word, `scales.insertion`."""
MOUNTED = ("length_reward", "coverage")
"""Scorers that configs/tune.yaml adds to any search; those with scales have none."""
NUM_ROWS = 20
"""The number of best rows printed of a table; the best without a language model is added."""
FIRST_LINE = "# Written by las tune"

Point = dict[str, float]
"""One combination: a value for each tuned scorer (0 leaves it out) and the length normalisation, or for each scale."""


class Tried(NamedTuple):
    """A combination and the errors of its hypotheses."""

    point: Point
    score: Score


class Trials(NamedTuple):
    """The errors of each search on a split, in the order of the searches."""

    corpus: Corpus
    test_set: str
    scores: list[Score]


def tune(overrides: list[str]) -> list[Tried]:
    """Print the table of all combinations, best first, and keep the best for `search=tuned`: see configs/tune.yaml.

    Started by `torchrun`, the processes share the split.
    """
    config = compose("tune", overrides)
    section: Config = config["search"]
    vary: Callable[[Any, Point], Search]
    if section["_target_"] in INSERTIONS:
        section = {key: value for key, value in section.items() if key not in MOUNTED}
        search = build(section, where="search")
        points = scale_grid(config["scales"], INSERTIONS[section["_target_"]])
        sections, vary = [{**section, **point} for point in points], with_scales
    else:
        search = build(section, where="search")
        points = weight_grid(config["weights"], config[LENGTH], search)
        sections, vary = [_reweighted(section, point) for point in points], with_weights
    for each in sections:
        build(each, where="search")  # raises before anything is decoded
    _check(config)
    corpus, split = evaluation.corpus_of(Path(config["checkpoint"]), config["split"])
    with distributed.process_group(devices.pick(config["device"])) as device, distributed.only_main_prints():
        trials = _run(config, device, corpus, split, search, lambda: [vary(search, point) for point in points])
        # stable: of equals, the one that was given first
        order = sorted(range(len(points)), key=lambda number: trials.scores[number].total.rate)
        tried = [Tried(points[number], trials.scores[number]) for number in order]
        print_table(tried, trials.test_set, trials.corpus.metric)
        _keep(config, sections[order[0]], tried[0].score, trials)
    return tried


def weight_grid(weights: Mapping[str, Any], exponents: Any, search: Search) -> list[Point]:
    """All combinations of weights of a search's scorers and exponents of the length.

    Raises ConfigError for a search without scorers, a scorer that it lacks and values that are no lists of numbers.
    """
    if not isinstance(search, BeamSearch):
        raise ConfigError(
            "tune needs a beam search with scorers: search=beam_lm or search=beam_ctc_lm; for an acoustic model "
            "search=phone_bigram, or for words search=word_graph"
        )
    given = lists(weights, "weights.")
    lists({LENGTH: exponents}, "")
    for name in given.keys() - search.components.scorers.keys():
        raise ConfigError(
            f"weights.{name}: the search has no such scorer: leave it out (weights.{name}=null), or add it "
            "(configs/scorer has them, search=beam_lm and search=beam_ctc_lm have language models)"
        )
    return [
        {**dict(zip(given, map(float, chosen), strict=True)), LENGTH: float(exponent)}
        for exponent, *chosen in itertools.product(exponents, *given.values())
    ]


def scale_grid(scales: Mapping[str, Any], insertion: str) -> list[Point]:
    """All combinations of the scales that have a list; `insertion` is the search's name of that scale.

    Raises ConfigError for values that are no lists of numbers.
    """
    given = lists(scales, "scales.")
    names = [insertion if name == "insertion" else name for name in given]
    return [dict(zip(names, map(float, chosen), strict=True)) for chosen in itertools.product(*given.values())]


def lists(values: Mapping[str, Any], section: str) -> dict[str, list[float]]:
    """Return the lists of a section that are not null. Raises ConfigError for what is no list of numbers."""
    given = {name: listed for name, listed in values.items() if listed is not None or not section}
    for name, listed in given.items():
        check_value(f"{section}{name}", listed, list[float])
        if not listed:
            raise ConfigError(f"{section}{name}=[] should list values, for example [0.0,0.1,0.3]")
    return given


def with_weights(search: BeamSearch, point: Point) -> BeamSearch:
    """Return a search with the weights of a point."""
    return search.reweighted({name: value for name, value in point.items() if name != LENGTH}, point[LENGTH])


def with_scales(search: Search, point: Point) -> Search:
    """Return a search with other scales, and the graph of the given one."""
    changed = copy.copy(search)
    for name, value in point.items():
        setattr(changed, name, value)
    return changed


def _reweighted(search: Config, point: Point) -> Config:
    """Return the section of a search with the weights of a point, without scorers of weight 0."""
    chosen = {**search, LENGTH: point[LENGTH]}
    for name, weight in point.items():
        if name != LENGTH:
            chosen[name] = {**search[name], "weight": weight}
            if not weight:
                del chosen[name]
    return chosen


def _check(config: Config) -> None:
    """Check what tuning needs before anything is decoded. Raises ConfigError or StorageError naming the key."""
    BatchSize.from_config(config)
    check_values(config, {"strict": bool, "ensemble": Sequence[str] | str, "ensemble_mean": str})
    if config["ensemble"] and config["output"] is None:
        raise ConfigError(
            "ensemble: a run folder keeps the search of its own model alone: output=configs/search/mine.yaml keeps "
            "that of several, for search=mine"
        )
    output = Path(config["output"] or tuned_search.path_of(Path(config["checkpoint"])))
    atomic.require_place(output)
    if config["output"] is None or not output.exists():
        return
    with output.open(encoding="utf-8", errors="replace") as file:
        if file.read(len(FIRST_LINE)) != FIRST_LINE:
            raise ConfigError(
                f"output={output}: this file was not written by las tune, so it is not replaced. Name another file"
            )


def _run(
    config: Config,
    device: torch.device,
    corpus: Corpus,
    split: str,
    search: Search,
    variants: Callable[[], Sequence[Search]],
) -> Trials:
    """Decode and score a split with the variants of a search, which is bound before.

    Processes take the batches in turn.
    """
    with choice.use_kernel(str(config["kernel"])):
        with distributed.main_first():
            options = {key: config[key] for key in ("strict", "precision", "ensemble", "ensemble_mean")}
            transcriber = load(config["checkpoint"], search, str(device), **options)
        with distributed.main_first():
            utterances = data_preparation.prepared(corpus, config["data_dir"])[split]
        texts = _decode(transcriber, variants(), utterances, BatchSize.from_config(config), corpus)
    test_set = f"{corpus.name} {split}: {len(utterances)} utterances"
    return Trials(corpus, test_set, [corpus.score(split, utterances, hypotheses) for hypotheses in texts])


def _decode(
    transcriber: Transcriber,
    searches: Sequence[Search],
    utterances: list[Utterance],
    size: BatchSize,
    corpus: Corpus,
) -> list[dict[str, str]]:
    """Return the hypotheses of each search, as texts by utterance, decoded by all processes."""
    tokens = transcriber.tokens
    loader = Loader(drop_unknown_symbols(utterances, tokens), tokens, corpus.sample_rate)
    order = distributed.share(sequential(utterances, size))
    texts_by_search: list[dict[str, str]] = [{} for _ in searches]
    description = f"{len(searches)} combinations, batches decoded"
    batches = progress.counted(loader.batches(order), len(order), description)
    for found in evaluation.decode_by_each(transcriber.model, searches, batches, transcriber.weights):
        for texts, decoded in zip(texts_by_search, found, strict=True):
            texts[decoded.id] = tokens.decode(decoded.hypotheses[0].tokens)
    shares = distributed.gather(texts_by_search)
    return [dict(itertools.chain.from_iterable(part.items() for part in parts)) for parts in zip(*shares, strict=True)]


def print_table(tried: Sequence[Tried], title: str, metric: str) -> None:
    """Return the best combinations, and the best one without a language model where some have one."""
    table = Table(title=f"{title}, {len(tried)} combinations")
    names = ["length_^" if name == LENGTH else name for name in tried[0].point]
    for heading in (*names, f"{error_rates.SHORT_NAMES[metric]} %", "sub", "del", "ins"):
        table.add_column(heading.replace("_", "\n"), justify="right", no_wrap=True)
    table.add_column()  # wraps on a narrow terminal, so that no number is cut off
    has_lm = [any(each.point.get(name) for name in LANGUAGE_MODELS) for each in tried]
    without = has_lm.index(False) if LENGTH in tried[0].point and not all(has_lm) else None
    for place in sorted({*range(min(NUM_ROWS, len(tried))), *([] if without is None else [without])}):
        point, total = tried[place].point, tried[place].score.total
        notes = ["best"] * (place == 0) + ["best without lm"] * (place == without)
        table.add_row(
            *(f"{value:g}" for value in point.values()),
            f"{100 * total.rate:.2f}",
            *(str(count) for count in (total.substitutions, total.deletions, total.insertions)),
            ", ".join(notes),
        )
    progress.console.print(table)


def _keep(config: Config, best: Config, score: Score, trials: Trials) -> None:
    """Write the section of the best search as an option of configs/search, or into the run folder.

    Only the main process does.
    """
    if not distributed.is_main():
        return
    errors = error_rates.line(score, trials.corpus.metric)
    if config["output"] is not None:
        atomic.write(Path(config["output"]), "\n".join([f"{FIRST_LINE}: {errors}", *_yaml(best)]) + "\n")
        progress.say(f"the best is written to {config['output']}")
        return
    path = tuned_search.path_of(Path(config["checkpoint"]))
    atomic.write_json(path, {"tuned_on": trials.test_set, "errors": errors, "search": best})
    progress.say(f"the best is written to {path}")
    split = trials.corpus.splits[-1]
    progress.say(f"next:  las decode checkpoint={config['checkpoint']} split={split} search=tuned")


def _yaml(section: Config, indent: str = "") -> Iterator[str]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _yaml(value, indent + "  ")
        else:
            yield f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}"
