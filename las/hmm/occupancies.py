"""Forward-backward through a graph of phones, for a batch of chunks (Rabiner 1989, section III.A).

    a_1(s) = initial(s) b_1(s),   a_t(s) = b_t(s) sum_r a_{t-1}(r) w(r, s),   Z = sum_s a_T(s)

with the emission b_t(s) of the pdf of state s and the factor w(r, s) of an arc, or of two by way of a junction. A chunk
may begin and end in every state. The gradient of log Z with regard to log b_t is the occupancy of each pdf: the
probability that a path has it in frame t. Forward variables are scaled to a sum of one in each frame. On a CPU a loop
over the arcs in C++ (`occupancies.h`) computes both, elsewhere torch's operations.
"""

import ctypes
import math
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from las.hmm.phone_graph import PhoneGraph, phone_graph
from las.hmm.topology import Topology
from las.nn.kernels.choice import Compiled, Differences
from las.nn.kernels.cpp.tensors import Int64s, Structure, call, dense
from las.nn.normalisation import mask_of

LEAST = -50.0
"""Emissions of a frame are raised to this difference (a logarithm) from its largest: no path is impossible in fp32."""


class Occupied(NamedTuple):
    """Logarithms of the sums over all paths, and the occupancies of pdfs; both 0 where a chunk has no frame."""

    log_totals: Float[Tensor, " chunks"]
    """-inf where no path is allowed; occupancies are 0 then."""
    occupancies: Float[Tensor, "chunks frames pdfs"]


def log_totals(
    emissions: Float[Tensor, "chunks frames pdfs"],
    num_frames: Int[Tensor, " chunks"],
    graph: PhoneGraph,
    allowed: Bool[Tensor, "chunks frames pdfs"] | None = None,
) -> Float[Tensor, " chunks"]:
    """Return log Z of each chunk, 0 for one without frames and -inf without paths; gradients lead to the emissions.

    Args:
        emissions: logarithms, in fp32 or fp64.
        num_frames: frames of each chunk.
        graph: the phones.
        allowed: pdfs that paths may have in each frame; None: all.
    """
    return cast(Tensor, _LogTotals.apply(emissions, num_frames, graph, allowed))


class _LogTotals(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, emissions: Tensor, num_frames: Tensor, graph: PhoneGraph, allowed: Tensor | None) -> Tensor:
        compute = by_torch if OCCUPANCIES.refusal(emissions) else compiled
        occupied = compute(emissions, num_frames, graph, allowed)
        ctx.save_for_backward(occupied.occupancies)
        return occupied.log_totals

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (occupancies,) = ctx.saved_tensors
        return gradients[0].view(-1, 1, 1) * occupancies, None, None, None


