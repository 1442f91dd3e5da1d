"""Decoders that look their answers up in a table, and every sequence of theirs with its score, in plain Python."""

import itertools
from typing import NamedTuple

import torch
from torch import Tensor


class Past(NamedTuple):
    prefix: Tensor
    nested: tuple[Tensor, ...]


class PrefixDecoder:
    """Log-probabilities that depend on the whole prefix, which only the state knows: a polynomial hash of it, and
    the number of steps in a second tensor one level down."""

    ROWS = 1009

    def __init__(self, table: Tensor, sos: int = 0, eos: int = 0) -> None:
        self.table = table  # [batch, ROWS, vocab]
        self.sos, self.eos = sos, eos

    @classmethod
    def random(cls, seed: int, batch: int, vocab: int, sos: int = 0, eos: int = 0) -> "PrefixDecoder":
        generator = torch.Generator().manual_seed(seed)
        logits = 2 * torch.randn(batch, cls.ROWS, vocab, generator=generator)
        return cls(logits.log_softmax(-1), sos, eos)

    def one(self, index: int) -> "PrefixDecoder":
        return PrefixDecoder(self.table[index : index + 1], self.sos, self.eos)

    def start(self) -> Past:
        batch = len(self.table)
        return Past(torch.zeros(batch, 1, dtype=torch.long), (torch.zeros(batch, 1, 2, dtype=torch.long),))

    def step(self, tokens: Tensor, state: Past) -> tuple[Tensor, Past]:
        prefix = (state.prefix * 31 + tokens + 7) % self.ROWS
        (count,) = state.nested
        row = (prefix + 13 * count[..., 0]) % self.ROWS
        rows = torch.arange(len(self.table)).unsqueeze(1)
        return self.table[rows, row], Past(prefix, (count + 1,))


class MarkovDecoder:
    """Log-probabilities that depend on the last symbol only; its state is empty."""

    def __init__(self, table: Tensor, eos: int) -> None:
        self.table = table  # [batch, last, next]
        self.sos = self.eos = eos

    def start(self) -> tuple[()]:
        return ()

    def step(self, tokens: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
        return self.table[torch.arange(len(self.table)).unsqueeze(1), tokens], state


def teacher_forced(decoder, tokens: list[int]) -> float:
    """log p(tokens, end), one utterance."""
    total, state, last = 0.0, decoder.start(), decoder.sos
    for token in [*tokens, decoder.eos]:
        log_probs, state = decoder.step(torch.tensor([[last]]), state)
        total += float(log_probs[0, 0, token])
        last = token
    return total


def enumerate_all(decoder, vocab: int, limit: int, exponent: float) -> list[tuple[list[int], float]]:
    """Every sequence of at most `limit` tokens with its normalised score, best first."""
    symbols = [symbol for symbol in range(vocab) if symbol != decoder.eos]
    found = []
    for length in range(limit + 1):
        for tokens in itertools.product(symbols, repeat=length):
            found.append((list(tokens), teacher_forced(decoder, list(tokens)) / (length + 1) ** exponent))
    return sorted(found, key=lambda item: -item[1])


def num_sequences(vocab: int, limit: int) -> int:
    return sum((vocab - 1) ** length for length in range(limit + 1))
