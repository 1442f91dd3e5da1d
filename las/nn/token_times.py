"""Times of the tokens of an utterance from the weight that each gives to each encoded state."""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor


def monotonic_times(
    weights: Float[Tensor, "tokens1 states"], state_s: float, duration_s: float
) -> list[tuple[float, float]]:
    """Return the start and end of each token but the last row's, the end of the sentence, in seconds.

    Each token gets a state, so that states never go back and the sum of their log-weights is largest; a boundary lies
    halfway between the states of neighbours.

    Args:
        weights: of the states for each token and the end.
        state_s: seconds of a state.
        duration_s: seconds of the utterance, which the times cover.
    """
    if weights.shape[0] < 2:
        return []
    logs = weights[:-1].clamp(min=torch.finfo(weights.dtype).tiny).log()
    score, backpointers = logs[0], []
    for row in logs[1:]:
        best, index = score.cummax(0)
        backpointers.append(index)
        score = row + best
    path = [int(score.argmax())]
    for index in reversed(backpointers):
        path.append(int(index[path[-1]]))
    centres = [min((state + 0.5) * state_s, duration_s) for state in reversed(path)]
    return list(itertools.pairwise([0.0, *((a + b) / 2 for a, b in itertools.pairwise(centres)), duration_s]))
