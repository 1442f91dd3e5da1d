"""Dynamic-programming alignment of hypotheses with references, with the counts of NIST's sclite.

The choice among alignments of equal cost decides how many errors there are of each kind. So costs and order of
preference are sclite's (read from SCTK 2.4; the tests compare with the program), markup included. Costs are kept in
single precision, as in sclite: the thousandths that an empty word costs round differently along different paths, which
decides between paths of equal cost. Many pairs are aligned at once, as word networks where they hold alternatives.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, product
from typing import Any, NamedTuple, cast

import numpy as np

from las.runtime.errors import ArgumentError
from las.scoring import word_network
from las.scoring.word_network import Alternatives, Item, Marked

Table = np.ndarray[Any, np.dtype[Any]]
Tokens = str | Sequence[str] | Sequence[Item]
"""One side of an alignment: a text, which is split at white space, or its words; alternatives may stand among them."""

MATCHED, SUBSTITUTED, DELETED, INSERTED = range(4)
"""Moves into a cell."""

NULL = "@"
"""Empty word, which stands for nothing being said."""

CELLS = 1 << 20  # of the tables that are filled at once, which bounds the memory
_SUBSTITUTION, _NULL_FOR_NULL = 4.0, 1.0
_OMISSION, _OPTIONAL_OMISSION, _NULL_OMISSION = 3.0, 2.0, 0.001
_KINDS = ("correct", "substitution", "deletion", "insertion")  # by move

_TAGS = re.compile(r"(?<!\\);.*", re.DOTALL)
_TWO_WORDS = re.compile(r"\S\s+\S", re.ASCII)
_CAPITALS = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def fill(
    substitutions: Table, deletions: Table, insertions: Table, before_reference: Table, before_hypothesis: Table
) -> tuple[Table, Table]:
    """Fill the tables of least costs and of moves for pairs of arcs: both [reference hypothesis batch].

    Costs of words: `substitutions` [reference hypothesis batch], infinite for arc 0, `deletions` [reference batch],
    `insertions` [hypothesis batch]. Predecessors of each arc: `before_reference` [choices reference batch] and
    `before_hypothesis`, which have lower numbers; arc 0 precedes itself. Of moves of equal cost a match or
    substitution is preferred to an insertion, and that to a deletion. Cells whose arc numbers have the same sum depend
    on cells of smaller sums only and are computed together.
    """
    rows, columns, lanes = substitutions.shape
    lane = np.arange(lanes)
    above = before_reference * (columns * lanes) + lane
    left = before_hypothesis * lanes + lane
    costs = np.full((rows * columns, lanes), np.inf, np.float32)
    costs[0] = 0
    entered = np.full_like(costs, np.inf)  # the least cost in the same row of a cell whose arc may come before
    moves = np.zeros(costs.shape, np.int8)
    for total in range(1, rows + columns - 1):
        row = np.arange(max(0, total - columns + 1), min(rows, total + 1))
        column = total - row
        cells = row * columns + column
        in_row, in_column = (row * columns * lanes)[:, None], (column * lanes)[:, None]
        entered[cells] = _least(costs, left[:, column] + in_row)
        inserted = entered[cells] + insertions[column]
        deleted = _least(costs, above[:, row] + in_column) + deletions[row]
        price = substitutions[row, column]
        substituted = _least(entered, above[:, row] + in_column) + price
        omitted = np.minimum(deleted, inserted)
        costs[cells] = np.minimum(substituted, omitted)
        moves[cells] = np.where(
            substituted <= omitted,
            np.where(price == 0, MATCHED, SUBSTITUTED),
            np.where(deleted < inserted, DELETED, INSERTED),
        )
    return costs.reshape(substitutions.shape), moves.reshape(substitutions.shape)


def _least(table: Table, choices: Table) -> Table:
    return table.take(choices).min(axis=0)


class Aligned(NamedTuple):
    """Reference token and the hypothesis token aligned with it, in compared form; None where there is none.

    `kind` is "correct", "substitution", "deletion" or "insertion". An optional word without a partner is correct.
    """

    reference: str | None
    hypothesis: str | None
    kind: str


@dataclass(frozen=True)
class AlignmentRules:
    """Options of NIST for comparing words.

    `optional_words`: a `(word)` of a reference may be left out, and is compared without its brackets (sclite's -D,
    which reads them in hypotheses too: here only in hypotheses that are `Marked`). `fragments`:
    `frag-` matches every word that begins with it, `-ment` every word that ends with it (-F). `ignore_case`: the
    letters A to Z are those a to z, and no other letters change, as in sclite (off: -s).
    """

    optional_words: bool = False
    fragments: bool = False
    ignore_case: bool = True


def fold_case(text: str) -> str:
    """Lower-case the letters A to Z and no others, as sclite does with words and ids when it ignores case."""
    return text.translate(_CAPITALS)


def untagged(token: str) -> str:
    """Drop of a token what sclite drops: tags behind a semicolon, backslashes, and a final asterisk."""
    text = _TAGS.sub("", token).replace("\\", "")
    return text.removesuffix("*") if len(text) > 1 else text


class _Word(NamedTuple):
    """Token in printed form (`text`) and compared form (`spoken`), with the cost of omitting it."""

    text: str
    spoken: str
    omission: float
    fragment: bool

    @property
    def is_null(self) -> bool:
        return self.omission == _NULL_OMISSION


class _Reading(NamedTuple):
    """Meaning of the signs in a token: `markup` for those of NIST, `optional_words` for brackets around it."""

    markup: bool
    optional_words: bool


class _Vocabulary:
    """Numbered words of one call of `align`; number 0 is the empty arc that precedes all words."""

    def __init__(self, rules: AlignmentRules) -> None:
        self.words = [_Word("", "", _OMISSION, fragment=False)]
        self.spoken = [-1]  # the same number for words that are spelt the same
        self._rules = rules
        self._numbers: dict[_Reading, dict[str | None, int]] = defaultdict(dict)
        self._spellings: dict[str, int] = {}

    def numbers(self, tokens: Sequence[str | None], reading: _Reading) -> list[int]:
        known = self._numbers[reading]
        for token in tokens:
            if token not in known:
                known[token] = self._added(_word(token, self._rules, reading))
        return [0, *map(known.__getitem__, tokens)]

    def _added(self, word: _Word) -> int:
        self.words.append(word)
        self.spoken.append(self._spellings.setdefault(word.spoken, len(self._spellings)))
        return len(self.words) - 1


def _word(token: str | None, rules: AlignmentRules, reading: _Reading) -> _Word:
    """Parse a token; of one in markup, drop what sclite drops: tags, backslashes, and a final asterisk."""
    if token is None:
        return _Word(NULL, NULL, _NULL_OMISSION, fragment=False)
    if not isinstance(token, str) or _TWO_WORDS.search(token):
        raise ArgumentError(f"{token!r} is no word: a list holds words, a text of several is a string by itself")
    text = untagged(token) if reading.markup else token
    if rules.ignore_case:
        text = fold_case(text)
    optional = reading.optional_words and len(text) > 1 and text[0] == "(" and text[-1] == ")"
    spoken = text[1:-1] if optional else text
    # An optional fragment is known by its end only, though compared by its beginning too: so it is in sclite.
    fragment = rules.fragments and (text.startswith("-") or spoken.endswith("-"))
    is_null = reading.markup and text == NULL
    omission = _NULL_OMISSION if is_null else _OPTIONAL_OMISSION if optional else _OMISSION
    return _Word(text, spoken, omission, fragment)


class _Side(NamedTuple):
    """Reference or hypothesis of a pair; without `alternatives` its words form a chain."""

    numbers: list[int]
    alternatives: word_network.Network | None


class _Pair(NamedTuple):
    place: int
    reference: _Side
    hypothesis: _Side


def align(
    references: Sequence[Tokens], hypotheses: Sequence[Tokens], rules: AlignmentRules = AlignmentRules()
) -> list[list[Aligned]]:
    """Align each hypothesis with the reference at the same index.

    Words are compared as they are spelt, by `rules`; only in `Marked` ones is `{ a / b / @ }` a list of alternatives
    and `@` the empty word. Raises DataError for alternatives that are not closed, ArgumentError for a word that holds a
    blank or is no string, and ValueError unless there are as many references as hypotheses.

    >>> from las.scoring.alignment import align
    >>> from las.scoring.word_network import Alternatives, Item, Marked
    >>> (pairs,) = align([Marked("the cat { sat / sits } down".split())], ["the cat sits"])
    >>> for each in pairs:
    ...     print(each.reference, each.hypothesis, each.kind)
    ...
    the the correct
    cat cat correct
    sits sits correct
    down None deletion
    """
    vocabulary = _Vocabulary(rules)
    alignments: list[list[Aligned]] = []
    pairs = []
    for index, (reference, hypothesis) in enumerate(zip(references, hypotheses, strict=True)):
        in_hypothesis = rules.optional_words and isinstance(hypothesis, Marked)
        spoken = _side(reference, vocabulary, rules.optional_words)
        pair = _Pair(index, spoken, _side(hypothesis, vocabulary, in_hypothesis))
        alignments.append(_identical(pair, vocabulary))
        if not alignments[index]:
            pairs.append(pair)
    for batch in _batches(pairs):
        for pair, alignment in zip(batch, _align(batch, vocabulary), strict=True):
            alignments[pair.place] = alignment
    return alignments


def _side(tokens: Tokens, vocabulary: _Vocabulary, optional_words: bool) -> _Side:
    reading = _Reading(isinstance(tokens, Marked), optional_words)
    if not isinstance(tokens, Iterable) or isinstance(tokens, Mapping | Set):
        raise ArgumentError(f"{tokens!r} is neither a text nor a list of words")
    items: Sequence[Item] = tokens.split() if isinstance(tokens, str) else [*tokens]
    if isinstance(tokens, Marked) and "{" in "".join(tokens):
        items = word_network.parse(tokens)
    if not any(isinstance(item, Alternatives) for item in items):
        return _Side(vocabulary.numbers(cast(Sequence[str], items), reading), None)
    network = word_network.network(items)
    return _Side(vocabulary.numbers(network.words, reading), network)


def _plain(pair: _Pair) -> bool:
    return pair.reference.alternatives is None and pair.hypothesis.alternatives is None


def _identical(pair: _Pair, vocabulary: _Vocabulary) -> list[Aligned]:
    """Alignment of a pair whose sides are identical and without alternatives; empty for every other pair."""
    if not _plain(pair) or pair.reference.numbers != pair.hypothesis.numbers:
        return []
    words = [vocabulary.words[number] for number in pair.reference.numbers[1:]]
    return [Aligned(word.text, word.text, "correct") for word in words if not word.is_null]


def _batches(pairs: Sequence[_Pair]) -> Iterator[list[_Pair]]:
    """Group pairs of similar size, with at most CELLS cells in groups of more than one pair."""

    def size(pair: _Pair) -> tuple[bool, int, int]:
        numbers = len(pair.reference.numbers), len(pair.hypothesis.numbers)
        return _plain(pair), max(numbers) // 4, min(numbers) // 4

    for (_, longer, shorter), group in groupby(sorted(pairs, key=size), key=size):
        members = list(group)
        step = max(1, CELLS // (16 * (longer + 1) * (shorter + 1)))
        yield from (members[start : start + step] for start in range(0, len(members), step))


def _align(batch: Sequence[_Pair], vocabulary: _Vocabulary) -> Iterator[list[Aligned]]:
    reference = _numbers([pair.reference for pair in batch])
    hypothesis = _numbers([pair.hypothesis for pair in batch])
    omissions = np.array([word.omission for word in vocabulary.words], np.float32)
    costs, moves = fill(
        substitutions=_substitutions(reference, hypothesis, vocabulary),
        deletions=omissions[reference],
        insertions=omissions[hypothesis],
        before_reference=_previous([pair.reference for pair in batch], len(reference)),
        before_hypothesis=_previous([pair.hypothesis for pair in batch], len(hypothesis)),
    )
    by_pair = np.ascontiguousarray(np.moveaxis(moves, 2, 0))
    for lane, pair in enumerate(batch):
        yield _trace(pair, costs[:, :, lane], by_pair[lane], vocabulary)


def _numbers(sides: Sequence[_Side]) -> Table:
    """Word numbers [arcs batch], padded with 0."""
    longest = max(len(side.numbers) for side in sides)
    table = np.zeros((len(sides), longest), np.int64)
    for row, side in zip(table, sides, strict=True):
        row[: len(side.numbers)] = side.numbers
    return np.ascontiguousarray(table.T)


def _previous(sides: Sequence[_Side], longest: int) -> Table:
    """Predecessors of each arc [choices arcs batch]; the last one is repeated as padding."""
    networks = [(lane, side.alternatives.previous) for lane, side in enumerate(sides) if side.alternatives is not None]
    choices = max((len(arcs) for _, previous in networks for arcs in previous), default=1)
    chain = np.maximum(np.arange(longest) - 1, 0)
    table = np.broadcast_to(chain[:, None], (choices, longest, len(sides))).copy()
    for lane, previous in networks:
        for arc, arcs in enumerate(previous[1:], start=1):
            table[:, arc, lane] = [*arcs, *[arcs[-1]] * (choices - len(arcs))]
    return table


def _substitutions(references: Table, hypotheses: Table, vocabulary: _Vocabulary) -> Table:
    """Costs of substitutions [reference hypothesis batch]; infinite for arc 0."""
    spelling = np.array(vocabulary.spoken)
    table = np.where(spelling[references][:, None] == spelling[hypotheses], np.float32(0), np.float32(_SUBSTITUTION))
    special = np.array([word.fragment or word.is_null for word in vocabulary.words])
    if special.any():
        for place in np.argwhere(special[references][:, None] | special[hypotheses]):
            row, column, lane = place.tolist()
            reference = vocabulary.words[references[row, lane]]
            hypothesis = vocabulary.words[hypotheses[column, lane]]
            table[row, column, lane] = _substitution(reference, hypothesis)
    table[0] = table[:, 0] = np.inf
    return table


def _substitution(reference: _Word, hypothesis: _Word) -> float:
    if reference.is_null and hypothesis.is_null:
        return _NULL_FOR_NULL
    if reference.fragment or hypothesis.fragment:
        for part, whole in ((reference.spoken, hypothesis.spoken), (hypothesis.spoken, reference.spoken)):
            if len(part) > 1 and part.startswith("-"):
                return 0.0 if whole.endswith(part[1:]) else _SUBSTITUTION
            if len(part) > 1 and part.endswith("-"):
                return 0.0 if whole.startswith(part[:-1]) else _SUBSTITUTION
    return 0.0 if reference.spoken == hypothesis.spoken else _SUBSTITUTION


def _trace(pair: _Pair, costs: Table, moves: Table, vocabulary: _Vocabulary) -> list[Aligned]:
    words, references, hypotheses = vocabulary.words, pair.reference.numbers, pair.hypothesis.numbers
    before_reference, before_hypothesis = _before(pair.reference), _before(pair.hypothesis)
    row, column = _cheapest(costs, _last(pair.reference), _last(pair.hypothesis))
    columns, path = moves.shape[1], moves.tobytes()
    alignment = []
    while row or column:
        move = path[row * columns + column]
        reference = words[references[row]] if move != INSERTED else None
        hypothesis = words[hypotheses[column]] if move != DELETED else None
        aligned = _aligned(reference, hypothesis, _KINDS[move])
        if aligned is not None:
            alignment.append(aligned)
        row, column = _cheapest(
            costs,
            (row,) if reference is None else before_reference[row],
            (column,) if hypothesis is None else before_hypothesis[column],
        )
    return alignment[::-1]


def _aligned(reference: _Word | None, hypothesis: _Word | None, kind: str) -> Aligned | None:
    """Aligned tokens of a pair of arcs, or of one arc without a partner; None for empty words."""
    if reference is None or hypothesis is None:
        (word,) = (word for word in (reference, hypothesis) if word is not None)
        if word.is_null:
            return None
        if word.omission == _OPTIONAL_OMISSION:
            kind = "correct"
    elif reference.is_null and hypothesis.is_null:
        return None
    return Aligned(reference and reference.text, hypothesis and hypothesis.text, kind)


def _cheapest(costs: Table, rows: Sequence[int], columns: Sequence[int]) -> tuple[int, int]:
    """First of the cheapest cells, in the order of rows and then of columns."""
    if len(rows) == len(columns) == 1:
        return rows[0], columns[0]
    return min(product(rows, columns), key=lambda cell: costs[cell])


def _before(side: _Side) -> Sequence[tuple[int, ...]]:
    return _chain(len(side.numbers)) if side.alternatives is None else side.alternatives.previous


def _last(side: _Side) -> tuple[int, ...]:
    return (len(side.numbers) - 1,) if side.alternatives is None else side.alternatives.last


@lru_cache
def _chain(length: int) -> list[tuple[int, ...]]:
    return [(max(0, arc - 1),) for arc in range(length)]
