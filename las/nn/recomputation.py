"""Large outputs in parts, computed again in the backward pass, so that those of one part are in memory at a time."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from las.runtime.precision import products_as_now

AT_ONCE = 1 << 22
"""Elements of an output that are in memory at once while training."""


def recomputed(
    function: Callable[..., tuple[Tensor, ...]], parts: Iterable[tuple[Tensor, ...]], *, dim: int = 0
) -> tuple[Tensor, ...]:
    """Apply a function without random numbers to each part, and join each of its results along `dim`.

    >>> import torch
    >>> from las.nn.recomputation import recomputed
    >>> recomputed(lambda given: (given + 1, 2 * given), [(torch.zeros(2),), (torch.ones(1),)])
    (tensor([1., 1., 2.]), tensor([0., 0., 2.]))
    """
    parts = list(parts)
    if len(parts) == 1 or not torch.is_grad_enabled():
        found = [function(*part) for part in parts]
    else:
        products = products_as_now(parts[0][0].device)
        again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
        found = [again(function, *part, context_fn=lambda: (nullcontext(), products())) for part in parts]
    return tuple(torch.cat(each, dim=dim) for each in zip(*found, strict=True))
