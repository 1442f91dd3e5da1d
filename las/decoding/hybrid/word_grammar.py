"""Grammars of decoding graphs: from an ARPA file, or all words of a dictionary with the same probability."""

from pathlib import Path

import numpy as np

from las.hmm.fst import EPSILON, Arcs, Fst, Grammar, concatenated
from las.hmm.lexicon import Lexicon
from las.lm import arpa, automaton, word_ngram
from las.runtime import progress
from las.runtime.errors import DataError

_BOUNDARIES = (arpa.START, arpa.END, arpa.UNKNOWN)
_NUM_SHOWN = 5


def read(path: str | Path | None, lexicon: Lexicon) -> Grammar:
    """The grammar of an ARPA file for the words of a dictionary; None for the same probability of all of them.

    Words that only one of them has are left out, and a line says how many. Raises DataError if none remains.
    """
    known = [word for word in lexicon.entries if word not in _BOUNDARIES]
    model = word_ngram.uniform(known, "the dictionary") if path is None else arpa.read(path)
    listed = [word for word in model.words if word not in _BOUNDARIES]
    words = tuple(sorted(set(known) & set(listed)))
    if not words:
        raise DataError(
            f"{model.name}: none of its {len(listed)} words is among the {len(known)} of the dictionary, which begins "
            f"{_shown(known)}, and the grammar {_shown(listed)}: are they of the same language, and in the same case?"
        )
    _say_left_out(model.name, sorted(set(listed) - set(words)), "the dictionary lacks")
    _say_left_out("the dictionary", sorted(set(known) - set(words)), f"{model.name} lacks")
    return of_model(model, words)


def of_model(model: arpa.Model, words: tuple[str, ...]) -> Grammar:
    """The acceptor of a back-off model over words of it. The probability of words that are left out is lost."""
    graph = automaton.build(model, (*words, arpa.END))
    is_end = graph.symbols == len(words)
    finals = np.full(len(graph.fails), np.inf, np.float32)
    finals[graph.sources[is_end]] = -graph.log_probs[is_end]
    said = Arcs(
        graph.sources, graph.symbols + 1, graph.symbols + 1, (-graph.log_probs).astype(np.float32), graph.targets
    )
    said = Arcs(*(each[~is_end] for each in said))
    longer = np.flatnonzero(graph.depths > 0)
    silent = np.full(len(longer), EPSILON)
    costs = (-graph.backoffs[longer]).astype(np.float32)
    return Grammar(
        words, Fst(graph.start, finals, concatenated([said, Arcs(longer, silent, silent, costs, graph.fails[longer])]))
    )


def _say_left_out(name: str, words: list[str], reason: str) -> None:
    if words:
        progress.say(f"{name}: {len(words):,} words that {reason} are left out: {_shown(words)}")


def _shown(words: list[str]) -> str:
    return ", ".join(words[:_NUM_SHOWN]) + (" ..." if len(words) > _NUM_SHOWN else "")
