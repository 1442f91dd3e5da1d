"""The verb `tune`: weights of scorers and the length normalisation that make the fewest errors on a split.

The listener hears the split once; every combination then searches what it made of it.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.table import Table

from las.data.corpora.base import Corpus
from las.data.loader import Batch, Loader, drop_unknown_symbols
from las.data.manifest import Utterance
from las.data.sampler import BatchSize, sequential
from las.decoding import tuned_search
from las.decoding.search import BeamSearch
from las.decoding.transcriber import Transcriber, load
from las.nn import rnn
from las.runtime import devices, progress
from las.runtime.config import Config, build, check_value, compose
from las.runtime.errors import ConfigError
from las.scoring import error_rates
from las.scoring.error_rates import Score
from las.storage import atomic
from las.training import data_preparation

LANGUAGE_MODELS = ("lm", "second_lm", "word_lm")
FIRST_LINE = "# Written by las tune"
NUM_ROWS = 20
"""The number of best rows printed of a table; the best without a language model is added."""


class Point(NamedTuple):
    """One combination: a weight for each scorer that is tried, 0 leaves it out."""

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


def tune(overrides: list[str]) -> list[Tried]:
    """Print the table of all combinations, best first, and keep the best for `search=tuned`: see configs/tune.yaml."""
    config = compose("tune", overrides)
    size = BatchSize.of(config)
    check_value("strict", config["strict"], bool)
    search = build(config["search"], where="search")
    if not isinstance(search, BeamSearch):
        raise ConfigError("tune needs a beam search with scorers: search=beam_lm or search=beam_ctc_lm")
    points = grid(config["weights"], config["length_normalisation"], search)
    kept = tuned_search.path_of(Path(config["checkpoint"]))
    atomic.require_place(Path(config["output"] or kept))
    if config["output"] is not None:
        check_output(Path(config["output"]))
    with rnn.use_kernel(str(config["kernel"])):
        device = str(devices.pick(config["device"]))
        transcriber = load(config["checkpoint"], search, device, strict=config["strict"])
        corpus: Corpus = build(transcriber.config["corpus"], where="corpus")
        split = corpus.known_split(config["split"] or corpus.splits[1])
        utterances = data_preparation.prepared(corpus, config["data_dir"])[split]
        texts = heard(transcriber, [of(search, point) for point in points], utterances, size, corpus)
    tried = [Tried(point, corpus.score(split, utterances, each)) for point, each in zip(points, texts, strict=True)]
    tried.sort(key=lambda each: each.score.total.rate)  # of equals, the one that was given first
    what = f"{corpus.name} {split}: {len(utterances)} utterances"
    print_table(tried, what, corpus.metric)
    best, errors = reweighted(config["search"], tried[0].point), error_rates.line(tried[0].score, corpus.metric)
    if config["output"] is not None:
        atomic.write(Path(config["output"]), card(best, errors))
        progress.say(f"the best is written to {config['output']}")
    else:
        atomic.write_json(kept, {"tuned_on": what, "errors": errors, "search": best})
        progress.say(f"the best is written to {kept}")
        progress.say(f"next:  las decode checkpoint={config['checkpoint']} split={corpus.splits[-1]} search=tuned")
    return tried


def grid(weights: Mapping[str, Any], exponents: Any, search: BeamSearch) -> list[Point]:
    """All combinations. Raises ConfigError for a scorer that the search lacks and for values that are no weights."""
    lists = {name: values for name, values in weights.items() if values is not None}
    for name, values in {**lists, "length_normalisation": exponents}.items():
        where = name if name == "length_normalisation" else f"weights.{name}"
        check_value(where, values, list[float])
        if not values or (name != "length_reward" and min(values) < 0):
            raise ConfigError(f"{where}={values} should list values of 0 or more, for example [0.0,0.1,0.3]")
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
        of(search, point)  # raises for weights that do not fit together, before anything is heard
    return points


def of(search: BeamSearch, point: Point) -> BeamSearch:
    """A search with the weights of a point."""
    return search.reweighted(point.weights, point.length_normalisation)


@torch.no_grad()
def heard(
    transcriber: Transcriber,
    searches: Sequence[BeamSearch],
    utterances: list[Utterance],
    size: BatchSize,
    corpus: Corpus,
) -> list[dict[str, str]]:
    """The hypotheses of each search, as texts by utterance."""
    model, tokens = transcriber.model.eval(), transcriber.tokens
    loader = Loader(drop_unknown_symbols(utterances, tokens), tokens, corpus.sample_rate)
    order = sequential(utterances, size)
    found: list[dict[str, str]] = [{} for _ in searches]
    what = f"{len(searches)} combinations, batches heard"
    loaded: Iterator[tuple[int, Batch]] = loader.batches(order)
    for _, batch in progress.counted(loaded, len(order), what):
        here = batch.to(model.device)
        decoder, num_states = model.decoder(here.waveforms, here.num_samples)
        for search, texts in zip(searches, found, strict=True):
            for name, hypotheses in zip(batch.ids, search(decoder, num_states), strict=True):
                texts[name] = tokens.decode(hypotheses[0].tokens)
    return found


def print_table(tried: Sequence[Tried], title: str, metric: str) -> None:
    """The best combinations, and the best one without a language model if that is not among them."""
    names = list(tried[0].point.weights)
    table = Table(title=f"{title}, {len(tried)} combinations")
    for heading in (*names, "length_^", f"{error_rates.SHORT_NAMES[metric]} %", "sub", "del", "ins"):
        table.add_column(heading.replace("_", "\n"), justify="right", no_wrap=True)
    table.add_column()  # it may take lines, so that no number is cut off where there is little room
    without = next((place for place, each in enumerate(tried) if not each.point.has_lm), None)
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


def card(search: Config, found: str) -> str:
    """A config of the group configs/search."""
    return "\n".join([f"{FIRST_LINE}: {found}", *_lines(search)]) + "\n"


def _lines(section: Config, indent: str = "") -> Iterator[str]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}"


def check_output(path: Path) -> None:
    """Raise ConfigError rather than replace a file that was written by somebody else."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        beginning = file.read(len(FIRST_LINE))
    if beginning != FIRST_LINE:
        raise ConfigError(f"output={path}: this file was not written by las tune, and is not replaced. Name another")
