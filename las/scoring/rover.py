"""ROVER: one transcript of the words of several systems, by alignment and voting (Fiscus 1997).

The first transcript is a chain of slots, each with a word. One by one the others are aligned with the chain by dynamic
programming and add their words to its slots; a slot that a system has no word for gets an empty one from it, and a word
that no slot takes makes a slot, with empty words of the systems before. Then each slot is voted on:

    score(w) = alpha * systems with w / systems + (1 - alpha) * confidence(w)

where the confidence of a word is the mean of those that systems have for it, or the largest, and that of the empty word
is given. Costs and the choice among ties are those of NIST's program rover (SCTK).
"""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

FREE, INSERTION, SUBSTITUTION = np.float32(0.0), np.float32(3.0), np.float32(4.0)
"""Costs of a word in its slot, of a word without a slot (or a slot of words without one), and of one among others."""
EMPTY_SUBSTITUTION, EMPTY_DELETION = np.float32(1.0), np.float32(0.001)
"""Costs of a word in the place of an empty one, and of an empty one without a word."""

CONFIDENCES: dict[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "max": max}
"""How the confidences of one word from several systems are one."""


class Word(NamedTuple):
    """A word of a system, None for the empty one, and how sure it is of it, 0 to 1."""

    text: str | None
    confidence: float


Slot = list[Word]
"""A word of each system, in the order in which they were added."""


def combine(
    transcripts: Sequence[Sequence[Word]], alpha: float = 1.0, null_confidence: float = 0.0, confidence: str = "mean"
) -> list[Word]:
    """Return the words that win; those of equal scores that came first into their slot.

    Args:
        transcripts: the words of each system for one utterance, at least one system; the first has most say in ties.
        alpha: the share of votes in the score, 1 for votes alone.
        null_confidence: of empty words.
        confidence: `mean` or `max`.

    >>> from las.scoring.rover import Word, combine
    >>> texts = ("six sick sheep", "six sheep", "six thick sheep", "fix sick sheep")
    >>> [word.text for word in combine([[Word(word, 1.0) for word in text.split()] for text in texts])]
    ['six', 'sick', 'sheep']
    """
    empty = Word(None, null_confidence)
    chain: list[Slot] = [[word] for word in transcripts[0]]
    for number, words in enumerate(transcripts[1:], start=1):
        chain = _added(chain, words, number, empty)
    won = [_winner(slot, alpha, CONFIDENCES[confidence]) for slot in chain]
    return [word for word in won if word.text is not None]


def _winner(slot: Slot, alpha: float, one_of: Callable[[Sequence[float]], float]) -> Word:
    """Return the word of the highest score, with the mean of its confidences."""
    found: dict[str | None, list[float]] = {}
    for word in slot:
        found.setdefault(word.text, []).append(word.confidence)
    scores = {text: alpha * len(each) / len(slot) + (1 - alpha) * one_of(each) for text, each in found.items()}
    best = max(scores, key=lambda text: scores[text])
    return Word(best, fmean(found[best]))


class _Cell(NamedTuple):
    """The least cost of a word of a slot after some words of a transcript, and how it came about."""

    cost: np.float32
    move: str
    before: int
    """Place in the slot before, of the word that the path comes from."""


def _added(chain: list[Slot], words: Sequence[Word], number: int, empty: Word) -> list[Slot]:
    """Return a chain of `number` systems with the words of one more."""
    start = [_Cell(INSERTION * np.float32(column), "insert", 0) for column in range(len(words) + 1)]
    table = [[start]]  # by slot, of its words, by the number of words of the transcript
    for slot in chain:
        ends = [_first_of_least([row[column] for row in table[-1]]) for column in range(len(words) + 1)]
        table.append([_row(word, words, ends) for word in slot])

    place, column, found = _first_of_least([row[-1] for row in table[-1]])[1], len(words), list[Slot]()
    while len(table) > 1 or column:
        move, before = table[-1][place][column][1:]
        if move == "insert":
            found.append([words[column - 1], *[empty] * number])
        else:
            found.append([*chain[len(table) - 2], words[column - 1] if move == "substitute" else empty])
            table.pop()
            place = before
        column -= move != "delete"
    return found[::-1]


def _row(word: Word, words: Sequence[Word], ends: Sequence[tuple[np.float32, int]]) -> list[_Cell]:
    """Return the cells of one word of a slot; `ends` are least costs and places in the slot before."""
    is_empty = word.text is None
    deletion = EMPTY_DELETION if is_empty else INSERTION
    row = [_Cell(ends[0][0] + deletion, "delete", ends[0][1])]
    for column, heard in enumerate(words, start=1):
        change = FREE if heard.text == word.text else EMPTY_SUBSTITUTION if is_empty else SUBSTITUTION
        (diagonal, corner), (above, place) = ends[column - 1], ends[column]
        choices = (
            _Cell(diagonal + change, "substitute", corner),
            _Cell(row[-1].cost + INSERTION, "insert", 0),
            _Cell(above + deletion, "delete", place),
        )
        row.append(min(choices, key=lambda cell: cell.cost))
    return row


def _first_of_least(cells: Sequence[_Cell]) -> tuple[np.float32, int]:
    """Return the least cost, and the first place that has it."""
    costs = [cell.cost for cell in cells]
    return min(costs), costs.index(min(costs))
