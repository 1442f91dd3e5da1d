"""The automaton of a back-off model: what the scorer looks up, worked out once, in NumPy.

States are contexts, arcs the n-grams: from the context to the longest end of the n-gram that is a context again. A
state fails to the longest shorter end of its own context. Only contexts that matter become states: those that begin
an n-gram, or have a back-off weight of their own; any other behaves as the state it fails to.
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
    """States by the length of their context, 0 the empty one; arcs by state and symbol. Logarithms are natural.

    `depths` are the lengths of contexts, `fails` the states they back off to, at the cost of `backoffs`; an arc leads
    from its source by a symbol to its target.
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
    """The automaton of a model whose words are known as `symbols`, by their place in the list.

    N-grams that end in another word are left out. Raises DataError naming symbols that the model lacks.
    """
    ids = {word: index for index, word in enumerate(model.words)}
    if missing := [symbol for symbol in symbols if symbol not in ids]:
        raise DataError(f"{model.name}: the language model lacks {', '.join(map(repr, missing[:10]))}")
    # Contexts in one row, the empty one first: those of k words begin at firsts[k]. The n-gram at place i of all of
    # them, shortest first, is the context i + 1.
    sizes = [len(part.words) for part in model.ngrams]
    firsts = [0, *np.cumsum([1, *sizes[:-1]]).tolist()]
    sources = np.concatenate([part.contexts + first for part, first in zip(model.ngrams, firsts, strict=False)])
    words = np.concatenate([part.words for part in model.ngrams])
    backoffs = np.concatenate([np.zeros(1), *(part.log10_backoffs for part in model.ngrams[:-1])])
    fails, targets = _links(sources, words, firsts, len(ids))

    matters = backoffs != 0
    matters[sources] = True
    matters[0] = True
    states = _states(matters, fails, firsts)

    symbol_of = np.full(len(ids), -1)
    symbol_of[[ids[symbol] for symbol in symbols]] = np.arange(len(symbols))
    arcs = np.flatnonzero(symbol_of[words] >= 0)
    arcs = arcs[np.lexsort((symbol_of[words[arcs]], states[sources[arcs]]))]
    return Automaton(
        start=int(states[1 + ids[arpa.START]]) if model.order > 1 else 0,
        depths=np.repeat(np.arange(model.order), np.diff(firsts))[matters],
        fails=states[fails[matters]],
        backoffs=backoffs[matters] * math.log(10),
        sources=states[sources[arcs]],
        symbols=symbol_of[words[arcs]],
        targets=states[targets[arcs]],
        log_probs=np.concatenate([part.log10_probs for part in model.ngrams])[arcs] * math.log(10),
    )


def _links(sources: Integers, words: Integers, firsts: list[int], num_words: int) -> tuple[Integers, Integers]:
    """The context each context fails to, and the one each n-gram leads to."""
    keys = sources * num_words + words
    fails = np.zeros(firsts[-1], dtype=np.int64)
    targets = np.arange(1, len(words) + 1)
    for size, (first, end) in enumerate(zip(firsts[1:], [*firsts[2:], len(words) + 1], strict=True), start=1):
        arcs = slice(first - 1, end - 1)
        ends = _longest_ends(keys, fails, fails[sources[arcs]], words[arcs], num_words) if size > 1 else 0
        if size < len(firsts) - 1:
            fails[first:end] = ends
        else:
            targets[arcs] = ends
    return fails, targets


def _longest_ends(keys: Integers, fails: Integers, contexts: Integers, words: Integers, num_words: int) -> Integers:
    """The n-gram of each context, or of the first it fails to that has one, and a word."""
    contexts, ends = contexts.copy(), np.zeros(len(words), dtype=np.int64)
    left = np.arange(len(words))
    while len(left):
        places = arpa.find(keys, contexts[left] * num_words + words[left])
        ends[left] = places + 1
        left = left[places < 0]  # every word alone is an n-gram of the empty context: this comes to an end
        contexts[left] = fails[contexts[left]]
    return ends


def _states(matters: NDArray[np.bool_], fails: Integers, firsts: list[int]) -> Integers:
    """The state of each context: its own, or that of the first it fails to that has one."""
    numbers = np.cumsum(matters) - 1
    for first, end in pairwise(firsts[1:]):
        numbers[first:end] = np.where(matters[first:end], numbers[first:end], numbers[fails[first:end]])
    return numbers


def longest_list(automaton: Automaton, num_symbols: int, room: int) -> int:
    """How many arcs a state may have without a row of its own: rows of all others then fit into `room` numbers.

    0: every state has a row.
    """
    length = 0
    while length < num_symbols and with_rows(automaton, length).sum() * num_symbols > room:
        length = min(max(1, 2 * length), num_symbols)
    return length


def with_rows(automaton: Automaton, length: int) -> NDArray[np.bool_]:
    """The states with more arcs than `length` (0: all of them), and those that these fail to."""
    found = np.bincount(automaton.sources, minlength=len(automaton.fails)) > length
    found[0] = True
    if length == 0:
        found[:] = True
    for _ in range(automaton.depths.max()):
        found[automaton.fails[found]] = True
    return found


def rows(automaton: Automaton, num_symbols: int, places: Integers) -> NDArray[np.float32]:
    """Log-probabilities of all symbols after each state whose place is not -1, at its place."""
    table = np.zeros((places.max() + 1, num_symbols), dtype=np.float32)
    has_row = places >= 0
    for depth in range(automaton.depths.max() + 1):
        here = has_row & (automaton.depths == depth)
        if depth:
            table[places[here]] = table[places[automaton.fails[here]]] + automaton.backoffs[here, None]
        arcs = here[automaton.sources]
        table[places[automaton.sources[arcs]], automaton.symbols[arcs]] = automaton.log_probs[arcs]
    return table


def longest_chain(automaton: Automaton, has_row: NDArray[np.bool_]) -> int:
    """The most states without a row that follow each other by failing."""
    lengths = np.zeros(len(has_row), dtype=np.int64)
    for depth in range(1, automaton.depths.max() + 1):
        here = ~has_row & (automaton.depths == depth)
        lengths[here] = 1 + lengths[automaton.fails[here]]
    return int(lengths.max())
