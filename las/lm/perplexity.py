"""How well a language model predicts text."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@runtime_checkable
class Follows(Protocol):
    """What is asked of a language model: where sentences start, and what it gave to a symbol."""

    def start(self, batch: int) -> Any: ...

    def follow(self, state: Any, tokens: Tensor) -> tuple[Tensor, Any]: ...


class Perplexity(NamedTuple):
    """Of a text: `num_symbols` counts every symbol and every end of a sentence, `log_prob` is their sum (natural).

    `num_unknown` of the symbols are words that the model does not know, and `unknown_log_prob` is their share.
    """

    num_sentences: int
    num_symbols: int
    num_unknown: int
    log_prob: float
    unknown_log_prob: float

    @property
    def of_all(self) -> float:
        """Of every symbol, unknown words by what `<unk>` gets."""
        return math.exp(-self.log_prob / self.num_symbols)

    @property
    def of_known(self) -> float:
        """Of the symbols that the model knows, wherever they stand; infinite where there are none."""
        known = self.num_symbols - self.num_unknown
        return math.exp((self.unknown_log_prob - self.log_prob) / known) if known else math.inf


def log_probs(lm: Follows, sentences: Sequence[Sequence[int]], batch_size: int = 1024) -> list[Tensor]:
    """Of each sentence, the log-probabilities of its symbols and of its end, [symbols + 1]."""
    found: dict[int, Tensor] = {}
    by_length = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
    for first in range(0, len(sentences), batch_size):
        chosen = by_length[first : first + batch_size]
        tokens = pad_sequence([torch.tensor([*sentences[index], 0]) for index in chosen], batch_first=True)
        state, columns = lm.start(len(chosen)), []
        for step in range(tokens.shape[1]):
            column, state = lm.follow(state, tokens[:, step : step + 1])
            columns.append(column)
        for index, row in zip(chosen, torch.cat(columns, dim=1).double(), strict=True):
            found[index] = row[: len(sentences[index]) + 1]
    return [found[index] for index in range(len(sentences))]


def perplexity(lm: Follows, sentences: Sequence[Sequence[int]], unknown: int | None = None) -> Perplexity:
    """Of a text as ids of the model's symbols, `unknown` the one of `<unk>` if it is among them."""
    log_prob = unknown_log_prob = 0.0
    num_symbols = num_unknown = 0
    for sentence, row in zip(sentences, log_probs(lm, sentences), strict=True):
        is_unknown = torch.tensor([symbol == unknown for symbol in sentence] + [False])
        log_prob += float(row.sum())
        unknown_log_prob += float(row[is_unknown].sum())
        num_symbols += len(row)
        num_unknown += int(is_unknown.sum())
    return Perplexity(len(sentences), num_symbols, num_unknown, log_prob, unknown_log_prob)
