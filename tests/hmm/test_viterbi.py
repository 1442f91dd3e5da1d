"""The batched Viterbi algorithm equals a plain one and kaldi-decoder's, path and score."""

import importlib

import numpy as np
import pytest
import torch
from toy_hmm import best_path, toy, toy_graph, toy_scores

from las.hmm.graph import AlignmentGraph, BestPath, alignment_graph, first_path, viterbi
from las.hmm.lexicon import Lexicon, Pronunciation
from las.hmm.topology import Topology
from las.runtime.errors import DataError


def batched(seeds: range, frames: list[int]) -> tuple[list[AlignmentGraph], list[np.ndarray], list[BestPath | None]]:
    graphs = [toy_graph(seed) for seed in seeds]
    scores = [toy_scores(seed, count) for seed, count in zip(seeds, frames, strict=True)]
    padded = np.full((len(scores), max(frames), scores[0].shape[1]), np.nan)  # padding must not be looked at
    for row, each in enumerate(scores):
        padded[row, : len(each)] = each
    found = viterbi(torch.from_numpy(padded), torch.tensor(frames), graphs)
    return graphs, scores, found


NUM_TOYS = [100, pytest.param(1000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("num_toys", NUM_TOYS)
def test_toys_equal_the_reference(num_toys: int) -> None:
    none = 0
    for start in range(0, num_toys, 50):
        seeds = range(start, start + 50)
        graphs, scores, found = batched(seeds, [5 + 37 * seed % 23 for seed in seeds])
        for graph, each, path in zip(graphs, scores, found, strict=True):
            score, states = best_path(graph, each)
            if path is None:
                assert score == -np.inf
                none += 1
            else:
                assert path.score == pytest.approx(score, rel=1e-9) and path.states.tolist() == states
    assert 0 < none < num_toys / 2


def in_kaldi(graph: AlignmentGraph, scores: np.ndarray) -> tuple[float, list[int]]:
    """The graph as an FST with a state more for the start; output labels are states, from 1."""
    kaldifst = importlib.import_module("kaldifst")
    kaldi_decoder = importlib.import_module("kaldi_decoder")
    fst = kaldifst.StdVectorFst()
    nodes = [fst.add_state() for _ in range(len(graph.pdfs) + 1)]
    fst.start = nodes[-1]

    def add(source: int, state: int, score: float) -> None:
        if score > -np.inf:
            fst.add_arc(nodes[source], kaldifst.StdArc(int(graph.pdfs[state]) + 1, state + 1, -score, nodes[state]))

    for state in range(len(graph.pdfs)):
        add(-1, state, float(graph.initial[state]))
        for source, score in zip(graph.sources[state].tolist(), graph.scores[state].tolist(), strict=True):
            add(source, state, score)
        if graph.final[state] > -np.inf:
            fst.set_final(nodes[state], -float(graph.final[state]))
    decoder = kaldi_decoder.FasterDecoder(fst, kaldi_decoder.FasterDecoderOptions(max_active=10_000, beam=1e4))
    decoder.decode(kaldi_decoder.DecodableCtc(scores.astype(np.float32)))
    if not decoder.reached_final():
        return -np.inf, []
    _, lattice = decoder.get_best_path()
    _, _, states, weight = kaldifst.get_linear_symbol_sequence(lattice)
    return -(weight.value1 + weight.value2), [state - 1 for state in states]


@pytest.mark.parametrize("num_toys", NUM_TOYS)
def test_toys_equal_kaldi_decoder(num_toys: int) -> None:
    pytest.importorskip("kaldifst")
    pytest.importorskip("kaldi_decoder")
    for seed in range(num_toys):
        graph, scores = toy_graph(seed), toy_scores(seed, 5 + 37 * seed % 23)
        (path,) = viterbi(torch.from_numpy(scores).unsqueeze(0), torch.tensor([len(scores)]), [graph])
        score, states = in_kaldi(graph, scores)
        if path is None:
            assert states == []
        else:
            assert path.score == pytest.approx(score, rel=1e-4) and path.states.tolist() == states


def test_planted_states_are_recovered() -> None:
    for seed in range(40):
        words, lexicon, topology = toy(seed)
        pdfs = first_path(words, lexicon, topology)
        planted = np.repeat(pdfs, [1 + place % 4 for place in range(len(pdfs))])
        scores = np.full((len(planted), topology.num_pdfs), -1000.0)
        scores[np.arange(len(planted)), planted] = 0.0
        graph = alignment_graph(words, lexicon, topology)
        (path,) = viterbi(torch.from_numpy(scores).unsqueeze(0), torch.tensor([len(planted)]), [graph])
        assert path is not None and graph.pdfs[path.states].tolist() == planted.tolist()


def test_texts_that_cannot_be_aligned_are_named() -> None:
    lexicon = Lexicon({"A": [Pronunciation(("AH",))], "B": [Pronunciation(("B", "IY"))]})
    topology = Topology(["SIL", "AH", "IY"], ["SIL"])
    with pytest.raises(DataError, match="u7: the word 'C' has no pronunciation"):
        alignment_graph(["A", "C"], lexicon, topology, "u7")
    with pytest.raises(DataError, match=r"u7: the phone 'B' has no states\. Did you mean"):
        alignment_graph(["B"], lexicon, topology, "u7")
    with pytest.raises(DataError, match="u7: there is nothing to align"):
        alignment_graph([], Lexicon(lexicon.entries, None), topology, "u7")
    assert len(alignment_graph([], lexicon, topology).pdfs) == 3, "an empty text is silence"
