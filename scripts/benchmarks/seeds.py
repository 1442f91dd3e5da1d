"""A prototype: trainings of several seeds as one model, whose parameters have the seeds as their first axis.

All read the same batches. Initial values, dropout and noise are each seed's own, and so is the norm that is clipped.
Everything but the recurrence is `torch.func.vmap` of one model; the recurrence has the directions of all seeds in its
kernels, and a GPU computes the whole update as one CUDA graph.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn import functional

from benchmarks.models import Subject
from las.data.loader import Batch
from las.nn import dropout, listener
from las.nn.cells.base import LSTMCell
from las.nn.kernels import choice
from las.nn.kernels.graphs import capture
from las.nn.kernels.triton import layer
from las.nn.kernels.triton.layer import Loops, TritonKernel, TritonRecurrence
from las.nn.kernels.triton.plan import TritonPlan
from las.nn.model import SpeechModel
from las.runtime.precision import products_of
from las.training.update_graphs import Inputs, Objective


class _Padded:
    """Zeros after rows as a GPU adds them: the functions of a CPU have no rule for `vmap`."""

    @staticmethod
    def apply(rows: Tensor, count: int) -> Tensor:
        return functional.pad(rows, (0, 0, 0, count))


class _Dropped:
    """Dropout as a GPU computes it."""

    @staticmethod
    def apply(values: Tensor, dropped: int) -> Tensor:
        return functional.dropout(values, dropped / 2**dropout.BITS)


class RecurrenceOfSeeds(torch.autograd.Function):
    """`TritonRecurrence` within `vmap` over seeds, whose directions are further directions of one call."""

    @staticmethod
    def forward(*given: Any) -> Any:
        raise TypeError("there is one seed: TritonRecurrence computes it")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: `vmap` below is differentiated itself."""

    @staticmethod
    def vmap(
        info: Any,
        axes: Sequence[int | None],
        loops: Loops,
        plan: TritonPlan,
        lengths: Tensor,
        *tensors: Tensor,
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        if axes[2] is not None:
            raise TypeError("the rows of a batch have the same lengths for all seeds")

        def of_seeds(tensor: Tensor, axis: int | None) -> Tensor:
            return tensor.expand(info.batch_size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)

        first, weight, affine, *each = map(of_seeds, tensors, axes[3:])
        outputs, last = TritonRecurrence.apply(
            *(loops, plan._replace(keep=True), lengths, first.transpose(0, 1).flatten(1, 2)),
            *(weight.flatten(0, 1), affine.flatten(0, 1), *torch.stack(each, 1).flatten(0, 1)),
        )
        by_seed = outputs.unflatten(2, (info.batch_size, -1)), last.unflatten(1, (info.batch_size, -1))
        return by_seed, (2, 1)


class KernelOfSeeds(TritonKernel):
    """Computes layers within `vmap` over seeds."""

    device = None  # no trial, which would run within `vmap`

    def __init__(self, kernel: TritonKernel) -> None:
        self.kernel = kernel

    def loops(self) -> Loops:
        return self.kernel.loops()

    def unsupported_reason(self, cell: LSTMCell, like: Tensor) -> str:
        return ""

    def recurrence(self, *given: Any) -> Any:
        with patch.object(layer, "TritonRecurrence", RecurrenceOfSeeds):
            return super().recurrence(*given)


class SeedsUpdate:
    """Updates of the trainings of several seeds, each of which begins with parameters drawn from its number.

    Args:
        kernel: computes the layers within `vmap`.
        precision: type of the operands of products.
    """

    def __init__(
        self, subject: Subject, seeds: int, kernel: str | KernelOfSeeds, precision: str, device: torch.device
    ) -> None:
        self.alone = subject.step(precision, device)
        self.subject, self.kernel, self.device = subject, kernel, device
        assert isinstance(self.alone.model, SpeechModel)
        self.objective = Objective(self.alone.model, self.alone.loss).train()
        drawn = []
        for seed in range(1, seeds + 1):
            torch.manual_seed(seed)
            drawn.append(dict(subject.make().to(device).named_parameters()))
        self.parameters = {
            f"model.{name}": torch.stack([each[name].detach() for each in drawn]).requires_grad_() for name in drawn[0]
        }
        (group,) = self.alone.optimiser.param_groups
        on_gpu = device.type == "cuda"
        self.optimiser = torch.optim.Adam(self.parameters.values(), group["lr"], fused=True, capturable=on_gpu)
        self.given: Inputs | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.losses = torch.zeros(seeds, device=device)

    def read(self, batch: Batch) -> None:
        """Take a batch, which has the shape of the one before."""
        given = self.alone._inputs(batch, self.alone.loss.divisor(self.alone.model.num_targets(batch)))
        if self.given is None:
            self.given = given
        for own, other in zip(self.given, given, strict=True):
            own.copy_(other)

    def capture(self) -> None:
        """Run the update from now on as a CUDA graph. Raises RuntimeError if none can be captured."""
        with capture.whole():
            self.graph = capture.captured(self.run, self.device, count=1, compiled=True)
        if self.graph is None:
            raise RuntimeError("no graph of the update")

    def __call__(self) -> Tensor:
        """Run an update with the batch that was read; the losses of all seeds, which the next one overwrites."""
        if self.graph is not None:
            self.graph.replay()
        else:
            with capture.whole():
                self.run()
        return self.losses

    def run(self) -> None:
        """Run the operations of an update."""
        assert self.given is not None
        # As in `UpdateGraphs`: gradients of the parameters themselves would be summed on the stream around a capture.
        leaves = {name: each.detach().requires_grad_() for name, each in self.parameters.items()}
        one = partial(functional_call, self.objective)
        with (
            choice.use_kernel(self.kernel),
            products_of(self.alone.precision, self.device),
            patch.object(listener, "WithZeros", _Padded),
            patch.object(dropout, "Dropped", _Dropped),
        ):
            losses = vmap(one, in_dims=(0, None), randomness="different")(leaves, (self.given,)) / self.given.divisor
        losses.sum().backward()
        gradients = [leaf.grad for leaf in leaves.values() if leaf.grad is not None]
        for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
            parameter.grad = gradient
        norms = torch.stack([each.flatten(1).norm(dim=1) for each in gradients]).norm(dim=0)
        clip = self.subject.clip_norm
        factors = torch.ones_like(norms) if clip is None else (clip / (norms + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.losses.copy_(losses.detach())
