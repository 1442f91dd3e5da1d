"""Words with times: from the tokens of a model, and from pieces of long audio that overlap."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from las.data.tokenizers import Tokens

SAME_S = 0.6
"""Two pieces speak of the same word only if they place it this close: times read off attention are estimates."""


@dataclass(frozen=True, slots=True)
class TimedToken:
    """A symbol, when it was said, and the probability that the model gave it after those before.

    The times are read off the attention: an estimate, not a forced alignment.
    """

    symbol: str
    start_s: float
    end_s: float
    confidence: float


class Word(NamedTuple):
    """What stands between spaces; `confidence` is the geometric mean of its tokens'."""

    text: str
    tokens: tuple[TimedToken, ...]

    @property
    def start_s(self) -> float:
        return self.tokens[0].start_s

    @property
    def end_s(self) -> float:
        return self.tokens[-1].end_s

    @property
    def centre_s(self) -> float:
        return (self.start_s + self.end_s) / 2

    @property
    def confidence(self) -> float:
        logs = [math.log(max(token.confidence, 1e-30)) for token in self.tokens]
        return math.exp(sum(logs) / len(logs))


def token_times(weights: Tensor, state_s: float, duration_s: float, start_s: float = 0.0) -> list[tuple[float, float]]:
    """Start and end of each token from its attention: borders lie halfway between neighbouring tokens' states.

    The states are the path of greatest weight that never goes back, so that one diffuse row cannot pull others along.
    `weights` is [tokens + 1, states]. Times tile the utterance, which begins at `start_s`.
    """
    if weights.shape[0] < 2:
        return []
    logs = weights[:-1].clamp(min=torch.finfo(weights.dtype).tiny).log()
    score, came_from = logs[0], []
    for row in logs[1:]:
        before, index = score.cummax(0)
        came_from.append(index)
        score = row + before
    path = [int(score.argmax())]
    for index in reversed(came_from):
        path.append(int(index[path[-1]]))
    centres = [min((state + 0.5) * state_s, duration_s) for state in reversed(path)]
    borders = [0.0, *((a + b) / 2 for a, b in itertools.pairwise(centres)), duration_s]
    return list(itertools.pairwise(start_s + border for border in borders))


def of_tokens(timed: Sequence[TimedToken], ids: Sequence[int], tokens: Tokens) -> list[Word]:
    """The words of a text, each with its tokens; tokens that only part words belong to none.

    The text of the first k tokens tells where token k stands, for any kind of tokens.
    """
    groups: list[list[TimedToken]] = []
    before = ""
    for count, token in enumerate(timed, start=1):
        text = tokens.decode(ids[:count]).rstrip()
        if len(text) > len(before):
            missing = len(text.split()) - len(groups)
            groups += [[] for _ in range(missing)]
            groups[-1].append(token)
        before = text
    return [Word(text, tuple(group)) for text, group in zip(before.split(), groups, strict=True)]


def stitch(left: Sequence[Word], right: Sequence[Word], border_s: float, overlap_s: float) -> list[Word]:
    """The words of two pieces that overlap by `overlap_s` on either side of a border, in one row.

    Where both heard the same words at the same time, the one nearest to the border joins them: what was said before it
    is taken from the left, what after it from the right. Where they agree on nothing, a word belongs to the side of the
    border that its middle is on. With no overlap they stand one after the other.
    """
    if not overlap_s:
        return [*left, *right]
    first = next((i for i, word in enumerate(left) if word.end_s > border_s - overlap_s), len(left))
    last = next((i for i, word in enumerate(right) if word.start_s >= border_s + overlap_s), len(right))
    common = agreement(left[first:], right[:last])
    if not common:
        return [
            *(word for word in left if word.centre_s < border_s),
            *(word for word in right if word.centre_s >= border_s),
        ]
    i, j = min(common, key=lambda pair: abs(_middle(left[first + pair[0]], right[pair[1]]) - border_s))
    return [*left[: first + i + 1], *right[j + 1 :]]


def agreement(left: Sequence[Word], right: Sequence[Word]) -> list[tuple[int, int]]:
    """The row of words (places in both) that both heard in this order, each at about the same time.

    Of all such rows the one of the greatest sum, to which a pair adds the more, the nearer its times are.
    """
    best: dict[tuple[int, int], float] = {}
    for i, j in itertools.product(range(len(left) + 1), range(len(right) + 1)):
        best[i, j] = max(best.get((i - 1, j), 0.0), best.get((i, j - 1), 0.0))
        if i and j:
            best[i, j] = max(best[i, j], best[i - 1, j - 1] + _likeness(left[i - 1], right[j - 1]))
    found, i, j = [], len(left), len(right)
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            found.append((i, j))
    return found[::-1]


def _likeness(one: Word, other: Word) -> float:
    """1 for the same word at the same time, 0 from `SAME_S` on and for another."""
    return max(1 - abs(one.centre_s - other.centre_s) / SAME_S, 0.0) if one.text == other.text else 0.0


def _middle(one: Word, other: Word) -> float:
    return (one.centre_s + other.centre_s) / 2
