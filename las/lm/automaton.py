"""A back-off model as a finite-state automaton with failure (back-off) transitions, built once, in NumPy.

States are contexts. Arcs are n-grams, from their context to their longest suffix that is a context as well. The failure
transition of a state leads to the longest proper suffix of its context. Only contexts that begin an n-gram or have a
back-off weight become states; any other behaves as the state that it fails to.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.lm import arpa
from las.runtime.errors import DataError

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


def build(model: arpa.Model, symbols: Sequence[str]) -> Automaton:
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
    states = _states(is_state, fails, firsts)

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
    """The context that each context fails to, and the context that each n-gram leads to."""
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
    """The longest n-gram that consists of a suffix of each context and of a word."""
    contexts, suffixes = contexts.copy(), np.zeros(len(words), dtype=np.int64)
    missing = np.arange(len(words))
    while len(missing):
        ngrams = arpa.find(keys, contexts[missing] * num_words + words[missing])
        suffixes[missing] = ngrams + 1
        missing = missing[ngrams < 0]  # terminates: every word alone is an n-gram of the empty context
        contexts[missing] = fails[contexts[missing]]
    return suffixes


def _states(is_state: NDArray[np.bool_], fails: Integers, firsts: list[int]) -> Integers:
    """The state of each context: its own, or that of the longest suffix that has one."""
    numbers = np.cumsum(is_state) - 1
    for first, end in pairwise(firsts[1:]):
        numbers[first:end] = np.where(is_state[first:end], numbers[first:end], numbers[fails[first:end]])
    return numbers


def longest_list(automaton: Automaton, num_symbols: int, row_entries: int) -> int:
    """The greatest number of arcs of a state without a row, such that all rows fit into `row_entries` numbers.

    0 if every state has a row.
    """
    length = 0
    while length < num_symbols and with_rows(automaton, length).sum() * num_symbols > row_entries:
        length = min(max(1, 2 * length), num_symbols)
    return length


def with_rows(automaton: Automaton, length: int) -> NDArray[np.bool_]:
    """A mask of the states with more arcs than `length` (0: all states), and of the states that they fail to."""
    has_row = np.bincount(automaton.sources, minlength=len(automaton.fails)) > length
    has_row[0] = True
    if length == 0:
        has_row[:] = True
    for _ in range(automaton.depths.max()):
        has_row[automaton.fails[has_row]] = True
    return has_row


def rows(automaton: Automaton, num_symbols: int, row_of: Integers) -> NDArray[np.float32]:
    """A table of the log-probabilities of all symbols, [rows, symbols]; `row_of` each state is its row, or -1."""
    table = np.zeros((row_of.max() + 1, num_symbols), dtype=np.float32)
    has_row = row_of >= 0
    for depth in range(automaton.depths.max() + 1):
        here = has_row & (automaton.depths == depth)
        if depth:
            table[row_of[here]] = table[row_of[automaton.fails[here]]] + automaton.backoffs[here, None]
        arcs = here[automaton.sources]
        table[row_of[automaton.sources[arcs]], automaton.symbols[arcs]] = automaton.log_probs[arcs]
    return table


def longest_chain(automaton: Automaton, has_row: NDArray[np.bool_]) -> int:
    """The length of the longest chain of failure transitions through states without a row."""
    lengths = np.zeros(len(has_row), dtype=np.int64)
    for depth in range(1, automaton.depths.max() + 1):
        here = ~has_row & (automaton.depths == depth)
        lengths[here] = 1 + lengths[automaton.fails[here]]
    return int(lengths.max())
