"""A back-off n-gram model as a scorer for search: many hypotheses at once, on CPU or GPU, no loop over them.

The model becomes a finite-state automaton with failure (back-off) transitions, built once, in NumPy. States are the
contexts that matter: those that begin an n-gram or have a back-off weight; any other behaves as the state that it fails
to. Arcs are n-grams, from their context to their longest suffix that is a context as well. The failure transition of a
state leads to the longest proper suffix of its context. `score` gives every state's log-probabilities of all symbols,
`advance` the state after a symbol. All tensors have fixed shapes, so that nothing waits for a GPU.

A row of log-probabilities comes from a table of rows where the state has one. Few contexts are followed by many
symbols, most by one or two; those have a short list of their successors instead, written over the row of the context
they back off to. How short is decided by the room for rows: with characters or phones every state has a row.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from las.data.tokenizers import Tokenizer
from las.lm import arpa, vocabulary
from las.nn.kernels.graphs.parts import Constant
from las.runtime.errors import DataError

ROW_ENTRIES = 1 << 24
"""Maximum size of the table of rows, in numbers of 4 bytes."""

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


class Automaton(NamedTuple):
    """States, sorted by the length of their context (state 0 is the empty one), and arcs, sorted by state and symbol.

    `depths` are the lengths of the contexts, `fails` the states they back off to, with log weights `backoffs`. An arc
    leads from its source by a symbol to its target. Logarithms are natural.
    """

    start: int
    depths: Integers
    fails: Integers
    backoffs: Floats
    sources: Integers
    symbols: Integers
    targets: Integers
    log_probs: Floats


def build_automaton(model: arpa.Model, symbols: Sequence[str]) -> Automaton:
    """Build the automaton of a model over `symbols`, words of the model; ids are indices into the list.

    N-grams that end in another word are left out. Raises DataError naming symbols that the model lacks.
    """
    ids = {word: index for index, word in enumerate(model.words)}
    if missing := [symbol for symbol in symbols if symbol not in ids]:
        raise DataError(f"{model.name}: the language model lacks {', '.join(map(repr, missing[:10]))}")
    # Contexts are numbered from the empty one on; those of k words begin at firsts[k]. N-gram i of all, shortest
    # first, is context i + 1.
    sizes = [len(part.words) for part in model.ngrams]
    firsts = [0, *np.cumsum([1, *sizes[:-1]]).tolist()]
    sources = np.concatenate([part.contexts + first for part, first in zip(model.ngrams, firsts, strict=False)])
    words = np.concatenate([part.words for part in model.ngrams])
    backoffs = np.concatenate([np.zeros(1), *(part.log10_backoffs for part in model.ngrams[:-1])])
    fails, targets = _links(sources, words, firsts, len(ids))

    is_state = backoffs != 0
    is_state[sources] = True
    is_state[0] = True
    states = _numbers(is_state, fails, firsts)

    symbol_of = np.full(len(ids), -1)
    symbol_of[[ids[symbol] for symbol in symbols]] = np.arange(len(symbols))
    arcs = np.flatnonzero(symbol_of[words] >= 0)
    arcs = arcs[np.lexsort((symbol_of[words[arcs]], states[sources[arcs]]))]
    return Automaton(
        start=int(states[1 + ids[arpa.START]]) if model.order > 1 else 0,
        depths=np.repeat(np.arange(model.order), np.diff(firsts))[is_state],
        fails=states[fails[is_state]],
        backoffs=backoffs[is_state] * math.log(10),
        sources=states[sources[arcs]],
        symbols=symbol_of[words[arcs]],
        targets=states[targets[arcs]],
        log_probs=np.concatenate([part.log10_probs for part in model.ngrams])[arcs] * math.log(10),
    )


def _links(sources: Integers, words: Integers, firsts: list[int], num_words: int) -> tuple[Integers, Integers]:
    """Return the context that each context fails to, and the context that each n-gram leads to."""
    keys = sources * num_words + words
    fails = np.zeros(firsts[-1], dtype=np.int64)
    targets = np.arange(1, len(words) + 1)
    for size, (first, end) in enumerate(zip(firsts[1:], [*firsts[2:], len(words) + 1], strict=True), start=1):
        arcs = slice(first - 1, end - 1)
        suffixes = _longest_suffixes(keys, fails, fails[sources[arcs]], words[arcs], num_words) if size > 1 else 0
        if size < len(firsts) - 1:
            fails[first:end] = suffixes
        else:
            targets[arcs] = suffixes
    return fails, targets


def _longest_suffixes(keys: Integers, fails: Integers, contexts: Integers, words: Integers, num_words: int) -> Integers:
    """Return the longest n-gram that consists of a suffix of each context and of a word."""
    contexts, suffixes = contexts.copy(), np.zeros(len(words), dtype=np.int64)
    missing = np.arange(len(words))
    while len(missing):
        ngrams = arpa.find(keys, contexts[missing] * num_words + words[missing])
        suffixes[missing] = ngrams + 1
        missing = missing[ngrams < 0]  # terminates: every word alone is an n-gram of the empty context
        contexts[missing] = fails[contexts[missing]]
    return suffixes


def _numbers(is_state: NDArray[np.bool_], fails: Integers, firsts: list[int]) -> Integers:
    """Return the state of each context: its own, or that of the longest suffix that has one."""
    numbers = np.cumsum(is_state) - 1
    for first, end in pairwise(firsts[1:]):
        numbers[first:end] = np.where(is_state[first:end], numbers[first:end], numbers[fails[first:end]])
    return numbers


def _longest_list(automaton: Automaton, num_symbols: int, row_entries: int) -> int:
    """Return the greatest number of arcs of a state without a row, such that all _rows fit into `row_entries` numbers.

    0 if every state has a row.
    """
    length = 0
    while length < num_symbols and _with_rows(automaton, length).sum() * num_symbols > row_entries:
        length = min(max(1, 2 * length), num_symbols)
    return length


def _with_rows(automaton: Automaton, length: int) -> NDArray[np.bool_]:
    """Return a mask of the states with more arcs than `length` (0: all states), and of the states that they fail to."""
    has_row = np.bincount(automaton.sources, minlength=len(automaton.fails)) > length
    has_row[0] = True
    if length == 0:
        has_row[:] = True
    for _ in range(automaton.depths.max()):
        has_row[automaton.fails[has_row]] = True
    return has_row


def _rows(automaton: Automaton, num_symbols: int, row_of: Integers) -> NDArray[np.float32]:
    """Return a table of the log-probabilities of all symbols, [_rows, symbols]; `row_of` a state is its row, or -1."""
    table = np.zeros((row_of.max() + 1, num_symbols), dtype=np.float32)
    has_row = row_of >= 0
    for depth in range(automaton.depths.max() + 1):
        here = has_row & (automaton.depths == depth)
        if depth:
            table[row_of[here]] = table[row_of[automaton.fails[here]]] + automaton.backoffs[here, None]
        arcs = here[automaton.sources]
        table[row_of[automaton.sources[arcs]], automaton.symbols[arcs]] = automaton.log_probs[arcs]
    return table


def _longest_chain(automaton: Automaton, has_row: NDArray[np.bool_]) -> int:
    """Return the length of the longest chain of failure transitions through states without a row."""
    lengths = np.zeros(len(has_row), dtype=np.int64)
    for depth in range(1, automaton.depths.max() + 1):
        here = ~has_row & (automaton.depths == depth)
        lengths[here] = 1 + lengths[automaton.fails[here]]
    return int(lengths.max())


class Tables(NamedTuple):
    """An automaton as tensors; states, symbols and arcs are counted from 0, state 0 is the empty context.

    Arcs are sorted by `keys`, state * number of symbols + symbol. A state has a place in `rows`, or -1 in `row_of` and
    `num_listed` arcs from `first_arc` on.
    """

    backoffs: Float[Tensor, " states"]
    fails: Int[Tensor, " states"]
    row_of: Int[Tensor, " states"]
    first_arc: Int[Tensor, " states"]
    num_listed: Int[Tensor, " states"]
    rows: Float[Tensor, "dense symbols"]
    keys: Int[Tensor, " arcs"]
    symbols: Int[Tensor, " arcs"]
    log_probs: Float[Tensor, " arcs"]
    targets: Int[Tensor, " arcs"]


class NGram(Constant):
    """Log-probabilities (natural) of a back-off model, for search.

    Args:
        model: its n-grams.
        symbols: words of the model, by the id that search knows them by; others are never predicted.
        row_entries: room for rows of log-probabilities, in numbers of 4 bytes.
        dtype: of the log-probabilities.

    A state is a tensor [batch, beam] of whole numbers and may be selected from, kept and copied like any other.
    Raises DataError naming symbols that the model lacks.

    >>> import las, torch
    >>> lm = las.NGram.read("lm.arpa", las.Characters("ab"))
    >>> state = lm.start(batch=2)
    >>> lm.score(state).shape
    torch.Size([2, 1, 3])
    >>> lm.advance(state, torch.tensor([[1], [2]])).shape
    torch.Size([2, 1])
    >>> las.BeamSearch(8, lm=las.LanguageModelScorer(lm=lm, weight=0.3))
    BeamSearch(size=8, length_normalisation=1, nbest=1, lm=0.3)
    """

    def __init__(
        self,
        model: arpa.Model,
        symbols: Sequence[str],
        row_entries: int = ROW_ENTRIES,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.symbols = tuple(symbols)
        self.order = model.order
        graph = build_automaton(model, self.symbols)
        self.start_state = graph.start
        self.longest_list = _longest_list(graph, len(self.symbols), row_entries)
        has_row = _with_rows(graph, self.longest_list)
        self._num_lists = _longest_chain(graph, has_row)
        self._num_lookups = int(graph.depths.max()) + 1
        self._tables = _tables(graph, len(self.symbols), has_row, dtype)

    @classmethod
    def read(cls, path: str | Path, tokenizer: Tokenizer) -> "NGram":
        """Return the model in an ARPA file, gzipped or not, for the symbols of a tokenizer.

        Raises DataError as `las.lm.arpa.read` and `las.lm.vocabulary.check` do.
        """
        return of_tokens(arpa.read(path), tokenizer)

    def __repr__(self) -> str:
        return f"NGram(order={self.order}, symbols={len(self.symbols):,}, contexts={self.num_states:,})"

    @property
    def num_states(self) -> int:
        return len(self._tables.fails)

    @property
    def num_bytes(self) -> int:
        return sum(table.nbytes for table in self._tables)

    def start(self, batch: int, device: torch.device | str = "cpu") -> Int[Tensor, "batch 1"]:
        """Return the state at the start of each of `batch` sentences. From then on the tables lie on this device."""
        if self._tables.rows.device != torch.device(device):
            self._tables = Tables(*(table.to(device) for table in self._tables))
        return torch.full((batch, 1), self.start_state, device=device)

    def score(self, state: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam symbols"]:
        tables, current = self._tables, state.flatten()
        weight = torch.zeros_like(current, dtype=tables.rows.dtype)
        passed = []
        for _ in range(self._num_lists):
            passed.append((current, weight))
            listed = tables.row_of[current] < 0
            weight = torch.where(listed, weight + tables.backoffs[current], weight)
            current = torch.where(listed, tables.fails[current], current)
        rows = tables.rows[tables.row_of[current]] + weight.unsqueeze(1)
        # Longer contexts last: what they say replaces what shorter ones do.
        for states, weights in reversed(passed):
            self._overwrite(rows, states, weights)
        return rows.view(*state.shape, -1)

    def _overwrite(self, rows: Tensor, states: Tensor, weights: Tensor) -> None:
        """Put what is listed for states, [hypotheses], into their rows; a short list repeats its last entry."""
        tables = self._tables
        counts = tables.num_listed[states].unsqueeze(1)
        positions = torch.arange(self.longest_list, device=rows.device).minimum((counts - 1).clamp(min=0))
        arcs = (tables.first_arc[states].unsqueeze(1) + positions).clamp(max=len(tables.keys) - 1)
        symbols = tables.symbols[arcs]
        values = torch.where(counts > 0, tables.log_probs[arcs] + weights.unsqueeze(1), rows.gather(1, symbols))
        rows.scatter_(1, symbols, values)

    def follow(
        self, state: Int[Tensor, "*shape"], tokens: Int[Tensor, "*shape"]
    ) -> tuple[Float[Tensor, "*shape"], Int[Tensor, "*shape"]]:
        """Return the log-probabilities of given tokens, and the state after them."""
        tables, current = self._tables, state
        log_probs = torch.zeros_like(state, dtype=tables.rows.dtype)
        target, is_found = torch.zeros_like(state), torch.zeros_like(state, dtype=torch.bool)
        for _ in range(self._num_lookups):
            keys = (current * len(self.symbols) + tokens).contiguous()  # else the search warns and copies
            arcs = torch.searchsorted(tables.keys, keys).clamp(max=len(tables.keys) - 1)
            is_match = (tables.keys[arcs] == keys) & ~is_found
            target = torch.where(is_match, tables.targets[arcs], target)
            step = torch.where(is_match, tables.log_probs[arcs], tables.backoffs[current])
            log_probs = torch.where(is_found, log_probs, log_probs + step)
            is_found = is_found | is_match
            current = tables.fails[current]
        return log_probs, target

    def advance(self, state: Int[Tensor, "batch beam"], tokens: Int[Tensor, "batch beam"]) -> Int[Tensor, "batch beam"]:
        """Return the state after one more symbol. After the end of a sentence it has forgotten the sentence."""
        return self.follow(state, tokens)[1]


class RangeSums:
    """Sums of an n-gram model's probabilities over ranges of symbols, after any state.

    The symbols with an n-gram of their own add what that says beyond the shorter context; all others add the shorter
    context's probability times the back-off weight. So a sum is, at each order, a difference of two cumulative sums.
    """

    def __init__(self, lm: NGram) -> None:
        tables = lm._tables
        self._num_symbols, self._num_orders = len(lm.symbols), lm._num_lookups - 1
        self._keys, self._fails, self._backoffs = tables.keys, tables.fails, tables.backoffs.exp()
        sources = tables.keys // self._num_symbols
        shorter = lm.follow(self._fails[sources], tables.symbols)[0].exp()
        beyond = tables.log_probs.exp() - self._backoffs[sources] * shorter
        self._cumulative = torch.nn.functional.pad(beyond.masked_fill(sources == 0, 0.0).cumsum(0), (1, 0))

    def __call__(
        self,
        state: Int[Tensor, "*shape"],
        first: Int[Tensor, "*shape"],
        last: Int[Tensor, "*shape"],
        single: Float[Tensor, "*shape"],
    ) -> Float[Tensor, "*shape"]:
        """Return the probability of a symbol with first <= symbol < last; `single` is that of single symbols."""
        total, weight = torch.zeros_like(single), torch.ones_like(single)
        for _ in range(self._num_orders):
            keys = state * self._num_symbols
            begin, end = (torch.searchsorted(self._keys, keys + symbol) for symbol in (first, last))
            total = total + weight * (self._cumulative[end] - self._cumulative[begin])
            weight, state = weight * self._backoffs[state], self._fails[state]
        return total + weight * single


def _tables(graph: Automaton, num_symbols: int, has_row: NDArray[np.bool_], dtype: torch.dtype) -> Tables:
    row_of = np.where(has_row, np.cumsum(has_row) - 1, -1)
    counts = np.bincount(graph.sources, minlength=len(has_row))
    return Tables(
        backoffs=torch.tensor(graph.backoffs, dtype=dtype),
        fails=torch.tensor(graph.fails),
        row_of=torch.tensor(row_of),
        first_arc=torch.tensor(np.cumsum(counts) - counts),
        num_listed=torch.tensor(np.where(has_row, 0, counts)),
        rows=torch.tensor(_rows(graph, num_symbols, row_of), dtype=dtype),
        keys=torch.tensor(graph.sources * num_symbols + graph.symbols),
        symbols=torch.tensor(graph.symbols),
        log_probs=torch.tensor(graph.log_probs, dtype=dtype),
        targets=torch.tensor(graph.targets),
    )


def of_tokens(model: arpa.Model, tokens: Tokenizer, row_entries: int = ROW_ENTRIES) -> NGram:
    """Return the scorer whose symbols are the tokens. Raises DataError as `vocabulary.check` does."""
    vocabulary.check(model.words, model.log10_end, model.name, tokens)
    return NGram(model, vocabulary.words_of(tokens), row_entries)


def of_words(model: arpa.Model, row_entries: int = ROW_ENTRIES) -> NGram:
    """Return the scorer of a model's own words: `</s>` is symbol 0 and `<unk>` symbol 1, the others follow."""
    first = (arpa.END, arpa.UNKNOWN)
    return NGram(model, [*first, *(word for word in model.words if word not in (*first, arpa.START))], row_entries)
