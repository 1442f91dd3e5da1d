"""Connectionist temporal classification (Graves et al. 2006), alone or next to a speller (Kim et al. 2017).

A linear layer on every encoded state gives log-probabilities of the tokens and of the blank, which is id 0: the
sentence boundary never occurs inside a sentence, so its id is free. The loss is

    -log p(tokens | states) = -log sum over alignments of the tokens of prod_s p_s(path_s)

Next to a speller it drives the listener towards a monotonic alignment, which attention alone has to learn.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.config.build import require
from las.nn.dropout import Dropout
from las.nn.normalisation import Lengths
from las.runtime.errors import ConfigError

BLANK = 0


class CTCOutput(NamedTuple):
    """CTC log-probabilities of every encoded state, and the number of states of each utterance."""

    log_probs: Float[Tensor, "batch states vocab"]
    num_states: Lengths


class CTC(nn.Module):
    """A linear layer from encoded states to log-probabilities of tokens and blank.

    Args:
        value_size: size of one encoded state.
        vocab_size: number of output symbols, the boundary (here the blank, id 0) included.
        dropout: dropout probability of the states while training.
    """

    def __init__(self, value_size: int, vocab_size: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        require("dropout", dropout, 0.0, 1.0)
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(value_size, vocab_size)

    def forward(self, encoded: Float[Tensor, "batch states value"]) -> Float[Tensor, "batch states vocab"]:
        """Log-probabilities of tokens and blank at every state."""
        return torch.log_softmax(self.output(self.dropout(encoded)), dim=-1)


class IntermediateCTC(nn.Module):
    """CTC on the rows above a lower layer of the listener, while training (Lee and Watanabe 2021).

    It has a linear layer of its own: rows of a pyramid differ in size from layer to layer.

    Args:
        sizes: of a row above each layer of the listener.
        vocab_size: number of output symbols, the blank included.
        layer: counted from 0.
        dropout: dropout probability of the rows.
    """

    def __init__(self, sizes: Sequence[int], vocab_size: int, *, layer: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        require("layer", layer, 0, len(sizes) - 1)
        self.layer, self.ctc = layer, CTC(sizes[layer], vocab_size, dropout=dropout)

    def forward(self, levels: Sequence[tuple[Tensor, Lengths]]) -> CTCOutput:
        """Return the output for the rows above each layer, with their numbers (`Listener.forward`)."""
        rows, num_rows = levels[self.layer]
        return CTCOutput(self.ctc(rows), num_rows)


def loss(output: CTCOutput, targets: Int[Tensor, "batch tokens"], num_tokens: Lengths) -> Float[Tensor, ""]:
    """Return the loss -log p(tokens | states), summed over the batch, in fp32.

    A target needs a state for each token and one between two that are equal. An utterance with fewer states has
    probability zero; it adds nothing (training filters them out beforehand).
    """
    by_state = output.log_probs.float().transpose(0, 1)
    return nn.functional.ctc_loss(
        by_state, targets, output.num_states, num_tokens, blank=BLANK, reduction="sum", zero_infinity=True
    )


def align(log_probs: Float[Tensor, "states vocab"], tokens: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first state of each token and the one after its last, on the best path of these tokens (Viterbi).

    Args:
        log_probs: output of CTC for one utterance, without padding.
        tokens: none of them the blank.

    Raises ValueError where the states are too few to write the tokens.
    """
    labels = np.full(2 * len(tokens) + 1, BLANK)
    labels[1::2] = tokens
    # A token may follow the one before it without a blank between, unless they are equal.
    skips = np.zeros(len(labels), dtype=bool)
    skips[3::2] = labels[3::2] != labels[1:-2:2]
    emissions = log_probs.double().numpy(force=True)[:, labels]
    scores, steps = np.full(len(labels), -np.inf), np.zeros(emissions.shape, dtype=np.int64)
    scores[0] = 0.0  # enters the first blank or, one further on, the first token
    for state, emission in enumerate(emissions):
        stay, next_one = scores, np.append(-np.inf, scores[:-1])
        skip = np.where(skips, np.append([-np.inf, -np.inf], scores[:-2])[: len(labels)], -np.inf)
        choices = np.stack([stay, next_one, skip])
        steps[state] = choices.argmax(0)
        scores = choices.max(0) + emission
    place = len(labels) - 1 if len(labels) == 1 or scores[-1] >= scores[-2] else len(labels) - 2
    if scores[place] == -np.inf:
        raise ValueError(f"{len(tokens)} tokens cannot be aligned with {len(emissions)} states")
    path = np.empty(len(emissions), dtype=np.int64)
    for state in range(len(emissions) - 1, -1, -1):
        path[state] = place
        place -= steps[state, place]
    bounds = np.searchsorted(path, [2 * np.arange(len(tokens)) + 1, 2 * np.arange(len(tokens)) + 2])
    return list(zip(*bounds.tolist(), strict=True))


def no_ctc_error() -> ConfigError:
    """Return the error for a search with CTC and a model without it."""
    return ConfigError(
        "search.ctc: this model was trained without CTC, so it has no CTC scores. "
        "Search without it (search=beam), or train with loss=joint_ctc"
    )
