"""The Viterbi algorithm: best paths of a batch of utterances through their graphs (Rabiner 1989, section III.B).

    d_1(s) = initial(s) + b_1(s),   d_t(s) = max_r [d_{t-1}(r) + a(r, s)] + b_t(s)

with logarithms throughout: b_t(s) is the acoustic score of the pdf of state s, a(r, s) that of an arc. On a CPU it is a
loop over the arcs in C++ (`paths.h`), elsewhere torch's operations on all states of a batch at once.
"""

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from las.hmm.graph import AlignmentGraph
from las.nn.kernels.choice import Compiled, Differences
from las.nn.kernels.cpp.tensors import Int64s, Structure, call, dense


class BestPath(NamedTuple):
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
    emissions: Float[Tensor, "batch frames pdfs"], num_frames: Int[Tensor, " batch"], graphs: Sequence[AlignmentGraph]
) -> list[BestPath | None]:
    """Return the best path of each utterance; None where none fits, because there are fewer frames than states to go
    through.

    Args:
        emissions: acoustic scores, logarithms.
        num_frames: frames of each utterance, at least one.
        graphs: one for each utterance.
    """
    return (batched if PATHS.refusal(emissions) else compiled)(emissions, num_frames, graphs)


def batched(
    emissions: Float[Tensor, "batch frames pdfs"], num_frames: Int[Tensor, " batch"], graphs: Sequence[AlignmentGraph]
) -> list[BestPath | None]:
    """`viterbi` by torch's operations."""
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
        BestPath(total, _trace(graph, arcs[:frames, row], end)) if total > -np.inf else None
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
    """Return the graphs of a batch as tensors; states in padding cannot be reached."""
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


class PathsStructure(Structure):
    """The structure `Paths` of `paths.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "frames", "pdfs")),
        *((name, Int64s) for name in ("num_frames", "first_state", "pdf", "first_arc", "source")),
        *((name, ctypes.c_void_p) for name in ("emissions", "score", "initial", "final", "totals")),
        ("states", Int64s),
    )


def compiled(
    emissions: Float[Tensor, "batch frames pdfs"], num_frames: Int[Tensor, " batch"], graphs: Sequence[AlignmentGraph]
) -> list[BestPath | None]:
    """`viterbi` in C++ on a CPU."""
    there = [graph.scores > -np.inf for graph in graphs]
    parts = {
        "first_state": _starts([len(graph.pdfs) for graph in graphs]),
        "pdf": np.concatenate([graph.pdfs for graph in graphs]),
        "first_arc": _starts(np.concatenate([each.sum(axis=1) for each in there])),
        "source": np.concatenate([graph.sources[each] for graph, each in zip(graphs, there, strict=True)]),
    }
    numbers = {
        "score": np.concatenate([graph.scores[each] for graph, each in zip(graphs, there, strict=True)]),
        "initial": np.concatenate([graph.initial for graph in graphs]),
        "final": np.concatenate([graph.final for graph in graphs]),
    }
    tensors = {name: torch.from_numpy(part) for name, part in parts.items()}
    tensors |= {name: torch.from_numpy(part).to(emissions.dtype) for name, part in numbers.items()}
    tensors |= {"emissions": dense(emissions), "num_frames": dense(num_frames.long().cpu())}
    totals = emissions.new_empty(len(graphs))
    states = torch.empty(emissions.shape[:2], dtype=torch.int64)
    structure = PathsStructure(*emissions.shape)
    structure.point(**tensors, totals=totals, states=states)
    call("best_paths", emissions.dtype, structure, len(graphs) > 1)
    return [
        BestPath(total, path[:frames].numpy()) if total > -np.inf else None
        for total, path, frames in zip(totals.tolist(), states, num_frames.tolist(), strict=True)
    ]


def _starts(counts: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return starts of parts of these sizes that follow each other, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _trial() -> Differences:
    """Two utterances through a loop of three states, of which the last may be skipped."""
    scores = np.array([[-0.5, -np.inf], [-1.0, -0.25], [-0.75, -1.5]], np.float32)
    sources = np.array([[0, 0], [0, 1], [1, 2]])
    ends = np.array([0.0, -np.inf, -np.inf], np.float32), np.array([-np.inf, -2.0, 0.0], np.float32)
    graphs = [AlignmentGraph(np.array(pdfs), sources, scores, *ends, []) for pdfs in ([0, 1, 2], [2, 0, 1])]
    emissions, num_frames = torch.linspace(0, 99, 2 * 7 * 3).sin().view(2, 7, 3), torch.tensor([7, 4])
    ours, expected = compiled(emissions, num_frames, graphs), batched(emissions, num_frames, graphs)
    for own, reference in zip(ours, expected, strict=True):
        assert own is not None and reference is not None
        yield "the scores", torch.tensor(own.score), torch.tensor(reference.score)
        yield "the paths", torch.from_numpy(own.states).float(), torch.from_numpy(reference.states).float()


PATHS = Compiled("Viterbi paths", _trial, 1e-5)
