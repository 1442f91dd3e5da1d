"""CTC prefix scores in C++ (`prefixes.h`): scores of all next symbols, forward variables of the chosen ones.

The equations are those of `las.decoding.scorers.ctc_prefix`.
"""

import ctypes
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from las.nn.kernels.cpp import layer as cpu
from las.nn.kernels.cpp.recurrence import Doubles, Int64s, Structure, dense

SHARED = 1 << 14
"""Values of all forward variables from which on threads share the beams."""


class PrefixState(NamedTuple):
    """The last symbol of each hypothesis, its log psi, and its log n_t and log b_t for t = 0 ... T."""

    last: Int[Tensor, "batch beam"]
    prefix: Float[Tensor, "batch beam"]
    in_symbol: Float[Tensor, "batch beam states1"]
    in_blank: Float[Tensor, "batch beam states1"]


class PrefixesStructure(Structure):
    """The structure `Prefixes` of `prefixes.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "beams", "states", "vocab", "blank")),
        ("lowest", ctypes.c_double),
        *(("probs", Doubles), ("log_probs", Doubles), ("last", Int64s), ("tokens", Int64s)),
        *((name, Doubles) for name in ("prefix", "in_symbol", "in_blank", "scores")),
        *((name, Doubles) for name in ("next_prefix", "next_in_symbol", "next_in_blank")),
    )


class CppPrefixes:
    """Prefix scores of a batch of utterances.

    Args:
        probs: of CTC, [batch, states, vocab].
        log_probs: their logarithms, [batch, vocab, states], all finite.
        blank: the number of the blank, whose score is that of the end.
        lowest: a finite number that stands for -inf in subtractions.
    """

    def __init__(
        self,
        probs: Float64[Tensor, "batch states vocab"],
        log_probs: Float64[Tensor, "batch vocab states"],
        blank: int,
        lowest: float,
    ) -> None:
        self.probs, self.log_probs = dense(probs), dense(log_probs)
        self.numbers = *probs.shape[1:], blank, lowest

    def scores(self, state: PrefixState) -> Float64[Tensor, "batch beam vocab"]:
        """The scores of every symbol after each prefix."""
        scores = self.probs.new_empty(*state.last.shape, self.probs.shape[-1])
        self._call("prefix_scores", state, scores=scores)
        return scores

    def advance(self, state: PrefixState, tokens: Int[Tensor, "batch beam"]) -> PrefixState:
        """The state after one more token of each prefix."""
        new = PrefixState(
            dense(tokens), *(torch.empty_like(part, memory_format=torch.contiguous_format) for part in state[1:])
        )
        results = {f"next_{name}": part for name, part in new._asdict().items() if name != "last"}
        self._call("prefix_advance", state, tokens=new.last, **results)
        return new

    def _call(self, name: str, state: PrefixState, **tensors: Tensor) -> None:
        """Run a function of the library; those tensors are dense, the ones of the state need not be."""
        tensors |= {key: dense(part) for key, part in state._asdict().items()}
        structure = PrefixesStructure(*state.last.shape, *self.numbers)
        structure.point(probs=self.probs, log_probs=self.log_probs, **tensors)
        threads = torch.get_num_threads() if state.in_blank.numel() >= SHARED else 1
        getattr(cpu.library(), name)(ctypes.byref(structure), ctypes.c_int64(threads))
