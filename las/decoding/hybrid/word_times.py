"""Words of a hybrid HMM with their times, by the best path of an utterance through the graph of its words."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from las.decoding.base import Hypothesis, WordSpan
from las.decoding.transcription import NOTHING, SegmentTranscript, TimedToken, TimedWord
from las.hmm.graph import AlignmentGraph, alignment_graph
from las.hmm.lexicon import Lexicon
from las.hmm.segments import FrameTimes
from las.hmm.topology import NUM_STATES, StateNumbering
from las.hmm.viterbi import viterbi


def word_spans(
    emissions: Float[Tensor, "batch frames pdfs"],
    log_posteriors: Float[Tensor, "batch frames pdfs"],
    num_frames: Int[Tensor, " batch"],
    texts: Sequence[Sequence[str]],
    lexicon: Lexicon,
    states: StateNumbering,
) -> list[list[WordSpan]]:
    """Return the words of each text with their frames, by the scaled scores `emissions`.

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
            count = len(texts[row])
            borders = pairwise(int(num_frames[row]) * index // count for index in range(count + 1))
            spans[row] = [WordSpan(word, *own, 0.0) for word, own in zip(texts[row], borders, strict=True)]
        else:
            spans[row] = _spans(texts[row], graph, path.states, log_posteriors[row].cpu().numpy())
    return spans


def _spans(
    words: Sequence[str], graph: AlignmentGraph, states: NDArray[np.int64], log_posteriors: NDArray[np.floating]
) -> list[WordSpan]:
    word_of = np.array([-1 if segment.word is None else segment.word for segment in graph.segments])
    said = word_of[states // NUM_STATES]
    of_states = log_posteriors[np.arange(len(states)), graph.pdfs[states]]
    spans = []
    for index, word in enumerate(words):
        own = np.flatnonzero(said == index)
        spans.append(WordSpan(word, int(own[0]), int(own[-1]) + 1, math.exp(float(of_states[own].mean()))))
    return spans


def transcripts(
    best: Sequence[Hypothesis],
    spans: Sequence[Sequence[WordSpan]],
    num_frames: Int[Tensor, " batch"],
    times: FrameTimes,
    starts_s: Sequence[float],
    durations_s: Sequence[float],
) -> list[SegmentTranscript]:
    """Transcripts of segments of audio; a word is one token, its confidence the geometric mean of its posteriors.

    Args:
        best: hypothesis of each segment.
        spans: of its words.
        num_frames: frames of each segment.
        times: of the features' windows.
        starts_s, durations_s: where each segment begins in its audio, and how long it is, in seconds.
    """
    found = []
    for hypothesis, own, frames, start_s, duration_s in zip(
        best, spans, num_frames.tolist(), starts_s, durations_s, strict=True
    ):
        tokens = tuple(
            TimedToken(
                span.word,
                start_s + times.boundary_s(span.start, frames, duration_s),
                start_s + times.boundary_s(span.end, frames, duration_s),
                span.posterior,
            )
            for span in own
        )
        words = tuple(TimedWord(token.symbol, (token,)) for token in tokens)
        found.append(SegmentTranscript(tokens, words, hypothesis.score, hypothesis.finished_by, NOTHING))
    return found
