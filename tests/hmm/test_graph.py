"""Graphs of a text hold every way to say it in its contexts, and no other; best paths are those of a plain search."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from toy_hmm import EVEN, best_path, toy, toy_graph, toy_scores

from las.hmm import aligner, gmm, lexicon
from las.hmm.decision_tree import Growth, edge, visits
from las.hmm.gmm import Example, Round, Schedule
from las.hmm.graph import AlignmentGraph, alignment_graph, first_path
from las.hmm.topology import NUM_STATES, Topology, TransitionCosts, Triphone
from las.hmm.viterbi import BestPath, batched, viterbi

Search = Callable[[torch.Tensor, torch.Tensor, Sequence[AlignmentGraph]], list[BestPath | None]]
Found = tuple[list[AlignmentGraph], list[np.ndarray], list[BestPath | None]]


def toys(seeds: range, frames: list[int], search: Search = viterbi) -> Found:
    graphs = [toy_graph(seed) for seed in seeds]
    scores = [toy_scores(seed, count) for seed, count in zip(seeds, frames, strict=True)]
    padded = np.full((len(scores), max(frames), scores[0].shape[1]), np.nan)  # padding must not be looked at
    for row, each in enumerate(scores):
        padded[row, : len(each)] = each
    found = search(torch.from_numpy(padded), torch.tensor(frames), graphs)
    return graphs, scores, found


NUM_TOYS = [100, pytest.param(1000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("search", [viterbi, batched])
@pytest.mark.parametrize("num_toys", NUM_TOYS)
def test_toys_equal_the_reference(num_toys: int, search: Search) -> None:
    none = 0
    for start in range(0, num_toys, 50):
        seeds = range(start, start + 50)
        graphs, scores, found = toys(seeds, [5 + 37 * seed % 23 for seed in seeds], search)
        for graph, each, path in zip(graphs, scores, found, strict=True):
            score, states = best_path(graph, each)
            if path is None:
                assert score == -np.inf
                none += 1
            else:
                assert path.score == pytest.approx(score, rel=1e-9) and path.states.tolist() == states
    assert 0 < none < num_toys / 2


class EveryTriphone:
    """States of their own for every triphone, numbered as they are met."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.met: dict[Triphone, int] = {}

    @property
    def num_pdfs(self) -> int:
        return NUM_STATES * len(self.met)

    def owners(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        phones = [self.topology.phones.index(triphone.phone) for triphone in self.met]
        return np.repeat(phones, NUM_STATES), np.tile(np.arange(NUM_STATES), len(phones))

    @property
    def content_hash(self) -> str:
        return "every"

    def in_context(self, triphone: Triphone, where: str = "") -> tuple[int, ...]:
        first = NUM_STATES * self.met.setdefault(triphone, len(self.met))
        return tuple(range(first, first + NUM_STATES))

    def costs(self, phone: str) -> TransitionCosts:
        return self.topology.costs(phone)

    def neighbour(self, phone: str | None) -> str | None:
        return edge(self.topology) if phone is None else phone


def ways(seed: int) -> Iterator[list[str]]:
    """Phones of all ways to say the text of a toy: each pronunciation, with silence or without it at every place."""
    words, entries, _ = toy(seed)
    pauses = [[]] if entries.silence is None else [[], [entries.silence]]
    for chosen in itertools.product(*(entries.entries[word] for word in words)):
        for silences in itertools.product(pauses, repeat=len(words) + 1):
            parts = [[*variant.phones, *pause] for variant, pause in zip(chosen, silences[1:], strict=True)]
            yield [*silences[0], *itertools.chain.from_iterable(parts)]


def paths(graph: AlignmentGraph) -> Iterator[list[int]]:
    """Segments of all paths, from the first to a last one."""
    followers: dict[int, set[int]] = {}
    for state in range(0, len(graph.pdfs), NUM_STATES):
        arrivals = graph.sources[state][graph.scores[state] > -np.inf]
        for source in arrivals[arrivals != state]:
            followers.setdefault(int(source) // NUM_STATES, set()).add(state // NUM_STATES)
    waiting = [[int(state) // NUM_STATES] for state in np.flatnonzero(graph.initial > -np.inf)]
    while waiting:
        path = waiting.pop()
        if graph.final[NUM_STATES * path[-1] + NUM_STATES - 1] > -np.inf:
            yield path
        waiting += [[*path, after] for after in followers.get(path[-1], ())]


def test_paths_are_the_ways_to_say_the_text_in_their_contexts() -> None:
    for seed in range(40):
        words, entries, topology = toy(seed)
        states = EveryTriphone(topology)
        graph = alignment_graph(words, entries, states)
        triphones = {first: triphone for triphone, first in states.met.items()}
        found = sorted(
            [triphones[int(graph.pdfs[NUM_STATES * each]) // NUM_STATES] for each in path] for path in paths(graph)
        )
        outside = edge(topology)
        expected = []
        for phones in {tuple(way) for way in ways(seed)}:
            around = (outside, *phones, outside)
            expected.append([Triphone(*around[place : place + 3]) for place in range(len(phones))])
        assert sorted(map(tuple, expected)) == sorted({tuple(each) for each in found})
        reached = {each for path in paths(graph) for each in path}
        assert reached == set(range(len(graph.segments))), "no copy leads nowhere"


PHONES = lexicon.of_phones("abc")
TOPOLOGY = Topology(PHONES.phones, speech=EVEN)


def coloured(count: int) -> tuple[list[Example], dict[str, list[str]]]:
    """Texts in which the first state of each phone after an `a` sounds otherwise than after other ones."""
    torch.manual_seed(4)
    centres = 4.0 * torch.randn(TOPOLOGY.num_pdfs, 6)
    examples, texts = [], {}
    for number in range(count):
        text = [PHONES.phones[index] for index in torch.randint(3, (6,)).tolist()]
        path = first_path(text, PHONES, TOPOLOGY)
        means = centres[path]
        for place in range(1, len(text)):
            means[NUM_STATES * place] += 3.0 * (text[place - 1] == "a")
        lasting = torch.randint(2, 6, (len(path),))
        features = means.repeat_interleave(lasting, dim=0) + torch.randn(int(lasting.sum()), 6)
        name = f"u{number:03d}"
        examples.append(Example(name, features, alignment_graph(text, PHONES, TOPOLOGY), path))
        texts[name] = text
    return examples, texts


def test_triphones_go_on_from_monophones_and_their_score_does_not_fall() -> None:
    examples, texts = coloured(60)
    mixtures = gmm.train(examples, TOPOLOGY.num_pdfs, Schedule(8, 0, 0))
    tied = aligner.tied(examples, mixtures, TOPOLOGY, Growth(50, 100.0))
    for phone in PHONES.phones:
        after = [tied.in_context(Triphone(left, phone, "b")) for left in PHONES.phones]
        assert after[0][0] != after[1][0] == after[2][0], "the planted context"
        assert len({pdfs[1:] for pdfs in after}) == 1, "and no other one"
    going_on = aligner.continued(examples, mixtures, texts, PHONES, tied)
    assert all(len(each.first_path) == len(each.features) for each in going_on)
    rounds: list[Round] = []
    found = gmm.train(going_on, tied.num_pdfs, Schedule(4, 1, 3), rounds.append)
    for before, now in itertools.pairwise(rounds):
        assert now.num_components != before.num_components or now.score >= before.score - 1e-4
    for example, path in gmm.paths(going_on, found):
        assert path is not None
        assert [visit.triphone.phone for visit in visits(example.graph, path, None)] == texts[example.id]


def test_utterances_that_are_too_short_are_left_out() -> None:
    examples, texts = coloured(20)
    examples[3] = examples[3]._replace(features=examples[3].features[:9])
    mixtures = gmm.train(examples, TOPOLOGY.num_pdfs, Schedule(2, 0, 0))
    going_on = aligner.continued(examples, mixtures, texts, PHONES, TOPOLOGY)
    assert sorted({each.id for each in examples} - {each.id for each in going_on}) == ["u003"]
    for each in going_on:
        assert set(each.first_path) == set(first_path(texts[each.id], PHONES, TOPOLOGY))


@pytest.mark.parametrize(
    ("num_frames", "num_pdfs", "doublings"),
    [(4_999, 100, 0), (10_000, 100, 1), (228_316, 102, 5), (228_316, 434, 3), (10**8, 9, 5)],
)
def test_doublings_leave_fifty_frames_for_each_gaussian(num_frames: int, num_pdfs: int, doublings: int) -> None:
    schedule = aligner.recognition_schedule(num_frames, num_pdfs)
    assert schedule.doublings == doublings
    assert doublings in (0, 5) or 50 * num_pdfs * 2**doublings <= num_frames < 50 * num_pdfs * 2 ** (doublings + 1)
