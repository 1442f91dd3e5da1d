"""A decoder whose every answer is in a table, and what a search over it must find, by enumeration in plain Python."""

import math
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from las.decoding.scorers.constraints import EndThreshold, MinLength, RepetitionConstraint
from las.decoding.scorers.ctc_prefix import CTCPrefixScorer
from las.decoding.scorers.language_model import LanguageModelScorer
from las.decoding.scorers.rewards import CoverageReward, LengthReward

ROWS = 1009
EOS = 0


def draw(generator: torch.Generator, *shape: int) -> Tensor:
    return 2 * torch.randn(*shape, generator=generator, dtype=torch.float64)


class ToyDecoder:
    """Log-probabilities and attention that depend on the whole prefix through a hash of it, and CTC beside them."""

    sos = eos = EOS

    def __init__(self, table: Tensor, attention: Tensor, heard: Tensor) -> None:
        self.table = table  # [batch, ROWS, vocab]
        self.attention = attention  # [batch, ROWS, states]
        self.heard = heard  # [batch, states, vocab]

    @classmethod
    def random(cls, seed: int, num_states: list[int], vocab: int, states: int | None = None) -> "ToyDecoder":
        generator = torch.Generator().manual_seed(seed)
        batch, states = len(num_states), states or max(1, *num_states)
        attention = draw(generator, batch, ROWS, states)
        padding = torch.arange(states) >= torch.tensor(num_states).unsqueeze(1)
        weights = attention.masked_fill(padding.unsqueeze(1), -math.inf).softmax(-1).nan_to_num(0.0)
        return cls(
            draw(generator, batch, ROWS, vocab).log_softmax(-1),
            weights,
            draw(generator, batch, states, vocab).log_softmax(-1),
        )

    def select_utterances(self, rows: Tensor) -> "ToyDecoder":
        return ToyDecoder(self.table[rows], self.attention[rows], self.heard[rows])

    def start(self) -> Tensor:
        return torch.zeros(len(self.table), 1, dtype=torch.long)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        prefix = hashed(state, tokens)
        return self.table[torch.arange(len(self.table)).unsqueeze(1), prefix], prefix

    def weights(self, state: Tensor) -> Tensor:
        return self.attention[torch.arange(len(self.attention)).unsqueeze(1), state]

    def ctc_log_probs(self) -> Tensor:
        return self.heard


class ToyLM:
    """A language model of the same kind."""

    def __init__(self, seed: int, vocab: int) -> None:
        self.table = draw(torch.Generator().manual_seed(seed), ROWS, vocab).log_softmax(-1)

    def start(self, batch: int, device: torch.device) -> Tensor:
        return hashed(torch.zeros(batch, 1, dtype=torch.long), torch.tensor(EOS))

    def score(self, state: Tensor) -> Tensor:
        return self.table[state]

    def advance(self, state: Tensor, tokens: Tensor) -> Tensor:
        return hashed(state, tokens)


def hashed(prefix: Tensor, tokens: Tensor) -> Tensor:
    return (prefix * 31 + tokens + 7) % ROWS


class Choice(NamedTuple):
    """Scorers and constraints of a search: arguments of `BeamSearch`, by name."""

    options: dict[str, Any]

    @classmethod
    def of(cls, names: tuple[str, ...], vocab: int) -> "Choice":
        def lm(seed: int, weight: float) -> LanguageModelScorer:
            scorer = LanguageModelScorer("toy", weight)
            scorer.model = ToyLM(seed, vocab)
            return scorer

        known = {
            "ctc": CTCPrefixScorer(0.4),
            "lm": lm(1, 0.5),
            "second_lm": lm(2, 0.3),
            "length_reward": LengthReward(0.7),
            "coverage": CoverageReward(0.6, 0.5),
            "end_threshold": EndThreshold(0.8),
            "min_length": MinLength(0.4),
            "repetition": RepetitionConstraint(2, 1),
        }
        return cls({name: known[name] for name in names})


class Found(NamedTuple):
    """One sequence, complete."""

    tokens: list[int]
    rank: float
    scores: dict[str, float]


