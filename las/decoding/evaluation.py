"""Evaluation of a model on a split: teacher-forced loss, the hypotheses of a search, and their files and score."""

import functools
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from las.data import manifest
from las.data.augmentation.augmentation import Augmentation
from las.data.corpora.base import Corpus
from las.data.loader import Batch, Loader, augmentation_seed, drop_unknown_symbols
from las.data.manifest import Utterance
from las.data.sampler import DECODED, BatchSize, sequential
from las.data.tokenizers import Tokenizer
from las.decoding.base import Hypothesis, Recogniser, Search
from las.decoding.search import require_finite_scores
from las.nn.attention import diagnostics
from las.nn.attention.diagnostics import Alignment
from las.nn.losses import LabelSmoothedCrossEntropy, TrainingLoss
from las.nn.model import SpeechModel
from las.runtime import distributed, progress
from las.runtime.errors import first_of
from las.scoring import error_rates
from las.storage import atomic


class Decoded(NamedTuple):
    """The n-best list of one utterance, best first, never empty."""

    id: str
    hypotheses: list[Hypothesis]


class Evaluation(NamedTuple):
    """The results of a pass over a split; the first four are sums over tokens, end of sentence included."""

    cross_entropy: float
    """Cross-entropy in nats, without label smoothing."""
    correct: int
    tokens: int
    objective: float
    """The loss that training minimises; 0 where none was given."""
    decoded: list[Decoded]
    alignments: list[Alignment]
    """Teacher-forced alignments, one per utterance; none of a model without attention."""


@torch.no_grad()
def decode(model: SpeechModel, search: Search, batches: Iterable[tuple[int, Batch]]) -> Iterator[Decoded]:
    """Decode all utterances; yields their n-best lists, batch by batch."""
    model.eval()
    for _, batch in batches:
        batch = batch.to(model.device)
        inputs, num_states = model.search_inputs(batch.waveforms, batch.num_samples)
        nbest_lists = search(inputs, num_states)
        require_finite_scores(inputs, num_states, batch.ids, nbest_lists)
        for utterance_id, hypotheses in zip(batch.ids, nbest_lists, strict=True):
            yield Decoded(utterance_id, hypotheses)


@torch.no_grad()
def evaluate(
    model: SpeechModel, search: Search, batches: Iterable[tuple[int, Batch]], loss: TrainingLoss | None = None
) -> Evaluation:
    """Compute cross-entropy, hypotheses and, if it is given, a loss of a split; the listener runs once for all."""
    model.eval()
    cross_entropy_of = LabelSmoothedCrossEntropy()
    cross_entropy, correct, tokens, objective = 0.0, 0, 0, 0.0
    decoded: list[Decoded] = []
    alignments: list[Alignment] = []
    for _, batch in batches:
        batch = batch.to(model.device)
        output, inputs, num_states = model.output_and_search_inputs(batch)
        sums = cross_entropy_of(output.logits, batch.targets, batch.num_tokens)
        objective += float(loss.objective(model, output, batch)) if loss else 0.0
        cross_entropy += float(sums.cross_entropy)
        correct += int(sums.correct)
        tokens += int(sums.tokens)
        if (weights := getattr(output, "weights", None)) is not None:
            alignments += [
                diagnostics.measure(rows[: int(count) + 1, : int(states)])
                for rows, count, states in zip(weights, batch.num_tokens, num_states, strict=True)
            ]
        nbest_lists = search(inputs, num_states.to(model.device))
        decoded += [Decoded(name, hypotheses) for name, hypotheses in zip(batch.ids, nbest_lists, strict=True)]
    return Evaluation(cross_entropy, correct, tokens, objective, decoded, alignments)


@torch.no_grad()
def attention_weights(model: SpeechModel, batch: Batch) -> Tensor | None:
    """Teacher-forced attention weights of the first utterance of a batch, [tokens + 1, states], without padding.

    None for a model without attention.
    """
    output, _, num_states = model.eval().output_and_search_inputs(batch.to(model.device))
    weights: Tensor | None = getattr(output, "weights", None)
    return None if weights is None else weights[0, : int(batch.num_tokens[0]) + 1, : int(num_states[0])].cpu()


def entry(decoded: Decoded, tokens: Tokenizer, nbest: int) -> dict[str, Any]:
    """An utterance as JSON data: the best hypothesis, and the n-best list where `nbest` is above 1.

    `finished_by` is there if the search came to a dead end.
    """
    best = decoded.hypotheses[0]
    written = {"id": decoded.id, "text": tokens.decode(best.tokens), "score": round(best.score, 4)}
    if best.finished_by == "dead_end":
        written["finished_by"] = best.finished_by
    return written if nbest == 1 else written | {"nbest": [_listed(each, tokens) for each in decoded.hypotheses]}


def _listed(hypothesis: Hypothesis, tokens: Tokenizer) -> dict[str, Any]:
    return {
        "text": tokens.decode(hypothesis.tokens),
        "score": round(hypothesis.score, 4),
        "normalised_score": round(hypothesis.normalised_score, 4),
        "scores": {name: round(score, 4) for name, score in hypothesis.scores.items()},
        "finished_by": hypothesis.finished_by,
    }


def texts(decoded: Iterable[Decoded], tokens: Tokenizer) -> dict[str, str]:
    """The text of the best hypothesis of each utterance, by id."""
    return {each.id: tokens.decode(each.hypotheses[0].tokens) for each in decoded}


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
    _say_dead_ends([entry["id"] for entry in entries if entry.get("finished_by") == "dead_end"])
    write_lines(output, [json.dumps(entry, ensure_ascii=False) for entry in entries])
    return corpus.score(split, utterances, {entry["id"]: entry["text"] for entry in entries})


def _say_dead_ends(names: list[str]) -> None:
    """Name the utterances in which no path reached the end: words that they lack count as deletions."""
    if names:
        progress.say(
            f"{len(names)} of the utterances came to a dead end, where no path reaches the end of a sentence within "
            f"the beam; words that they lack count as deletions: {first_of(names, 20)}"
        )


def write_references(folder: Path, split: str, utterances: list[Utterance]) -> None:
    """Write a split's utterances beside its hypotheses, for `las runs compare=` and `las score`."""
    by_id = sorted(utterances, key=lambda utterance: utterance.id)
    if distributed.is_main():
        manifest.write(folder / f"references.{split}.jsonl", [replace(each, alignment=()) for each in by_id])


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file of lines; of several processes only the main one writes."""
    if distributed.is_main():
        atomic.write(path, (line + "\n" for line in lines))
