"""Diagnostics of attention: four measures of how monotonic and focused an alignment is, and a verdict in words.

An alignment is the teacher-forced attention of one utterance, [tokens, states]; rows sum to one. Positions
of states and tokens are relative, from 0 at the first to 1 at the last.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Alignment(NamedTuple):
    """Measures of one utterance, or their means over several."""

    entropy: float
    """Mean entropy of a token's weights relative to its maximum, from 0 (one state) to 1 (uniform)."""
    diagonality: float
    """Correlation of a token's position and the centre of its weights, from -1 to 1."""
    coverage: float
    """The share of states whose weights sum to at least a tenth of the mean."""
    monotonicity: float
    """The share of tokens whose centre does not lie before the previous token's."""


def measure(weights: Float[Tensor, "tokens states"]) -> Alignment:
    """Measures of one alignment without padding; with one token or one state they are those of a perfect one."""
    tokens, states = weights.shape
    if tokens < 2 or states < 2:
        return Alignment(0.0, 1.0, 1.0, 1.0)
    weights = weights.detach().double()
    entropy = -torch.special.xlogy(weights, weights).sum(1).mean() / math.log(states)
    centres = weights @ torch.linspace(0, 1, states, dtype=torch.float64, device=weights.device)
    order = torch.linspace(0, 1, tokens, dtype=torch.float64, device=weights.device)
    moved, passed = centres - centres.mean(), order - order.mean()
    spread = moved.norm() * passed.norm()
    # Centres that do not move go with nothing; the bound is far below what one state in a long utterance would give.
    diagonality = (moved * passed).sum() / spread if spread > 1e-9 else torch.zeros(())
    attended = weights.sum(0) >= 0.1 * tokens / states
    forwards = centres.diff() >= -1e-9
    return Alignment(
        *(float(value) for value in (entropy, diagonality, attended.double().mean(), forwards.double().mean()))
    )


def mean(alignments: Sequence[Alignment]) -> Alignment:
    """Return the mean of each number over utterances."""
    return Alignment(*(sum(values) / len(values) for values in zip(*alignments, strict=True)))


def verdict(alignment: Alignment) -> str:
    """Return a verdict in plain words, the most basic fault first."""
    if alignment.entropy > 0.9:
        return "is flat: nothing is aligned yet"
    if alignment.diagonality < 0.5:
        return "does not follow the speech: the speller writes from memory"
    if alignment.coverage < 0.3:
        return "covers few of the states: most of the speech is passed over"
    if alignment.diagonality < 0.9:
        return "follows the speech, with jumps"
    return "follows the speech"


def line(alignment: Alignment) -> str:
    """Return a line like `attention follows the speech (entropy 0.21, diagonality 0.97, coverage 0.80, monotonicity
    0.95)`.
    """
    numbers = ", ".join(f"{name} {value:.2f}" for name, value in alignment._asdict().items())
    return f"attention {verdict(alignment)} ({numbers})"


LEGEND = (
    "entropy: 0 one state, 1 flat; diagonality: correlation of token and position, 1 is best; "
    "coverage: share of the states attended to; monotonicity: share of tokens that do not step back"
)
"""The meaning of the four measures, printed below tables and pictures."""
