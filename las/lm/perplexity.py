"""Perplexity of a language model on text."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@runtime_checkable
class LanguageModel(Protocol):
    """The interface of a language model: the state at the start, and log-probabilities of given symbols."""

    def start(self, batch: int) -> Any: ...

    def follow(self, state: Any, tokens: Tensor) -> tuple[Tensor, Any]: ...


class Perplexity(NamedTuple):
    """Counts and log-probabilities (natural) of a text.

    `num_symbols` counts every symbol and every end of a sentence, `log_prob` is the sum over them. `num_unknown` of the
    symbols are words that the model does not know; `unknown_log_prob` is the sum over these.
    """

    num_sentences: int
    num_symbols: int
    num_unknown: int
    log_prob: float
    unknown_log_prob: float

    @property
    def of_all(self) -> float:
        """The perplexity of all symbols, with the probability of `<unk>` for unknown words."""
        return math.exp(-self.log_prob / self.num_symbols)

    @property
    def of_known(self) -> float:
        """The perplexity of the symbols that the model knows; infinite if there are none."""
        known = self.num_symbols - self.num_unknown
        return math.exp((self.unknown_log_prob - self.log_prob) / known) if known else math.inf


def log_probs(lm: LanguageModel, sentences: Sequence[Sequence[int]], batch_size: int = 1024) -> list[Tensor]:
    """Return the log-probabilities of the symbols and the end of each sentence (a list of ids), [symbols + 1]."""
    rows: dict[int, Tensor] = {}
    by_length = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
    for first in range(0, len(sentences), batch_size):
        chosen = by_length[first : first + batch_size]
        tokens = pad_sequence([torch.tensor([*sentences[index], 0]) for index in chosen], batch_first=True)
        state, columns = lm.start(len(chosen)), []
        for step in range(tokens.shape[1]):
            column, state = lm.follow(state, tokens[:, step : step + 1])
            columns.append(column)
        for index, row in zip(chosen, torch.cat(columns, dim=1).double(), strict=True):
            rows[index] = row[: len(sentences[index]) + 1]
    return [rows[index] for index in range(len(sentences))]


def perplexity(lm: LanguageModel, sentences: Sequence[Sequence[int]], unknown: int | None = None) -> Perplexity:
    """Return the perplexity of sentences, lists of ids of symbols; `unknown` is the id of `<unk>` if there is one."""
    log_prob = unknown_log_prob = 0.0
    num_symbols = num_unknown = 0
    for sentence, row in zip(sentences, log_probs(lm, sentences), strict=True):
        is_unknown = torch.tensor([symbol == unknown for symbol in sentence] + [False])
        log_prob += float(row.sum())
        unknown_log_prob += float(row[is_unknown].sum())
        num_symbols += len(row)
        num_unknown += int(is_unknown.sum())
    return Perplexity(len(sentences), num_symbols, num_unknown, log_prob, unknown_log_prob)
