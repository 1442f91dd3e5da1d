"""Triton's device code in a process of its own, for Triton reads once, when it is imported, whether it interprets."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from typing import Any
from unittest import mock

import interpreted_grid
import layouts
import pytest
import torch
from benchmarks import compilation
from benchmarks.seeds import KernelOfSeeds
from kernel_cases import CELLS, Case, Form, results
from parameters import moved
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from las.nn.kernels import choice
from las.nn.kernels.graphs import capture
from las.nn.kernels.triton import division
from las.nn.kernels.triton.plan import TritonPlan
from las.nn.rnn import BidirectionalLayer

triton = choice.KERNELS["triton"]

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")

FRAMES, LENGTHS = 3, [2, 3, 0, 1]  # the interpreter is slow


PLANS = {
    "bf16": TritonPlan("apart", "none", "tanh", 1e-5, torch.bfloat16, torch.bfloat16, "ieee", True),
    "mixed": TritonPlan("joined", "both", "layer", 1e-12, torch.float16, torch.float32, "ieee", True),
    "tf32": TritonPlan("per_gate", "state", "rms", 1e-5, torch.float32, torch.float32, "tf32", True),
    "fp32": TritonPlan("none", "output", "none", 1e-5, torch.float32, torch.float32, "ieee", True),
}

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


def results_of(form: Form, case: Case, kernel: str = "triton", units: int = 16) -> list[Tensor]:
    """Values and gradients of a case; a program of a persistent layer has so many units."""
    if kernel == "triton":
        return results(form, triton, case).all()
    with mock.patch.object(division, "OWN", units), interpreted_grid.side_by_side():
        return results(form, choice.KERNELS[kernel], case).all()


def recorded(form: Form, case: Case) -> list[Tensor]:
    """Values and gradients as within a graph of a whole update, whose loops are its own."""
    with mock.patch.object(capture, "is_recording", lambda device: True), mock.patch.object(capture, "cached", None):
        return results(form, triton, case).all()


def of_seeds(name: str, seeds: int) -> list[tuple[Tensor, Tensor]]:
    """Outputs and gradients of layers of several seeds: in one call of the kernel within `vmap`, and one by one."""
    layers = [BidirectionalLayer(CELLS[name], 3, 5) for _ in range(seeds)]
    for layer in layers:
        moved(layer, 0.4)
    parameters, _ = stack_module_state(layers)
    frames, lengths = torch.randn(len(LENGTHS), FRAMES, 3), torch.tensor(LENGTHS)
    with choice.use_kernel(KernelOfSeeds(triton)):
        at_once = vmap(partial(functional_call, layers[0]), in_dims=(0, None))(parameters, (frames, lengths))
    with choice.use_kernel("plain"):
        alone = torch.stack([layer(frames, lengths) for layer in layers])
    named = [dict(layer.named_parameters()) for layer in layers]
    found = torch.autograd.grad(at_once.sin().sum(), [*parameters.values()])
    expected = torch.autograd.grad(alone.sin().sum(), [each[key] for key in parameters for each in named])
    stacked = [torch.stack(expected[start : start + seeds]) for start in range(0, len(expected), seeds)]
    return [*zip([at_once.detach(), *found], [alone.detach(), *stacked], strict=True)]


def relaid(case: layouts.Recurrence, chosen: list[str], kernel: str = "triton") -> list[Tensor]:
    """The results of a case whose tensors have these layouts."""
    with interpreted_grid.side_by_side():
        return case.by(choice.KERNELS[kernel], layouts.relaid(case.tensors(), chosen)[0])


def through_words(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """All numbers of a type in half precision, and what is left of them in words."""
    import words_kernel

    return words_kernel.through_words(dtype)


def persistent_phases(plan: TritonPlan, hidden_size: int, batch: int, capability: int) -> list[compilation.Phase]:
    """Both passes of a persistent layer of two directions, compiled."""
    return compilation.persistent_phases(plan, hidden_size, batch, 2, capability)


def compiled(plan: TritonPlan, hidden_size: int, batch: int, capability: int) -> list[compilation.Phase]:
    """The phases of both directions, compiled. The shape checker is loaded as it is in the tests that use a GPU."""
    import places

    assert places.REPOSITORY.is_dir()
    return compilation.phases(plan, hidden_size, batch, 2, capability)
