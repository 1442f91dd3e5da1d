"""Weighted automata over tokens whose states are expanded when a search first comes to them.

A prefix tree of many words times the histories of a word n-gram has far more states than a search visits. A state is
expanded once, into a row of scores and a row of the states that follow, and the state of a hypothesis is the number of
its row. Every step looks the new states up on the host, for which a GPU has to be waited.
"""

import threading
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.decoding.scorers.base import BatchComponent, BatchScorer, SearchStep, State
from las.nn.kernels.cpp.tensors import score_type

MAX_ENTRIES = 1 << 24
"""Entries of a table above which the next search begins another one."""


@runtime_checkable
class TokenAutomaton(Protocol):
    """An automaton; states are numbers, scores of tokens natural logarithms, -inf for those that may not come."""

    @property
    def start(self) -> int: ...

    def expand(
        self, states: Int[Tensor, " states"]
    ) -> tuple[Float[Tensor, "states tokens"], Int[Tensor, "states tokens"]]: ...


class LazyTable:
    """The rows of the states that searches have come to, on a device. Several threads may use it."""

    def __init__(self, automaton: TokenAutomaton, device: torch.device) -> None:
        self.automaton, self.device = automaton, device
        self._rows = {automaton.start: 0}
        self._lock = threading.Lock()
        scores, targets = automaton.expand(torch.tensor([automaton.start]))
        self._scores, self._targets = scores.to(device, score_type(device)), targets.to(device)

    @property
    def is_full(self) -> bool:
        """True if a new search should begin another table."""
        return self._scores.numel() > MAX_ENTRIES

    def start(self, batch: int) -> Int[Tensor, "batch 1"]:
        """Return the row at the start of each of `batch` utterances."""
        return torch.zeros(batch, 1, dtype=torch.long, device=self.device)

    def score(self, rows: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam tokens"]:
        return self._scores[rows]

    def advance(self, rows: Int[Tensor, "batch beam"], tokens: Int[Tensor, "batch beam"]) -> Int[Tensor, "batch beam"]:
        states, places = self._targets[rows, tokens].cpu().unique(return_inverse=True)
        listed = states.tolist()
        with self._lock:
            self._expand([state for state in listed if state not in self._rows])
            found = torch.tensor([self._rows[state] for state in listed])
        return found[places].to(self.device)

    def _expand(self, states: list[int]) -> None:
        """Add the rows of new states; the tensors grow by half at least, so that few steps copy them."""
        if not states:
            return
        used = len(self._rows)
        scores, targets = self.automaton.expand(torch.tensor(states))
        if (size := used + len(states)) > len(self._scores):
            more = max(size, len(self._scores) * 3 // 2) - len(self._scores)
            self._scores = torch.nn.functional.pad(self._scores, (0, 0, 0, more))
            self._targets = torch.nn.functional.pad(self._targets, (0, 0, 0, more))
        self._scores[used:size], self._targets[used:size] = scores.to(self._scores), targets.to(self.device)
        self._rows |= {state: used + index for index, state in enumerate(states)}


class TableCache:
    """The table of an automaton, kept from one search to the next on the same device."""

    def __init__(self, automaton: TokenAutomaton) -> None:
        self.automaton = automaton
        self._table: LazyTable | None = None

    def table(self, device: torch.device) -> LazyTable:
        """Return the table to begin a search with."""
        table = self._table
        if table is None or table.is_full or table.device != device:
            self._table = table = LazyTable(self.automaton, device)
        return table


class OnTable(BatchComponent):
    """An automaton on a batch; the state is the row of each hypothesis in its table."""

    on_host = True

    def __init__(self, table: LazyTable, batch: int) -> None:
        self.table, self.batch = table, batch

    def start(self) -> Tensor:
        return self.table.start(self.batch)

    def advance(self, state: Tensor, tokens: Int[Tensor, "batch beam"]) -> Tensor:
        return self.table.advance(state, tokens)


class TableBatchScorer(OnTable, BatchScorer):
    """The scores of an automaton on a batch."""

    def score(self, state: Tensor, step: SearchStep) -> tuple[Tensor, State]:
        return self.table.score(state), state
