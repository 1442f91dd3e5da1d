"""Triton's device code in a process of its own, for Triton reads once, when it is imported, whether it interprets."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import layouts
import torch
from autograd_cases import make, material, results
from benchmarks import compilation
from kernel_cases import unroll_both
from torch import Tensor

from las.nn.cells.base import LSTMCell
from las.nn.kernels import choice
from las.nn.kernels.triton.plan import TritonPlan

triton = choice.KERNELS["triton"]

FRAMES, LENGTHS = 3, [2, 3, 0, 1]  # the interpreter is slow

Elsewhere = Callable[..., Any]
"""Calls a function of this module, with its arguments, in the other process."""


def process(**environment: str) -> Iterator[Elsewhere]:
    """A process that has these variables before it imports anything."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, _prepare, (environment,)) as pool:
        yield lambda function, *args: pool.submit(function, *args).result()


def _prepare(environment: dict[str, str]) -> None:
    assert "triton" not in sys.modules
    os.environ.update(environment)
    torch.set_num_threads(1)


def one(name: str, starts: bool, options: dict[str, Any]) -> list[Tensor]:
    """`results` of one cell, from a state of its own or from zeros."""
    given, state = material(torch.float32, FRAMES)
    return results(triton, make(name, torch.float32, **options), LENGTHS, given, state if starts else None)


def both(name: str, dtype: torch.dtype, options: dict[str, Any]) -> list[Tensor]:
    """`results_of_both` of two cells, where padding is NaN."""
    return results_of_both(triton, *pair(name, dtype, options, float("nan")))


def pair(
    name: str, dtype: torch.dtype, options: dict[str, Any], in_padding: float = 0.0
) -> tuple[list[LSTMCell], list[int], list[Tensor]]:
    """Two cells with different parameters, lengths, and input gates."""
    cells = [make(name, dtype, **options) for _ in range(2)]
    with torch.no_grad():
        for parameter in cells[1].parameters():
            parameter.mul_(1.25)
    gates, _ = material(dtype, FRAMES)
    padding = torch.arange(FRAMES) >= torch.tensor(LENGTHS).unsqueeze(1)
    given = [part.detach().masked_fill(padding.unsqueeze(-1), in_padding) for part in (gates, gates.flip(1))]
    return cells, LENGTHS, [part.requires_grad_() for part in given]


def results_of_both(
    kernel: Any, cells: list[LSTMCell], lengths: list[int], given: list[Tensor]
) -> list[Tensor]:  # fmt: skip
    """Outputs, then the gradients of a random sum of them towards input gates and parameters."""
    outputs = unroll_both(kernel, cells, given, torch.tensor(lengths, device=given[0].device))
    weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    total = (outputs * weights.to(outputs)).sum()
    wanted = [*given, *(parameter for cell in cells for parameter in cell.parameters())]
    return [outputs.detach(), *torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)]


def relaid(case: layouts.Recurrence, chosen: list[str]) -> list[Tensor]:
    """The results of a case whose tensors have these layouts."""
    return case.by(triton, layouts.relaid(case.tensors(), chosen)[0])


def compiled(plan: TritonPlan, hidden_size: int, batch: int, capability: int) -> list[compilation.Phase]:
    """The phases of both directions, compiled. The shape checker is loaded as it is in the tests that use a GPU."""
    import places

    assert places.REPOSITORY.is_dir()
    return compilation.phases(plan, hidden_size, batch, 2, capability)
