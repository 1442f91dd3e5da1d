"""Trials of searches on a split, and the best one kept: what the verb `tune` does for searches of any kind.

The listener encodes the split once; every search then searches the same encoded states.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from las.config.build import Config, build, check_value
from las.data.corpora.base import Corpus
from las.data.loader import Batch, Loader, drop_unknown_symbols
from las.data.manifest import Utterance
from las.data.sampler import BatchSize, sequential
from las.decoding import tuned_search
from las.decoding.base import Search
from las.decoding.transcriber import Transcriber, load
from las.nn import rnn
from las.runtime import distributed, progress
from las.runtime.errors import ConfigError
from las.scoring import error_rates
from las.scoring.error_rates import Score
from las.storage import atomic
from las.training import data_preparation

FIRST_LINE = "# Written by las tune"


class Trials(NamedTuple):
    """The errors of each search on a split, in the order of the searches."""

    corpus: Corpus
    test_set: str
    scores: list[Score]


def check(config: Config) -> None:
    """Check what tuning needs before anything is decoded. Raises ConfigError or StorageError naming the key."""
    BatchSize.from_config(config)
    check_value("strict", config["strict"], bool)
    atomic.require_place(Path(config["output"] or tuned_search.path_of(Path(config["checkpoint"]))))
    if config["output"] is not None:
        check_output(Path(config["output"]))


def run(config: Config, device: torch.device, search: Search, variants: Callable[[], Sequence[Search]]) -> Trials:
    """Decode and score a split of the checkpoint's corpus with the variants of a search, which is bound before.

    Processes take the batches in turn.
    """
    with rnn.use_kernel(str(config["kernel"])):
        with distributed.main_first():
            transcriber = load(
                config["checkpoint"], search, str(device), strict=config["strict"], precision=config["precision"]
            )
        corpus: Corpus = build(transcriber.config["corpus"], where="corpus")
        split = corpus.known_split(config["split"] or corpus.splits[1])
        with distributed.main_first():
            utterances = data_preparation.prepared(corpus, config["data_dir"])[split]
        texts = decode_split(transcriber, variants(), utterances, BatchSize.from_config(config), corpus)
    test_set = f"{corpus.name} {split}: {len(utterances)} utterances"
    return Trials(corpus, test_set, [corpus.score(split, utterances, hypotheses) for hypotheses in texts])


def keep(config: Config, best: Config, score: Score, trials: Trials) -> None:
    """Write the section of the best search as a card, or into the run folder, and say how to decode with it.

    Only the main process does.
    """
    if not distributed.is_main():
        return
    errors = error_rates.line(score, trials.corpus.metric)
    if config["output"] is not None:
        atomic.write(Path(config["output"]), card(best, errors))
        progress.say(f"the best is written to {config['output']}")
        return
    path = tuned_search.path_of(Path(config["checkpoint"]))
    atomic.write_json(path, {"tuned_on": trials.test_set, "errors": errors, "search": best})
    progress.say(f"the best is written to {path}")
    split = trials.corpus.splits[-1]
    progress.say(f"next:  las decode checkpoint={config['checkpoint']} split={split} search=tuned")


@torch.no_grad()
def decode_split(
    transcriber: Transcriber,
    searches: Sequence[Search],
    utterances: list[Utterance],
    size: BatchSize,
    corpus: Corpus,
) -> list[dict[str, str]]:
    """The hypotheses of each search, as texts by utterance, decoded by all processes."""
    model, tokens = transcriber.model.eval(), transcriber.tokens
    loader = Loader(drop_unknown_symbols(utterances, tokens), tokens, corpus.sample_rate)
    order = distributed.share(sequential(utterances, size))
    texts_by_search: list[dict[str, str]] = [{} for _ in searches]
    description = f"{len(searches)} combinations, batches decoded"
    loaded: Iterator[tuple[int, Batch]] = loader.batches(order)
    for _, batch in progress.counted(loaded, len(order), description):
        on_device = batch.to(model.device)
        decoder, num_states = model.decoder(on_device.waveforms, on_device.num_samples)
        for search, texts in zip(searches, texts_by_search, strict=True):
            for name, hypotheses in zip(batch.ids, search(decoder, num_states), strict=True):
                texts[name] = tokens.decode(hypotheses[0].tokens)
    shares = distributed.gather(texts_by_search)
    return [dict(itertools.chain.from_iterable(part.items() for part in parts)) for parts in zip(*shares, strict=True)]


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
