"""The Viterbi algorithm over the graphs of a batch of utterances (Rabiner 1989, section III.B), in torch.

    d_1(s) = initial(s) + b_1(s),   d_t(s) = max_r [d_{t-1}(r) + a(r, s)] + b_t(s)

with logarithms throughout: b_t(s) is the acoustic score of the pdf of state s, a(r, s) that of an arc.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from las.hmm.graph import AlignmentGraph


class Path(NamedTuple):
    """The best path through a graph: its score, and the state of each frame."""

    score: float
    states: NDArray[np.int64]


class _Padded(NamedTuple):
    pdfs: Int[Tensor, "batch states"]
    sources: Int[Tensor, "batch states arcs"]
    scores: Float[Tensor, "batch states arcs"]
    initial: Float[Tensor, "batch states"]
    final: Float[Tensor, "batch states"]


def viterbi(
    emissions: Float[Tensor, "batch frames pdfs"], num_frames: Int[Tensor, "batch"], graphs: Sequence[AlignmentGraph]
) -> list[Path | None]:
    """The best path of each utterance; None where none fits, because there are fewer frames than states to go through.

    Args:
        emissions: acoustic scores, logarithms.
        num_frames: frames of each utterance, at least one.
        graphs: one for each utterance.
    """
    padded = _padded(graphs, emissions)
    batch, num_states, _ = padded.sources.shape
    sources = padded.sources.flatten(1)
    score = padded.initial + emissions[:, 0].gather(1, padded.pdfs)
    chosen = torch.zeros(emissions.shape[1], batch, num_states, dtype=torch.uint8)
    for frame in range(1, emissions.shape[1]):
        arrived = score.gather(1, sources).view_as(padded.sources) + padded.scores
        best, arc = arrived.max(dim=-1)
        chosen[frame] = arc.to("cpu", torch.uint8)
        running = (num_frames > frame).unsqueeze(1)
        score = torch.where(running, best + emissions[:, frame].gather(1, padded.pdfs), score)
    totals, ends = (score + padded.final).max(dim=-1)
    arcs = chosen.numpy()
    return [
        Path(total, _trace(graph, arcs[:frames, row], end)) if total > -np.inf else None
        for row, (graph, total, end, frames) in enumerate(
            zip(graphs, totals.tolist(), ends.tolist(), num_frames.tolist(), strict=True)
        )
    ]


def _trace(graph: AlignmentGraph, arcs: NDArray[np.uint8], end: int) -> NDArray[np.int64]:
    """Follow the chosen arcs, [frames, states], back from the last state."""
    states = np.empty(len(arcs), np.int64)
    states[-1] = end
    for frame in range(len(arcs) - 1, 0, -1):
        states[frame - 1] = graph.sources[states[frame], arcs[frame, states[frame]]]
    return states


def _padded(graphs: Sequence[AlignmentGraph], like: Tensor) -> _Padded:
    """The graphs of a batch as tensors; states in padding cannot be reached."""
    num_states = max(len(graph.pdfs) for graph in graphs)
    width = max(graph.sources.shape[1] for graph in graphs)
    shape = (len(graphs), num_states)
    pdfs, sources = np.zeros(shape, np.int64), np.zeros((*shape, width), np.int64)
    scores = np.full((*shape, width), -np.inf, np.float32)
    initial, final = np.full((2, *shape), -np.inf, np.float32)
    for row, graph in enumerate(graphs):
        count, arcs = graph.sources.shape
        pdfs[row, :count], initial[row, :count], final[row, :count] = graph.pdfs, graph.initial, graph.final
        sources[row, :count, :arcs], scores[row, :count, :arcs] = graph.sources, graph.scores
    whole = [torch.from_numpy(each).to(like.device) for each in (pdfs, sources)]
    return _Padded(*whole, *(torch.from_numpy(each).to(like) for each in (scores, initial, final)))
