"""Evaluation of a model on a split: teacher-forced loss, and the hypotheses of a search."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from las.data.loader import Batch
from las.data.tokenizers import Tokenizer
from las.decoding.base import Hypothesis, Search
from las.nn.attention import diagnostics
from las.nn.attention.diagnostics import Alignment
from las.nn.losses import LabelSmoothedCrossEntropy
from las.nn.model import Decoder, ListenAttendSpell
from las.nn.trainable import SpeechModel


class Decoded(NamedTuple):
    """The n-best list of one utterance, best first, never empty."""

    id: str
    hypotheses: list[Hypothesis]


class Evaluation(NamedTuple):
    """The results of a pass over a split; the first three are sums over tokens, end of sentence included."""

    cross_entropy: float
    """Cross-entropy in nats, without label smoothing."""
    correct: int
    tokens: int
    decoded: list[Decoded]
    alignments: list[Alignment]
    """Teacher-forced alignments, one per utterance."""


@torch.no_grad()
def decode(model: SpeechModel, search: Search, batches: Iterable[tuple[int, Batch]]) -> Iterator[Decoded]:
    """Decode all utterances; yields their n-best lists, batch by batch."""
    model.eval()
    for _, batch in batches:
        batch = batch.to(model.device)
        decoder, num_states = model.decoder(batch.waveforms, batch.num_samples)
        for utterance_id, hypotheses in zip(batch.ids, search(decoder, num_states), strict=True):
            yield Decoded(utterance_id, hypotheses)


@torch.no_grad()
def evaluate(
    model: ListenAttendSpell,
    search: Search,
    batches: Iterable[tuple[int, Batch]],
) -> Evaluation:
    """Compute cross-entropy and hypotheses of a split; the listener runs once for both."""
    model.eval()
    loss = LabelSmoothedCrossEntropy()
    cross_entropy, correct, tokens = 0.0, 0, 0
    decoded: list[Decoded] = []
    alignments: list[Alignment] = []
    for _, batch in batches:
        batch = batch.to(model.device)
        memory, num_states = model.listen(batch.waveforms, batch.num_samples)
        spelling = model.speller(memory, batch.targets)
        sums = loss(spelling.logits, batch.targets, batch.num_tokens)
        cross_entropy += float(sums.cross_entropy)
        correct += int(sums.correct)
        tokens += int(sums.tokens)
        alignments += [
            diagnostics.measure(weights[: int(count) + 1, : int(states)])
            for weights, count, states in zip(spelling.weights, batch.num_tokens, num_states, strict=True)
        ]
        nbest_lists = search(Decoder(model.speller, memory, model.ctc), num_states.to(model.device))
        decoded += [Decoded(name, hypotheses) for name, hypotheses in zip(batch.ids, nbest_lists, strict=True)]
    return Evaluation(cross_entropy, correct, tokens, decoded, alignments)


@torch.no_grad()
def attention_weights(model: ListenAttendSpell, batch: Batch) -> Tensor:
    """Teacher-forced attention weights of the first utterance of a batch, [tokens + 1, states], without padding."""
    model.eval()
    batch = batch.to(model.device)
    spelling = model(batch.waveforms[:1], batch.num_samples[:1], batch.targets[:1])
    states = int(model.num_states(batch.num_samples[:1]))
    return spelling.weights[0, : int(batch.num_tokens[0]) + 1, :states].cpu()


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