def _factors(emissions: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return emissions as factors, the largest of each frame 1 and what is not allowed 0, and the logarithms that were
    taken from each frame.
    """
    if allowed is not None:
        emissions = emissions.masked_fill(~allowed, -math.inf)
    most = emissions.amax(-1, keepdim=True)
    most = torch.where(most == -math.inf, 0.0, most)
    factors = (emissions - most).clamp_(min=LEAST).exp_()
    return factors if allowed is None else factors.masked_fill_(~allowed, 0.0), most.squeeze(-1)


def by_torch(emissions: Tensor, num_frames: Tensor, graph: PhoneGraph, allowed: Tensor | None = None) -> Occupied:
    """Compute `Occupied` by torch's operations, occupancies as gradients."""
    factors, taken = _factors(emissions, allowed)
    inside, num_states = mask_of(num_frames, emissions.shape[1], emissions.device), len(graph.pdfs)
    pdfs, sources, targets = (torch.from_numpy(each).to(emissions.device) for each in (graph.pdfs, *graph[2:4]))
    weights, initial = (torch.from_numpy(each).to(emissions) for each in graph[4:])
    split = int(np.searchsorted(graph.targets, num_states))

    def moved(places: Tensor, arcs: slice, first: int, count: int) -> Tensor:
        """Sum what some arcs bring to each of their targets, which are so many places from `first` on."""
        sums = places.new_zeros(len(places), count)
        return sums.index_add(1, targets[arcs] - first, places[:, sources[arcs]] * weights[arcs])

    totals = torch.where(inside, taken, 0.0).sum(1)
    possible = torch.ones_like(inside[:, 0])
    with torch.enable_grad():
        factors.requires_grad_()
        variables = initial * factors[:, 0, pdfs]
        for frame in range(emissions.shape[1]):
            if frame > 0:
                junctions = moved(variables, slice(split, None), num_states, graph.num_junctions)
                places = torch.cat([variables, junctions], dim=1)
                variables = moved(places, slice(split), 0, num_states) * factors[:, frame, pdfs]
            sums = variables.sum(1, keepdim=True)
            some = sums > 0
            possible = possible & (some.squeeze(1) | ~inside[:, frame])
            sums = torch.where(some, sums, 1.0)
            totals = totals + torch.where(inside[:, frame], sums.squeeze(1).log(), 0.0)
            variables = variables / sums
        (gradient,) = torch.autograd.grad(totals.sum(), factors)
    totals = totals.detach().masked_fill(~possible, -math.inf)
    return Occupied(totals, (gradient * factors).detach() * possible.view(-1, 1, 1))


class OccupanciesStructure(Structure):
    """The structure `Occupancies` of `occupancies.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("chunks", "frames", "pdfs", "states", "junctions")),
        *((name, Int64s) for name in ("num_frames", "order", "pdf", "first_arc", "source")),
        *((name, ctypes.c_void_p) for name in ("emissions", "weight", "initial", "totals", "occupancies")),
    )


def compiled(emissions: Tensor, num_frames: Tensor, graph: PhoneGraph, allowed: Tensor | None = None) -> Occupied:
    """Compute `Occupied` in C++ on a CPU."""
    factors, taken = _factors(emissions, allowed)
    num_states = len(graph.pdfs)
    starts = np.searchsorted(graph.targets, np.arange(num_states + graph.num_junctions + 1))
    lengths = num_frames.long().cpu()
    whole = {"num_frames": lengths, "order": lengths.argsort(), "source": torch.from_numpy(graph.sources)}
    whole |= {"pdf": torch.from_numpy(graph.pdfs), "first_arc": torch.from_numpy(starts)}
    numbers = {"weight": graph.weights, "initial": graph.initial}
    tensors = {name: torch.from_numpy(part).to(emissions.dtype) for name, part in numbers.items()}
    tensors |= {"emissions": factors, "totals": emissions.new_empty(len(emissions))}
    tensors["occupancies"] = torch.zeros_like(factors)
    tensors = {name: dense(tensor) for name, tensor in (whole | tensors).items()}
    structure = OccupanciesStructure(*emissions.shape, num_states, graph.num_junctions)
    structure.point(**tensors)
    call("occupy", emissions.dtype, structure)
    inside = mask_of(num_frames, emissions.shape[1], emissions.device)
    return Occupied(tensors["totals"] + torch.where(inside, taken, 0.0).sum(1), tensors["occupancies"])


def _trial() -> Differences:
    """Ten chunks, some of them short, through two phones that follow each other in any order."""
    phones = [["a", "b", "b", "a"], ["b", "a", "a"]]
    graph, emissions = phone_graph(phones, Topology("ab")), torch.linspace(0, 99, 10 * 7 * 6).sin().view(10, 7, 6)
    num_frames, allowed = torch.arange(10) % 8, emissions > -0.9
    ours, expected = (each(emissions, num_frames, graph, allowed) for each in (compiled, by_torch))
    yield "the sums over all paths", ours.log_totals, expected.log_totals
    yield "the occupancies", ours.occupancies, expected.occupancies


OCCUPANCIES = Compiled("occupancies of phones", _trial, 1e-5)
