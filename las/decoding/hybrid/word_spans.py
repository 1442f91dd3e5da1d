"""Words of a text with their frames: the best path of an utterance through the graph of its words."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from las.hmm.graph import AlignmentGraph, alignment_graph, viterbi
from las.hmm.lexicon import Lexicon
from las.hmm.topology import NUM_STATES, StateNumbering


class WordSpan(NamedTuple):
    """A word with its first frame and the one after its last."""

    word: str
    start: int
    end: int
    posterior: float
    """Geometric mean of the posteriors of its states, over its frames."""


def word_spans(
    emissions: Float[Tensor, "batch frames pdfs"],
    log_posteriors: Float[Tensor, "batch frames pdfs"],
    num_frames: Int[Tensor, "batch"],
    texts: Sequence[Sequence[str]],
    lexicon: Lexicon,
    states: StateNumbering,
) -> list[list[WordSpan]]:
    """The words of each text with their frames, by the scaled scores `emissions`.

    Where the frames are too few for the states of a text, its words share them out evenly, with posteriors of 0.
    Raises DataError for a word without a pronunciation.
    """
    spans: list[list[WordSpan]] = [[] for _ in texts]
    rows = [row for row, frames in enumerate(num_frames.tolist()) if frames and texts[row]]
    if not rows:
        return spans
    graphs = [alignment_graph(texts[row], lexicon, states) for row in rows]
    for row, graph, path in zip(rows, graphs, viterbi(emissions[rows], num_frames[rows], graphs), strict=True):
        if path is None:
            spans[row] = _shared_out(texts[row], int(num_frames[row]))
        else:
            spans[row] = _spans(texts[row], graph, path.states, log_posteriors[row].cpu().numpy())
    return spans


def _spans(
    words: Sequence[str], graph: AlignmentGraph, states: NDArray[np.int64], log_posteriors: NDArray[np.floating]
) -> list[WordSpan]:
    """Words from the first to the last frame of their states."""
    word_of = np.array([-1 if segment.word is None else segment.word for segment in graph.segments])
    said = word_of[states // NUM_STATES]
    of_states = log_posteriors[np.arange(len(states)), graph.pdfs[states]]
    spans = []
    for index, word in enumerate(words):
        own = np.flatnonzero(said == index)
        spans.append(WordSpan(word, int(own[0]), int(own[-1]) + 1, math.exp(float(of_states[own].mean()))))
    return spans


def _shared_out(words: Sequence[str], num_frames: int) -> list[WordSpan]:
    borders = [num_frames * index // len(words) for index in range(len(words) + 1)]
    return [WordSpan(word, start, end, 0.0) for word, (start, end) in zip(words, pairwise(borders), strict=True)]
