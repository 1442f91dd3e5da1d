"""CTC prefix scores in C++ (`prefixes.h`): scores of all next symbols, forward variables of the chosen ones.

The equations are those of `las.decoding.scorers.ctc_prefix`, whose `PrefixState` these functions take and return.
"""

import ctypes

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from las.nn.kernels import cpp_build, cpu
from las.nn.kernels.cpp_recurrence import Structure

Forward = Float64[Tensor, "batch beam states1"]

SHARED = 1 << 14
"""Values of all forward variables from which on threads share the beams."""


def is_available() -> bool:
    """True if the library can be built."""
    try:
        cpu.library()
    except cpp_build.Unavailable:
        return False
    return True


class PrefixesStructure(Structure):
    """The structure `Prefixes` of `prefixes.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "beams", "states", "vocab", "blank")),
        ("lowest", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("probs", "log_probs", "last", "tokens")),
        *((name, ctypes.c_void_p) for name in ("prefix", "in_symbol", "in_blank", "scores")),
        *((name, ctypes.c_void_p) for name in ("next_prefix", "next_in_symbol", "next_in_blank")),
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
        self.probs, self.log_probs = probs.contiguous(), log_probs.contiguous()
        self.numbers = *probs.shape[1:], blank, lowest

    def scores(
        self,
        last: Int[Tensor, "batch beam"],
        prefix: Float64[Tensor, "batch beam"],
        in_symbol: Forward,
        in_blank: Forward,
    ) -> Float64[Tensor, "batch beam vocab"]:
        """The scores of every symbol after each prefix."""
        scores = self.probs.new_empty(*last.shape, self.probs.shape[-1])
        self._call("prefix_scores", last, prefix=prefix, in_symbol=in_symbol, in_blank=in_blank, scores=scores)
        return scores

    def advance(
        self,
        last: Int[Tensor, "batch beam"],
        prefix: Float64[Tensor, "batch beam"],
        in_symbol: Forward,
        in_blank: Forward,
        tokens: Int[Tensor, "batch beam"],
    ) -> tuple[Float64[Tensor, "batch beam"], Forward, Forward]:
        """Log psi and the forward variables of each prefix after one more token."""
        new = [torch.empty_like(part, memory_format=torch.contiguous_format) for part in (prefix, in_symbol, in_blank)]
        results = dict(zip(("next_prefix", "next_in_symbol", "next_in_blank"), new, strict=True))
        self._call("prefix_advance", last, tokens=tokens, in_symbol=in_symbol, in_blank=in_blank, **results)
        return new[0], new[1], new[2]

    def _call(self, name: str, last: Tensor, **tensors: Tensor) -> None:
        """Run a function of the library; tensors of results are contiguous already."""
        given = {key: tensor.contiguous() for key, tensor in tensors.items()} | {"last": last.contiguous()}
        structure = PrefixesStructure(*last.shape, *self.numbers)
        structure.point(probs=self.probs, log_probs=self.log_probs, **given)
        threads = torch.get_num_threads() if tensors["in_blank"].numel() >= SHARED else 1
        getattr(cpu.library(), name)(ctypes.byref(structure), ctypes.c_int64(threads))
