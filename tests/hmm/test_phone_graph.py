"""The graph of all sequences of phones, and forward-backward through it: sums over paths that are enumerated."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from las.hmm import occupancies
from las.hmm.decision_tree import Leaf, Question, Split
from las.hmm.occupancies import log_totals
from las.hmm.phone_graph import PhoneGraph, phone_graph, restricted
from las.hmm.topology import StateNumbering, Topology, TransitionCosts
from las.hmm.tying import TiedStates
from las.runtime.errors import DataError

CHEAP = TransitionCosts(loop=0.5, forward=0.2, skip=1.0, exit=0.3)
PHONES = Topology("ab", speech=CHEAP)


def tied() -> TiedStates:
    """States of `a` that differ after an `a`, and states of `b` that know no neighbours."""
    after_a = (Split(Question("left", frozenset("a")), 1, 2), Leaf(0), Leaf(1))
    return TiedStates(PHONES, {"a": [after_a, (Leaf(2),), (Leaf(3),)], "b": [(Leaf(4),), (Leaf(5),), (Leaf(6),)]})


def dense(graph: PhoneGraph) -> np.ndarray:
    """Factors from each state to each state, over junctions too."""
    places = len(graph.pdfs) + graph.num_junctions
    arcs = np.zeros((places, places))
    np.add.at(arcs, (graph.sources, graph.targets), graph.weights)
    states = len(graph.pdfs)
    return arcs[:states, :states] + arcs[:states, states:] @ arcs[states:, :states]


def by_paths(graph: PhoneGraph, emissions: torch.Tensor, allowed: torch.Tensor) -> tuple[float, torch.Tensor]:
    """The sum over all allowed paths of one chunk, and the occupancies, path by path."""
    factors, moves = (emissions.exp() * allowed).numpy(), dense(graph)
    total, occupied = 0.0, np.zeros(emissions.shape)
    for path in itertools.product(range(len(graph.pdfs)), repeat=len(emissions)):
        weight = graph.initial[path[0]] * math.prod(moves[pair] for pair in itertools.pairwise(path))
        if weight:
            weight *= math.prod(factors[frame, graph.pdfs[state]] for frame, state in enumerate(path))
            total += weight
            for frame, state in enumerate(path):
                occupied[frame, graph.pdfs[state]] += weight
    return math.log(total), torch.from_numpy(occupied / total)


@pytest.mark.parametrize("states", [PHONES, tied()], ids=["phones", "triphones"])
def test_sums_and_occupancies_are_those_of_all_paths(states: StateNumbering) -> None:
    graph = phone_graph([["a", "b", "a"], ["b"]], states, lm_scale=2.0)
    emissions = torch.randn(2, 4, states.num_pdfs, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    some, every = emissions > emissions.quantile(0.2), torch.ones_like(emissions, dtype=torch.bool)
    for implementation, allowed in itertools.product((occupancies.by_torch, occupancies.compiled), (None, some)):
        totals, occupied = implementation(emissions, torch.tensor([4, 3]), graph, allowed)
        for row, length in enumerate((4, 3)):
            total, expected = by_paths(
                graph, emissions[row, :length], (every if allowed is None else some)[row, :length]
            )
            assert float(totals[row]) == pytest.approx(total)
            torch.testing.assert_close(occupied[row, :length], expected)
        assert not occupied[1, 3:].any()


def test_a_phone_has_the_trigrams_of_the_sentences_alone() -> None:
    graph = phone_graph([["a", "b", "a"], ["a", "a"]], PHONES, lm_scale=4.0)
    moves, loop = dense(graph), math.exp(-0.5 / 4)
    assert np.allclose(np.diag(moves), loop) and math.isclose(graph.initial.sum(), 1.0)
    first, last = slice(None, None, 3), slice(2, None, 3)
    left = moves[last, first].sum(1)
    # What leaves a phone is shared out over the next trigrams; a phone that always ends its sentence leads nowhere.
    assert np.logical_or(np.isclose(left, 0.0), np.isclose(left, math.exp(-0.3 / 4))).all() and left.sum() > 0
    inner = {(source % 3, target % 3) for source, target in np.argwhere(moves) if source // 3 == target // 3}
    assert {(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)} <= inner


def test_units_of_equal_states_and_right_neighbours_are_one() -> None:
    sentences = [["b", "a", "b"], ["a", "a", "b"]]
    of_phones, of_triphones = phone_graph(sentences, PHONES), phone_graph(sentences, tied())
    # b-a-b and a-a-b differ where states see the left neighbour, and are one where they do not.
    assert len(of_triphones.pdfs) == len(of_phones.pdfs) + 3
    assert set(of_triphones.pdfs.tolist()) == set(range(7))


@given(st.sets(st.integers(0, 8), min_size=1))
def test_a_part_of_a_graph_has_the_paths_of_its_states(pdfs: set[int]) -> None:
    graph, chosen = phone_graph([["a", "b", "c", "a"], ["c", "b"]], Topology("abc")), torch.tensor(sorted(pdfs))
    emissions = torch.randn(1, 5, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(len(pdfs)))
    allowed = torch.zeros_like(emissions, dtype=torch.bool).index_fill(2, chosen, True)
    part, length = restricted(graph, chosen.numpy()), torch.tensor([5])
    ours, expected = log_totals(emissions[..., chosen], length, part), log_totals(emissions, length, graph, allowed)
    torch.testing.assert_close(ours, expected)


def test_without_phones_there_is_no_graph() -> None:
    with pytest.raises(DataError, match="no phones to count"):
        phone_graph([[]], PHONES)


@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), min_size=1, max_size=4),
    st.lists(st.integers(0, 40), min_size=1, max_size=35),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([1, -1]),
    st.sampled_from([0.0, 0.1, 0.8]),
)
def test_the_compiled_loop_computes_what_torch_does(
    sentences: list[list[str]], lengths: list[int], dtype: torch.dtype, order: int, refused: float
) -> None:
    graph = phone_graph(sentences, Topology("abc"), lm_scale=10.0)
    generator = torch.Generator().manual_seed(len(lengths))
    emissions = torch.randn(len(lengths), 9, max(1, *lengths), generator=generator, dtype=dtype)
    emissions = emissions.mT if order > 0 else emissions.mT.contiguous()
    given = 3 * emissions, torch.tensor(lengths), graph, torch.rand(emissions.shape, generator=generator) >= refused
    ours, expected = (each(*given) for each in (occupancies.compiled, occupancies.by_torch))
    assert torch.equal(ours.log_totals == -math.inf, expected.log_totals == -math.inf)
    torch.testing.assert_close(ours.log_totals, expected.log_totals, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.occupancies, expected.occupancies, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("largest", [0.0, 1e3, -1e3])
def test_scores_of_any_size_have_finite_sums(largest: float) -> None:
    graph = phone_graph([["a", "b"]], PHONES)
    emissions = torch.full((1, 60, 6), -2000.0)
    emissions[..., 0] = largest  # after the first phone nothing but b can follow
    totals = log_totals(emissions.requires_grad_(), torch.tensor([60]), graph)
    totals.sum().backward()
    assert emissions.grad is not None and emissions.grad.isfinite().all() and totals.isfinite().all()
    torch.testing.assert_close(emissions.grad.sum(-1), torch.ones(1, 60))


def test_gradients_are_those_of_finite_differences() -> None:
    graph = phone_graph([["a", "b", "a"]], tied())
    emissions = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([5, 2, 0])
    assert torch.autograd.gradcheck(lambda given: log_totals(given, lengths, graph), (emissions,))
