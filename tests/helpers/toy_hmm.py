"""Random toy HMMs: a lexicon with variants, a graph of a random text, random scores, a bigram; a plain reference."""

import math
import random

import numpy as np
import torch
from numpy.typing import NDArray

from las.hmm.decision_tree import Leaf, Question, Split, Tree
from las.hmm.graph import AlignmentGraph, alignment_graph
from las.hmm.lexicon import Lexicon, Pronunciation
from las.hmm.topology import Topology, TransitionCosts
from las.hmm.tying import TiedStates
from las.lm import arpa, kneser_ney, ngram

WORDS = ("u", "v", "w")
PHONES = ("SIL", "A", "B", "C", "D")
EVEN = TransitionCosts(loop=math.log(2.0), forward=math.log(2.0), skip=math.inf, exit=math.log(2.0))
"""Staying and leaving equally probable, nothing skipped."""


def toy(seed: int) -> tuple[list[str], Lexicon, Topology]:
    """A text of one to three words of one to three phones each, said in one or two ways."""
    draw = random.Random(seed)
    silence = draw.choice(["SIL", None])
    entries = {}
    for word in WORDS:
        ways = {tuple(draw.choice(PHONES[1:]) for _ in range(draw.randint(1, 3))) for _ in range(draw.randint(1, 2))}
        entries[word] = [Pronunciation(way, draw.choice([1.0, 0.4])) for way in sorted(ways)]
    costs = [
        TransitionCosts(*(draw.uniform(0.0, 3.0) for _ in range(2)), draw.choice([math.inf, 2.0]), draw.uniform(0, 3))
        for _ in range(2)
    ]
    topology = Topology(PHONES, ["SIL"], *costs)
    return [draw.choice("uvw") for _ in range(draw.randint(1, 3))], Lexicon(entries, silence), topology


def toy_tying(seed: int, topology: Topology) -> TiedStates:
    """Trees of at most three leaves, with random questions; those of silence ask nothing."""
    draw = random.Random(seed)
    trees: dict[str, list[Tree]] = {}
    count = 0

    def question() -> Question:
        return Question(draw.choice(["left", "right"]), frozenset(draw.sample(PHONES, draw.randint(1, 3))))

    for phone in topology.phones:
        trees[phone] = []
        for _ in range(3):
            leaves = 1 if phone in topology.silences else draw.randint(1, 3)
            nodes: list[Tree] = [
                (Leaf(count),),
                (Split(question(), 1, 2), Leaf(count + 1), Leaf(count)),
                (Split(question(), 1, 2), Leaf(count + 2), Split(question(), 3, 4), Leaf(count), Leaf(count + 1)),
            ]
            trees[phone].append(nodes[leaves - 1])
            count += leaves
    return TiedStates(topology, trees)


def toy_graph(seed: int) -> AlignmentGraph:
    return alignment_graph(*toy(seed))


def toy_scores(seed: int, frames: int, num_pdfs: int = 3 * len(PHONES)) -> NDArray[np.float64]:
    """Scores of every frame and pdf, [frames, pdfs]."""
    return np.random.default_rng(seed).normal(-3.0, 2.0, (frames, num_pdfs))


def best_path(graph: AlignmentGraph, scores: NDArray[np.float64]) -> tuple[float, list[int]]:
    """Token passing, one arc at a time: each state keeps its best score and path. -inf without a path."""
    tokens: dict[int, tuple[float, list[int]]] = {
        state: (float(start) + float(scores[0, graph.pdfs[state]]), [state])
        for state, start in enumerate(graph.initial)
        if start > -np.inf
    }
    for frame in range(1, len(scores)):
        moved: dict[int, tuple[float, list[int]]] = {}
        for state, pdf in enumerate(graph.pdfs):
            for source, weight in zip(graph.sources[state].tolist(), graph.scores[state].tolist(), strict=True):
                if weight == -math.inf or source not in tokens:
                    continue
                score, path = tokens[source]
                arrived = score + weight + float(scores[frame, pdf])
                if state not in moved or arrived > moved[state][0]:
                    moved[state] = (arrived, [*path, state])
        tokens = moved
    ended = [(score + float(graph.final[state]), path) for state, (score, path) in tokens.items()]
    return max(ended, default=(-math.inf, []))


def bigram(seed: int, order: int = 2) -> arpa.Model:
    """A model estimated on random sentences."""
    draw = random.Random(seed)
    sentences = [draw.choices(WORDS, [1, 2, 4], k=draw.randint(1, 5)) for _ in range(12)]
    return kneser_ney.estimate(sentences, order, WORDS, name="toy").model


def log_prob(lm: ngram.NGram, words: list[str], ended: bool = True) -> float:
    """The score of a sentence by the language model as other searches use it (`las.lm.ngram.of_words`)."""
    symbols = [lm.symbols.index(word) for word in words] + [lm.symbols.index(arpa.END)] * ended
    state, total = lm.start(1), 0.0
    for symbol in symbols:
        total += float(lm.score(state)[0, 0, symbol])
        state = lm.advance(state, torch.tensor([[symbol]]))
    return total