class Enumeration:
    """All sequences of at most `limit` tokens that the constraints let through, for one utterance."""

    def __init__(self, decoder: ToyDecoder, choice: Choice, num_states: int, limit: int, exponent: float) -> None:
        self.decoder, self.choice, self.num_states = decoder, choice.options, num_states
        self.limit, self.exponent = limit, exponent
        self.vocab = decoder.table.shape[-1]

    def ranked(self) -> list[Found]:
        """Best first, without what is impossible."""
        found = [self._scored(tokens) for tokens in self._sequences([])]
        return sorted((each for each in found if each.rank > -math.inf), key=lambda each: -each.rank)

    def _sequences(self, prefix: list[int]) -> Iterator[list[int]]:
        ends = len(prefix) == self.limit
        allowed = {EOS} if ends else self._allowed(prefix)
        for symbol in sorted(allowed):
            if symbol == EOS:
                yield prefix
            else:
                yield from self._sequences([*prefix, symbol])

    def _allowed(self, prefix: list[int]) -> set[int]:
        possible = {symbol for symbol in range(self.vocab) if self._is_possible([*prefix, symbol])}
        return {symbol for symbol in possible if not self._is_forbidden(prefix, symbol)} or possible

    def _is_possible(self, tokens: list[int]) -> bool:
        """CTC needs a state for each token, and one between two that are alike."""
        if "ctc" not in self.choice or tokens[-1] == EOS:
            return True
        return len(tokens) + sum(map(operator.eq, tokens, tokens[1:])) <= self.num_states

    def _is_forbidden(self, prefix: list[int], symbol: int) -> bool:
        if symbol == EOS and "min_length" in self.choice:
            least = math.ceil(round(self.choice["min_length"].ratio * self.num_states, 6))
            return len(prefix) < least or self._is_early(prefix)
        if symbol == EOS:
            return self._is_early(prefix)
        if "repetition" in self.choice:
            constraint, text = self.choice["repetition"], [*prefix, symbol]
            for period in range(1, constraint.max_period + 1):
                count = period * (constraint.max_repeats + 1)
                end = text[-count:]
                if len(end) == count and end == end[:period] * (constraint.max_repeats + 1):
                    return True
        return False

    def _is_early(self, prefix: list[int]) -> bool:
        if "end_threshold" not in self.choice:
            return False
        row = self.decoder.table[0, self._hash(prefix)].tolist()
        return row[EOS] <= self.choice["end_threshold"].factor * max(row[1:], default=-math.inf)

    def _hash(self, prefix: list[int]) -> int:
        value = 0
        for symbol in [EOS, *prefix]:
            value = (value * 31 + symbol + 7) % ROWS
        return value

    def _scored(self, tokens: list[int]) -> Found:
        places = [self._hash(tokens[:length]) for length in range(len(tokens) + 1)]
        symbols = [*tokens, EOS]
        scores = {"las": float(self.decoder.table[0, places, symbols].sum())}
        for name, scorer in self.choice.items():
            if name in ("lm", "second_lm"):
                scores[name] = float(scorer.model.table[places, symbols].sum())
            elif name == "ctc":
                scores[name] = self._ctc(tokens)
            elif name == "length_reward":
                scores[name] = len(symbols)
            elif name == "coverage":
                scores[name] = int((self.decoder.attention[0, places].sum(0) > scorer.threshold).sum())
        own = 1 - (self.choice["ctc"].weight if "ctc" in self.choice else 0)
        total = own * scores["las"] + sum(self.choice[name].weight * scores[name] for name in scores if name != "las")
        return Found(tokens, total / len(symbols) ** self.exponent, scores)

    def _ctc(self, tokens: list[int]) -> float:
        heard = self.decoder.heard[0, : self.num_states].unsqueeze(1)
        if not self.num_states:
            return 0.0 if not tokens else -math.inf
        target, sizes = torch.tensor([tokens], dtype=torch.long), torch.tensor([len(tokens)])
        return -float(torch.nn.functional.ctc_loss(heard, target, torch.tensor([self.num_states]), sizes, 0, "sum"))
