"""The best continuations of all beams by one symbol in C++ (`beams.h`).

The rules are those of `las.decoding.beam_expansion`.
"""

import ctypes
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from las.nn.kernels.cpp import layer as cpu
from las.nn.kernels.cpp.recurrence import Bools, Doubles, Int64s, Structure, dense

SHARED = 1 << 13
"""Scores of symbols from which on threads share the utterances."""


class BeamState(NamedTuple):
    """The hypotheses under construction. `lengths` counts the end symbol, `tokens` are their last symbols.

    A score of -inf marks a hypothesis that is impossible or does not exist (there were fewer continuations than
    beams). No continuation can make it possible, so it counts as finished, its last symbol as its end.
    """

    tokens: Int[Tensor, "batch beam"]
    scores: Float[Tensor, "batch beam"]
    ranks: Float[Tensor, "batch beam"]
    lengths: Int[Tensor, "batch beam"]
    finished: Bool[Tensor, "batch beam"]


class ExpansionStructure(Structure):
    """The structure `Expansion` of `beams.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "beams", "vocab", "kept", "eos")),
        ("exponent", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("symbol_scores", "end_scores")),
        *(("scores", Doubles), ("lengths", Int64s), ("finished", Bools), ("at_limit", Bools)),
        *((name, Int64s) for name in ("new_tokens", "parents", "new_lengths")),
        *(("new_scores", Doubles), ("new_ranks", Doubles), ("new_finished", Bools)),
    )


def extended(
    beams: BeamState,
    symbol_scores: Float[Tensor, "batch beam vocab"],
    end_scores: Float[Tensor, "batch beam"],
    at_limit: Bool[Tensor, "batch 1"],
    eos: int,
    size: int,
    exponent: float,
) -> tuple[BeamState, Int[Tensor, "batch new_beam"]]:
    """The result of `BeamExpansion(eos, size, exponent).extend`; scores of beams are in float64."""
    batch, count, vocab = symbol_scores.shape
    dtype = symbol_scores.dtype if symbol_scores.dtype in (torch.float32, torch.float64) else torch.float64
    inputs = {"symbol_scores": symbol_scores.to(dtype), "end_scores": end_scores.to(dtype), "at_limit": at_limit}
    inputs |= {"scores": beams.scores.double(), "lengths": beams.lengths.long(), "finished": beams.finished}
    inputs = {name: dense(part) for name, part in inputs.items()}
    kept = min(size, count * vocab)
    tokens, parents, lengths = inputs["lengths"].new_empty(3, batch, kept)
    scores, ranks = inputs["scores"].new_empty(2, batch, kept)
    new = BeamState(tokens, scores, ranks, lengths, inputs["finished"].new_empty(batch, kept))
    structure = ExpansionStructure(batch, count, vocab, kept, eos, exponent)
    structure.point(**inputs, parents=parents, **{f"new_{name}": part for name, part in new._asdict().items()})
    threads = torch.get_num_threads() if symbol_scores.numel() >= SHARED else 1
    function = getattr(cpu.library(), f"expand_{str(dtype).removeprefix('torch.')}")
    function(ctypes.byref(structure), ctypes.c_int64(threads))
    return new, parents
