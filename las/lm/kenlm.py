"""KenLM models as scorers for search, for KenLM binary files, which only KenLM reads (an optional extra).

The scores are those of `ngram.NGram` on the ARPA file of the same model. KenLM's Python module gives one
log-probability per call, so a row costs as many calls as there are symbols; rows are cached. For ARPA files `NGram` is
faster.
"""

import importlib
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.lm.arpa import END
from las.runtime.errors import ConfigError, DataError

MAGIC = b"mmap lm "
"""The first bytes of a KenLM binary file."""


class KenLM:
    """Log-probabilities (natural) of a model in a file of KenLM, binary or ARPA.

    `symbols` are words in the order of the ids of the search; `words` are those of them that the model knows. States
    are indices of KenLM's own states, [batch, beam], which live as long as the scorer; `num_rows` rows are cached.
    Raises ConfigError where KenLM is not installed, DataError for a file that it cannot read.
    """

    def __init__(self, path: str | Path, symbols: Sequence[str], num_rows: int = 1 << 14) -> None:
        try:
            kenlm: Any = importlib.import_module("kenlm")
        except ImportError as error:
            raise ConfigError(
                f"{path}: KenLM is not installed, and its binary files need it: pip install kenlm. Or give the ARPA "
                "file that it was made from, which needs nothing"
            ) from error
        options = kenlm.Config()
        options.show_progress, options.arpa_complain = False, kenlm.ARPALoadComplain.NONE
        try:
            self._model = kenlm.Model(str(path), options)
        except OSError as error:
            raise DataError(str(error)) from error
        self.name = str(path)
        self.symbols = tuple(symbols)
        self.order: int = self._model.order
        self._make_state = kenlm.State
        self._states: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._row = lru_cache(num_rows)(self._score)

    @property
    def words(self) -> list[str]:
        """The symbols that the model knows; KenLM does not list its other words."""
        return [symbol for symbol in self.symbols if symbol in self._model]

    @property
    def log10_end(self) -> float:
        state = self._make_state()
        self._model.NullContextWrite(state)
        return self._model.BaseScore(state, END, self._make_state())

    def start(self, batch: int, device: torch.device | str = "cpu") -> Int[Tensor, "batch 1"]:
        state = self._make_state()
        self._model.BeginSentenceWrite(state)
        return torch.full((batch, 1), self._number(state), device=device)

    def score(self, state: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam symbols"]:
        rows = torch.stack([self._row(number) for number in state.flatten().tolist()])
        return rows.view(*state.shape, -1).to(state.device)

    def advance(self, state: Int[Tensor, "batch beam"], tokens: Int[Tensor, "batch beam"]) -> Int[Tensor, "batch beam"]:
        numbers = []
        for number, token in zip(state.flatten().tolist(), tokens.flatten().tolist(), strict=True):
            after = self._make_state()
            self._model.BaseScore(self._states[number], self.symbols[token], after)
            numbers.append(self._number(after))
        return torch.tensor(numbers, device=state.device).view(state.shape)

    def _number(self, state: Any) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def _score(self, number: int) -> Float[Tensor, " symbols"]:
        state, after = self._states[number], self._make_state()
        row = [self._model.BaseScore(state, symbol, after) for symbol in self.symbols]
        return torch.tensor(row) * math.log(10)
