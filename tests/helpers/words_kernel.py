"""A kernel that sends numbers through words. Importing this module needs Triton."""

from typing import no_type_check

import torch
import triton
import triton.language as tl

from las.nn.kernels.triton.exchange import operand_of, words_of
from las.nn.kernels.triton.loops import KINDS


@triton.jit
@no_type_check
def copy(source, target, KIND: tl.constexpr):
    place = tl.arange(0, 65536)[:, None] + tl.arange(0, 1)[None, :]
    words = words_of(tl.load(source + place).to(tl.float32), 5, KIND)
    tl.store(target + place, operand_of(words, KIND))


def through_words(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all numbers of a type in half precision, and those that come out of words."""
    numbers = torch.arange(-32768, 32768).to(torch.int16).view(dtype)
    found = torch.empty_like(numbers)
    copy[(1,)](numbers, found, KIND=KINDS[dtype])
    return numbers, found
