"""The attention of one step of a search in C++: all beams of all utterances, what meets in the tanh is never stored."""

import ctypes
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from las.attention.base import Attention, Memory
from las.kernels import cpu, cpu_spelling, spelling
from las.kernels.cpu_spelling import Attended

Answer = Callable[
    [Float[Tensor, "batch beam query"], Memory, Float[Tensor, "batch beam states"]],
    tuple[Float[Tensor, "batch beam value"], Float[Tensor, "batch beam states"]],
]
"""As `Attention.attend`: queries and what is remembered of weights to contexts and weights."""


def of(attention: Attention, memory: Memory) -> Answer:
    """What answers as this attention does, for one batch of utterances. It has no gradient."""
    types = {memory.keys.dtype, *(parameter.dtype for parameter in attention.parameters())}
    known = cpu_spelling.knows(attention) and types in ({torch.float32}, {torch.float64})
    return Attender(attention, memory) if known else attention.attend


class Attender:
    """An attention on a memory, both ready to be pointed to."""

    def __init__(self, attention: Attention, memory: Memory) -> None:
        form = spelling.FORMS[type(attention)]
        self.query = attention.get_parameter("query.weight").detach()
        of_energy = [attention.get_parameter(name).detach().contiguous() for name in form.energies]
        score, filters, location = [*of_energy, None, None, None][:3]
        keys, self.values = memory.keys.contiguous(), memory.values.contiguous()
        (self.batch, states, key_size), value_size = keys.shape, self.values.shape[2]
        count, _, width = (0, 0, 0) if filters is None else filters.shape
        self.sizes = states, value_size, key_size, count, width, cpu_spelling.ENERGIES[form.attending]
        self.pointers: dict[str, Tensor | None] = {"score": score, "filter": filters, "location": location}
        self.pointers |= {"num_states": memory.mask.sum(1), "keys": keys, "values": self.values}
        self.function = getattr(cpu.library(), f"attend_{str(keys.dtype).removeprefix('torch.')}")

    def __call__(self, query: Tensor, memory: Memory, remembered: Tensor) -> tuple[Tensor, Tensor]:
        queries, last = torch.matmul(query, self.query.t()).contiguous(), remembered.contiguous()
        weights, contexts = torch.empty_like(last), self.values.new_empty(*query.shape[:2], self.values.shape[2])
        attended = Attended(self.batch, query.shape[1], *self.sizes)
        attended.point(**self.pointers, queries=queries, weights=weights, contexts=contexts)
        self.function(ctypes.byref(attended), ctypes.c_void_p(last.data_ptr()), ctypes.c_int64(torch.get_num_threads()))
        return contexts, weights
