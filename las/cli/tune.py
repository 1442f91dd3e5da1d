"""The verb `tune`: weights of scorers and the length normalisation that make the fewest errors on a split.

The listener encodes the split once; every combination then searches the same encoded states.
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


def tune(overrides: list[str]) -> list[Tried]:
    """Print the table of all combinations, best first, and keep the best for `search=tuned`: see configs/tune.yaml."""
    config = compose("tune", overrides)
    size = BatchSize.from_config(config)
    check_value("strict", config["strict"], bool)
    search = build(config["search"], where="search")
    if not isinstance(search, BeamSearch):
        raise ConfigError("tune needs a beam search with scorers: search=beam_lm or search=beam_ctc_lm")
    points = grid(config["weights"], config["length_normalisation"], search)
    tuned_path = tuned_search.path_of(Path(config["checkpoint"]))
    atomic.require_place(Path(config["output"] or tuned_path))
    if config["output"] is not None:
        check_output(Path(config["output"]))
    with rnn.use_kernel(str(config["kernel"])):
        device = str(devices.pick(config["device"]))
        transcriber = load(config["checkpoint"], search, device, strict=config["strict"])
        corpus: Corpus = build(transcriber.config["corpus"], where="corpus")
        split = corpus.known_split(config["split"] or corpus.splits[1])
        utterances = data_preparation.prepared(corpus, config["data_dir"])[split]
        searches = [with_weights(search, point) for point in points]
        texts = decode_split(transcriber, searches, utterances, size, corpus)
    tried = [
        Tried(point, corpus.score(split, utterances, hypotheses))
        for point, hypotheses in zip(points, texts, strict=True)
    ]
    tried.sort(key=lambda result: result.score.total.rate)  # stable: of equals, the one that was given first
    test_set = f"{corpus.name} {split}: {len(utterances)} utterances"
    print_table(tried, test_set, corpus.metric)
    best, errors = reweighted(config["search"], tried[0].point), error_rates.line(tried[0].score, corpus.metric)
    if config["output"] is not None:
        atomic.write(Path(config["output"]), card(best, errors))
        progress.say(f"the best is written to {config['output']}")
    else:
        atomic.write_json(tuned_path, {"tuned_on": test_set, "errors": errors, "search": best})
        progress.say(f"the best is written to {tuned_path}")
        progress.say(f"next:  las decode checkpoint={config['checkpoint']} split={corpus.splits[-1]} search=tuned")
    return tried


def grid(weights: Mapping[str, Any], exponents: Any, search: BeamSearch) -> list[Point]:
    """All combinations. Raises ConfigError for a scorer that the search lacks and for values that are no weights."""
    lists = {name: values for name, values in weights.items() if values is not None}
    for name, values in {**lists, "length_normalisation": exponents}.items():
        key = name if name == "length_normalisation" else f"weights.{name}"
        check_value(key, values, list[float])
        if not values or (name != "length_reward" and min(values) < 0):
            raise ConfigError(f"{key}={values} should list values of 0 or more, for example [0.0,0.1,0.3]")
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
        with_weights(search, point)  # raises for weights that do not fit together, before anything is decoded
    return points


def with_weights(search: BeamSearch, point: Point) -> BeamSearch:
    """A search with the weights of a point."""
    return search.reweighted(point.weights, point.length_normalisation)


@torch.no_grad()
def decode_split(
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
    texts_by_search: list[dict[str, str]] = [{} for _ in searches]
    description = f"{len(searches)} combinations, batches decoded"
    loaded: Iterator[tuple[int, Batch]] = loader.batches(order)
    for _, batch in progress.counted(loaded, len(order), description):
        on_device = batch.to(model.device)
        decoder, num_states = model.decoder(on_device.waveforms, on_device.num_samples)
        for search, texts in zip(searches, texts_by_search, strict=True):
            for name, hypotheses in zip(batch.ids, search(decoder, num_states), strict=True):
                texts[name] = tokens.decode(hypotheses[0].tokens)
    return texts_by_search


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


def card(search: Config, errors: str) -> str:
    """A config of the group configs/search."""
    return "\n".join([f"{FIRST_LINE}: {errors}", *_lines(search)]) + "\n"


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
        raise ConfigError(
            f"output={path}: this file was not written by las tune, so it is not replaced. Name another file"
        )
