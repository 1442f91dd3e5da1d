"""Transcripts with alternatives as networks of words, numbered the way NIST's sclite numbers them.

A reference in NIST's markup is a string of words between which `{ a b / c / @ }` may stand: one of several ways to say
it, nested if need be, `@` saying nothing. Where alternatives cost the same, sclite takes the one it meets first, so an
alignment that gives its counts needs its order of arcs: that of a first-in, first-out walk over nodes whose incoming
arcs have all been walked.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from las.runtime.errors import DataError

MAX_DEPTH = 30  # levels of nesting; sclite fails at one more, too
BLANKS = " \t\n\v\f\r"
"""Characters that separate words in sclite; other blanks do not."""


class Alternatives(NamedTuple):
    """Alternatives between braces: several sequences of items."""

    sequences: list[list["Item"]]


Item = str | Alternatives | None
"""Word, alternatives, or the empty word."""


class Marked(list[str]):
    """Words of a reference in NIST's markup, which `align` reads; in any other sequence a `{` is a word like others.

    Besides alternatives: `@` is the empty word, what follows a `;` is a tag, a backslash and a final `*` are dropped.
    """


def parse(tokens: Marked) -> list[Item]:
    """Parse the alternatives of a transcript.

    Raises DataError for a `{` that does not begin a word or has no `}`, and for alternatives without a word.
    """
    items, _ = _sequence(" ".join(tokens), 0, depth=0)
    return items


class Network(NamedTuple):
    """Word network as arcs in the order of alignment. Arc 0 is an empty one that precedes all words.

    `words` are the words of the arcs but the first; `previous` has for every arc the arcs that may come before it, and
    `last` the arcs that may come last, in the order in which they are tried.
    """

    words: list[str | None]
    previous: list[tuple[int, ...]]
    last: tuple[int, ...]


def _sequence(text: str, position: int, depth: int) -> tuple[list[Item], int]:
    """Items from a position to the end of the text or, within braces, to the next `/` or `}`; and that position."""
    items: list[Item] = []
    stops = "/}" if depth else ""
    while (position := _skip(text, position)) < len(text) and text[position] not in stops:
        if text[position] == "{":
            alternatives, position = _alternatives(text, position, depth + 1)
            items.append(alternatives)
        else:
            end = position
            while end < len(text) and text[end] not in BLANKS + stops:
                end += 1
            word = text[position:end]
            if "{" in word:
                raise DataError(f"alternatives begin inside the word {word!r}: write a space before the {{")
            items.append(word)
            position = end
    return items, position


def _alternatives(text: str, start: int, depth: int) -> tuple[Alternatives, int]:
    """Return the alternatives that open at `start`, and the position behind their `}`."""
    if depth > MAX_DEPTH:
        raise DataError(f"alternatives {text[start : start + 40]!r} are nested more than {MAX_DEPTH} deep")
    sequences: list[list[Item]] = []
    position = start
    while text[position] != "}":
        items, position = _sequence(text, position + 1, depth)
        if position == len(text):
            raise DataError(f"alternatives {text[start : start + 40]!r} have no closing }}")
        if items:
            sequences.append(items)
    if not sequences:
        raise DataError(f"alternatives {text[start : position + 1]!r} have no word: write @ where nothing is said")
    return Alternatives(sequences), position + 1


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in BLANKS:
        position += 1
    return position


class _Graph:
    """Nodes with their arcs in and out, in the order in which they were connected."""

    def __init__(self) -> None:
        self.words: list[str | None] = []
        self.ends: list[tuple[int, int]] = []
        self.incoming: list[list[int]] = []
        self.outgoing: list[list[int]] = []

    def node(self) -> int:
        self.incoming.append([])
        self.outgoing.append([])
        return len(self.incoming) - 1

    def arc(self, word: str | None, source: int, target: int) -> None:
        self.outgoing[source].append(len(self.words))
        self.incoming[target].append(len(self.words))
        self.words.append(word)
        self.ends.append((source, target))

    def connect(self, items: Sequence[Item], source: int, target: int) -> None:
        for index, item in enumerate(items):
            end = target if index == len(items) - 1 else self.node()
            if isinstance(item, Alternatives):
                for sequence in item.sequences:
                    self.connect(sequence, source, end)
            else:
                self.arc(item, source, end)
            source = end


def network(items: Sequence[Item]) -> Network:
    """Return the network of a transcript, its arcs numbered."""
    graph = _Graph()
    start, first = graph.node(), graph.node()
    stop = graph.node() if items else first
    graph.arc("", start, first)
    graph.connect(items, first, stop)

    number: dict[int, int] = {}
    order: list[int] = []
    missing = [len(arcs) for arcs in graph.incoming]
    ready = deque([start])
    while ready:
        node = ready.popleft()
        for arc in graph.outgoing[node]:
            number[arc] = len(order)
            order.append(arc)
            target = graph.ends[arc][1]
            missing[target] -= 1
            if missing[target] == 0:
                ready.append(target)
    return Network(
        words=[graph.words[arc] for arc in order[1:]],
        previous=[tuple(number[before] for before in graph.incoming[graph.ends[arc][0]]) for arc in order],
        last=tuple(number[arc] for arc in graph.incoming[stop]),
    )
