"""Connectionist temporal classification next to the speller (Graves et al. 2006; joint training: Kim et al. 2017).

A linear layer on every encoded state gives log-probabilities of the tokens and of the blank, which is id 0: the
sentence boundary never occurs inside a sentence, so its id is free. The loss is

    -log p(tokens | states) = -log sum over alignments of the tokens of prod_s p_s(path_s)

It drives the listener towards a monotonic alignment, which attention alone has to learn.
"""

from typing import NamedTuple

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


def loss(output: CTCOutput, targets: Int[Tensor, "batch tokens"], num_tokens: Lengths) -> Float[Tensor, ""]:
    """The loss -log p(tokens | states), summed over the batch, in fp32.

    A target needs a state for each token and one between two that are equal. An utterance with fewer states has
    probability zero; it adds nothing (training filters them out beforehand).
    """
    by_state = output.log_probs.float().transpose(0, 1)
    return nn.functional.ctc_loss(
        by_state, targets, output.num_states, num_tokens, blank=BLANK, reduction="sum", zero_infinity=True
    )


def no_ctc_error() -> ConfigError:
    """The error for a search with CTC and a model without it."""
    return ConfigError(
        "search.ctc: this model was trained without CTC, so it has no CTC scores. "
        "Search without it (search=beam), or train with loss=joint_ctc"
    )
