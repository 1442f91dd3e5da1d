"""Triton's device code in a process of its own, for Triton reads once, when it is imported, whether it interprets."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import layouts
import torch
from benchmarks import compilation
from kernel_cases import Case, Form, results
from torch import Tensor

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


def results_of(form: Form, case: Case) -> list[Tensor]:
    """Values and gradients of a case."""
    return results(form, triton, case).all()


def relaid(case: layouts.Recurrence, chosen: list[str]) -> list[Tensor]:
    """The results of a case whose tensors have these layouts."""
    return case.by(triton, layouts.relaid(case.tensors(), chosen)[0])


def compiled(plan: TritonPlan, hidden_size: int, batch: int, capability: int) -> list[compilation.Phase]:
    """The phases of both directions, compiled. The shape checker is loaded as it is in the tests that use a GPU."""
    import places

    assert places.REPOSITORY.is_dir()
    return compilation.phases(plan, hidden_size, batch, 2, capability)
