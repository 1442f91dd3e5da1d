"""Word and token times from attention, and stitching of the words of overlapping segments."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from las.data.tokenizers import Tokenizer

SAME_S = 0.6
"""Words of two segments can be the same only if their times differ by less, in seconds: the times are estimates."""


@dataclass(frozen=True, slots=True)
class TimedToken:
    """A symbol, its times in seconds, and its probability given the previous tokens.

    The times are estimated from the attention; they are not a forced alignment.
    """

    symbol: str
    start_s: float
    end_s: float
    confidence: float


class TimedWord(NamedTuple):
    """A word and its tokens; its `confidence` is the geometric mean of theirs."""

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
    """Start and end of each token in seconds, estimated from attention `weights` [tokens + 1, states].

    Each token is assigned one state, by the monotonic path of greatest weight (so that one diffuse row cannot pull
    others along); boundaries lie halfway between the states of neighbouring tokens. A state lasts `state_s`; the times
    cover the whole utterance, which begins at `start_s` and lasts `duration_s`.
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
    borders = [0.0, *((a + b) / 2 for a, b in itertools.pairwise(centres)), duration_s]
    return list(itertools.pairwise(start_s + border for border in borders))


def of_tokens(timed: Sequence[TimedToken], ids: Sequence[int], tokens: Tokenizer) -> list[TimedWord]:
    """The words of a token sequence, each with its tokens; tokens that only separate words belong to none.

    A token belongs to the last word of the text decoded up to it, which works for any tokenizer.
    """
    groups: list[list[TimedToken]] = []
    previous_text = ""
    for count, token in enumerate(timed, start=1):
        text = tokens.decode(ids[:count]).rstrip()
        if len(text) > len(previous_text):
            num_new_words = len(text.split()) - len(groups)
            groups += [[] for _ in range(num_new_words)]
            groups[-1].append(token)
        previous_text = text
    return [TimedWord(text, tuple(group)) for text, group in zip(previous_text.split(), groups, strict=True)]


def stitch(left: Sequence[TimedWord], right: Sequence[TimedWord], border_s: float, overlap_s: float) -> list[TimedWord]:
    """The words of two segments without duplicates; they overlap by `overlap_s` on either side of `border_s`.

    Of the words that both segments have in common, the one nearest to the border joins them: the words before it are
    taken from the left segment, those after it from the right. Where they have none in common, a word is taken from
    the segment on whose side of the border its centre lies. Without overlap the words are concatenated.
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


def agreement(left: Sequence[TimedWord], right: Sequence[TimedWord]) -> list[tuple[int, int]]:
    """The best common subsequence of words at about the same times, as pairs of indices into both.

    A pair counts the more, the closer its times are; the sum is maximised by dynamic programming.
    """
    best: dict[tuple[int, int], float] = {}
    for i, j in itertools.product(range(len(left) + 1), range(len(right) + 1)):
        best[i, j] = max(best.get((i - 1, j), 0.0), best.get((i, j - 1), 0.0))
        if i and j:
            best[i, j] = max(best[i, j], best[i - 1, j - 1] + _similarity(left[i - 1], right[j - 1]))
    pairs, i, j = [], len(left), len(right)
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def _similarity(left: TimedWord, right: TimedWord) -> float:
    """Similarity of two words: 1 for equal words at equal times, 0 from a difference of `SAME_S`, or if they differ."""
    return max(1 - abs(left.centre_s - right.centre_s) / SAME_S, 0.0) if left.text == right.text else 0.0


def _middle(left: TimedWord, right: TimedWord) -> float:
    return (left.centre_s + right.centre_s) / 2
