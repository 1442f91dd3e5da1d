"""Networks of transcripts: which arcs there are, in which order they are aligned, and what precedes them."""

import pytest

from las.scoring import word_network
from las.scoring.word_network import Marked, Network, parse


def network(text: str) -> Network:
    return word_network.network(parse(Marked(text.split(" "))))


def test_words_follow_each_other():
    assert network("a b") == Network(["a", "b"], [(), (0,), (1,)], (2,))
    assert word_network.network([]) == Network([], [()], (0,))


def test_alternatives_share_their_ends():
    found = network("{ a b / c / @ } d")
    # First the arcs of the node where the alternatives begin, in the order in which they are written.
    assert found.words == ["a", "c", "@", "b", "d"]
    assert found.previous == [(), (0,), (0,), (0,), (1,), (4, 2, 3)]
    assert found.last == (5,)


def test_nested_alternatives_open_where_the_outer_ones_do():
    found = network("x { { a / b } c / d { e / f } }")
    assert found.words == ["x", "a", "b", "d", "c", "e", "f"]
    assert found.previous == [(), (0,), (1,), (1,), (1,), (2, 3), (4,), (4,)]
    assert found.last == (5, 6, 7)


@pytest.mark.parametrize("text", ["{a/b}c", "{ a / b } c", " { a /b}  c ", "{/ a / / b } c", "{ { a } / b } c"])
def test_blanks_and_empty_alternatives_do_not_matter(text):
    assert network(text) == network("{ a / b } c")


def test_an_arc_waits_for_all_that_may_precede_it():
    assert network("{ a / b c } d").words == ["a", "b", "c", "d"]


def test_outside_of_braces_other_marks_are_words():
    assert network("a/b / } x}").words == ["a/b", "/", "}", "x}"]
