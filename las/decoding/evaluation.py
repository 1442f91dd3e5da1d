"""Evaluation of a model on a split: the hypotheses of a search, their files and their score."""

import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from las.config.build import build
from las.config.groups import check_names
from las.data import manifest
from las.data.augmentation.augmentation import Augmentation
from las.data.corpora.base import Corpus
from las.data.loader import DECODED, Batch, BatchSize, Loader, augmentation_seed, drop_unknown_symbols, sequential
from las.data.manifest import Utterance
from las.data.tokenizers import Tokenizer
from las.decoding.base import Hypothesis, Recogniser, Search
from las.decoding.search import require_finite_scores
from las.nn.kernels.cpp.prepacked import PrepackedWeights
from las.nn.model import SpeechModel
from las.runtime import distributed, progress
from las.runtime.errors import ConfigError, first_of
from las.scoring import confidence, error_rates
from las.storage import atomic
from las.storage.checkpoint import config_of


class Decoded(NamedTuple):
    """The n-best list of one utterance, best first, never empty."""

    id: str
    hypotheses: list[Hypothesis]


def decode(
    model: SpeechModel,
    search: Search,
    batches: Iterable[tuple[int, Batch]],
    weights: PrepackedWeights | None = None,
) -> Iterator[Decoded]:
    """Decode all utterances; yields their n-best lists, batch by batch. `weights` are those that calls before kept."""
    return (found for (found,) in decode_by_each(model, [search], batches, weights))


@torch.no_grad()
def decode_by_each(
    model: SpeechModel,
    searches: Sequence[Search],
    batches: Iterable[tuple[int, Batch]],
    weights: PrepackedWeights | None = None,
) -> Iterator[tuple[Decoded, ...]]:
    """Decode all utterances, which are encoded once, by several searches; yields what each found, as `decode` does."""
    model.eval()
    weights = weights or PrepackedWeights(model)
    for _, batch in batches:
        batch = batch.to(model.device)
        with weights.used():
            inputs, num_states = model.search_inputs(batch.waveforms, batch.num_samples)
            found = [search(inputs, num_states) for search in searches]
        for nbest_lists in found:
            require_finite_scores(inputs, num_states, batch.ids, nbest_lists)
        yield from zip(*(itertools.starmap(Decoded, zip(batch.ids, each, strict=True)) for each in found), strict=True)


@torch.no_grad()
def attention_weights(model: SpeechModel, batch: Batch) -> Tensor | None:
    """Teacher-forced attention weights of the first utterance of a batch, [tokens + 1, states], without padding.

    None for a model without attention.
    """
    output, _, num_states = model.eval().output_and_search_inputs(batch.to(model.device))
    weights: Tensor | None = getattr(output, "weights", None)
    return None if weights is None else weights[0, : int(batch.num_tokens[0]) + 1, : int(num_states[0])].cpu()


def entry(decoded: Decoded, tokens: Tokenizer, nbest: int, temperature: float = 1.0) -> dict[str, Any]:
    """Return an utterance as JSON data: the best hypothesis, and where `nbest` is above 1 the n-best list with the
    confidences that follow from it, those of words at a temperature (`las.scoring.confidence`).

    `finished_by` is there if the search came to a dead end.
    """
    best = decoded.hypotheses[0]
    written = {"id": decoded.id, "text": tokens.decode(best.tokens), "score": round(best.score, 4)}
    if best.finished_by == "dead_end":
        written["finished_by"] = best.finished_by
    listed = [
        {
            "text": tokens.decode(each.tokens),
            "score": round(each.score, 4),
            "normalised_score": round(each.normalised_score, 4),
            "scores": {name: round(score, 4) for name, score in each.scores.items()},
            "finished_by": each.finished_by,
        }
        for each in decoded.hypotheses
    ]
    return written if nbest == 1 else with_confidences(written | {"nbest": listed}, temperature)


def with_confidences(written: dict[str, Any], temperature: float) -> dict[str, Any]:
    """Return an utterance with an n-best list with the confidences of its first text and of the words of it."""
    listed = written.pop("nbest")
    texts = [str(each["text"]) for each in listed]
    probabilities = confidence.posteriors([each["score"] for each in listed])
    sure = confidence.of_words(texts, probabilities, temperature)
    same = sum(each for text, each in zip(texts, probabilities, strict=True) if text == texts[0])
    return written | {
        "confidence": round(min(same, 1.0), 4),
        "entropy": round(confidence.entropy(probabilities), 4),
        "words": [
            {"text": word, "confidence": round(each, 4)} for word, each in zip(texts[0].split(), sure, strict=True)
        ],
        "nbest": listed,
    }


class Condition(NamedTuple):
    """Condition that a split is decoded in: its waveforms are distorted by the draws for a seed and their ids.

    Babble is mixed from the training utterances.
    """

    augment: Augmentation
    seed: int
    train: list[Utterance]


def decode_split(
    recogniser: Recogniser,
    corpus: Corpus,
    split: str,
    utterances: list[Utterance],
    output: Path,
    size: BatchSize = DECODED,
    condition: Condition | None = None,
) -> error_rates.Score:
    """Decode a split in batches, write one line per utterance (`entry`), and score it.

    Processes take the batches in turn; all have the score, and the main one writes.
    """
    tokens = recogniser.tokens
    augment, key_of, babble = None, None, None
    if condition is not None:
        augment, key_of = condition.augment, functools.partial(augmentation_seed, condition.seed, 0)
        babble = Loader(condition.train, tokens, corpus.sample_rate)
    texts_known = drop_unknown_symbols(utterances, tokens)
    loader = Loader(texts_known, tokens, corpus.sample_rate, augment=augment, babble=babble)
    batches = loader.batches(distributed.share(sequential(utterances, size)), 0, key_of)
    own = [*recogniser.recognise(batches)]
    entries = sorted(itertools.chain.from_iterable(distributed.gather(own)), key=lambda entry: entry["id"])
    if dead_ends := [entry["id"] for entry in entries if entry.get("finished_by") == "dead_end"]:
        progress.say(
            f"{len(dead_ends)} of the utterances came to a dead end, where no path reaches the end of a sentence "
            f"within the beam; words that they lack count as deletions: {first_of(dead_ends, 20)}"
        )
    write_lines(output, [json.dumps(entry, ensure_ascii=False) for entry in entries])
    return corpus.score(split, utterances, {entry["id"]: entry["text"] for entry in entries})


def corpus_of(checkpoint: Path, split: str | None) -> tuple[Corpus, str]:
    """Return the corpus that a checkpoint was trained on, and the split's name: the first one to evaluate on for None.

    Neither parameters nor audio are read. Raises ConfigError for a split that the corpus lacks, and for a bundle, which
    has no corpus.
    """
    config = config_of(checkpoint)
    if "corpus" not in config:
        raise ConfigError(
            f"{checkpoint} is a bundle, which has no corpus: give recordings (audio=...), or a run folder"
        )
    check_names(config)
    corpus: Corpus = build(config["corpus"], where="corpus")
    return corpus, corpus.known_split(split or corpus.splits[1])


def write_references(folder: Path, split: str, utterances: list[Utterance]) -> None:
    """Write a split's utterances beside its hypotheses, for `las runs compare=` and `las score`."""
    by_id = sorted(utterances, key=lambda utterance: utterance.id)
    if distributed.is_main():
        manifest.write(folder / f"references.{split}.jsonl", [replace(each, alignment=()) for each in by_id])


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file of lines; of several processes only the main one writes."""
    if distributed.is_main():
        atomic.write(path, (line + "\n" for line in lines))
