"""One update of a model: from batches to a gradient, and from a finite gradient to new parameters.

The gradient is that of the loss of the whole update, however it is divided: into micro-batches that fit into memory,
several batches (accumulation), several processes.

Processes sum buckets of gradients while the backward pass computes those of other buckets, as Li et al. (2020, "PyTorch
Distributed") do it. `torch.nn.parallel.DistributedDataParallel` is not used: a process that runs out of memory in the
middle of a backward pass would leave the others waiting. Here it still takes part in the sums of all buckets, and all
processes try again together.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from las.data.augmentation.augmentation import Augmentation
from las.data.loader import Batch
from las.nn.kernels import choice
from las.nn.kernels.graphs import replayed
from las.nn.losses import TrainingLoss
from las.nn.model import SpeechModel, Trainable
from las.runtime import devices, distributed
from las.runtime.errors import LasError, first_of
from las.runtime.precision import PRECISIONS, products_of
from las.training.optimization import GradientTransform, WeightNoise
from las.training.update_graphs import Inputs, UpdateGraphs

BUCKET_BYTES = 4 * 2**20
"""Bytes of a bucket, unless one parameter has more: small enough to start early, large against the latency of a sum."""


class StepResult(NamedTuple):
    """Loss of one update, over all batches and processes, and the norm of its gradient before clipping."""

    loss: float
    norm: float

    @property
    def finite(self) -> bool:
        """True if loss and gradient are finite; otherwise the update was skipped."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


def _result(values: Tensor) -> Callable[[], StepResult]:
    """Start to read the shares of a loss and the norm of its gradient; what is returned waits for them."""
    read = devices.read_later(values)

    def result() -> StepResult:
        *shares, norm = read()
        return StepResult(sum(shares), norm)

    return result


class TrainingStep:
    """Changes a model's parameters, one update after the other.

    Args:
        model, loss, optimiser, gradients, weight_noise, augment: the parts of the training.
        seed: the random numbers of an update (dropout, noise, sampling) are a function of (seed, step, process).
        precision: the type of matrix products, `fp32` or `bf16` (autocast; norms, softmax and loss stay in fp32).
    """

    def __init__(
        self,
        model: Trainable,
        loss: TrainingLoss,
        optimiser: torch.optim.Optimizer,
        gradients: GradientTransform,
        weight_noise: WeightNoise,
        augment: Augmentation,
        seed: int,
        precision: str,
    ) -> None:
        self.model, self.loss, self.optimiser = model, loss, optimiser
        self.gradients, self.weight_noise, self.augment = gradients, weight_noise, augment
        self.seed, self.precision = seed, PRECISIONS[precision]
        self.gradient_sum = GradientSum(model.parameters())
        self.micro_batch_size: int | None = None
        """The largest number of utterances computed at once, set when memory runs out; None until then."""

    def __call__(self, batches: Sequence[Batch], step: int) -> StepResult:
        """Run update number `step` (from 1) on this process's share of one or more batches.

        Raises LasError when a single utterance does not fit into memory.
        """
        return self.start(batches, step)()

    @property
    def reads_later(self) -> bool:
        """True if an update is started on a GPU without waiting for it, so that the next one can be.

        One process and an optimiser that leaves out an update on the GPU itself are needed: torch's fused ones.
        """
        leaves_out = getattr(self.optimiser, "_step_supports_amp_scaling", False)
        return leaves_out and self.model.device.type == "cuda" and distributed.world_size() == 1

    def start(self, batches: Sequence[Batch], step: int) -> Callable[[], StepResult]:
        """Start an update, as `__call__` runs one; the function that is returned waits for its result."""
        self.model.train()
        distributed.announce_step(step, [name for batch in batches for name in batch.ids])
        (targets,) = distributed.total(float(sum(map(self.model.num_targets, batches))))
        divisor = self.loss.divisor(targets)
        graphs, is_whole = self.graphs, len(batches) == 1 and self.micro_batch_size is None
        if graphs is not None and graphs.works and is_whole:
            values = graphs(self._inputs(batches[0], divisor), partial(self._seed, step))
            if values is not None:
                return _result(values)
        with self.weight_noise.applied(self.model.named_parameters(), step):
            losses = self._gradient(batches, divisor, step)
        losses.append(self.gradients.change(self.model.named_parameters(), step))
        # Read at once, as the host waits for a GPU then.
        values = torch.stack([each.double() for each in losses])
        if self.reads_later:
            return self._step_on_device(values)
        *shares, norm = values.tolist()
        (loss,) = distributed.total(sum(shares))
        update = StepResult(loss, norm)
        if update.finite:
            self.optimiser.step()
        return lambda: update

    def _step_on_device(self, values: Tensor) -> Callable[[], StepResult]:
        """Change the parameters unless one of the losses and the norm is not finite, which the host need not know."""
        optimiser: Any = self.optimiser
        optimiser.grad_scale, optimiser.found_inf = None, values.isfinite().all().logical_not().float()
        optimiser.step()
        return _result(values)

    @cached_property
    def graphs(self) -> UpdateGraphs | None:
        """Whole updates as CUDA graphs; None where an update is not one."""
        model, parts = self.model, (self.loss, self.optimiser, self.gradients)
        if not (self.reads_later and choice.has_graphs(model.device) and isinstance(model, SpeechModel)):
            return None
        if type(self.weight_noise) is not WeightNoise or self.weight_noise.std or not UpdateGraphs.serve(model, *parts):
            return None
        return UpdateGraphs(model, *parts, self.precision)

    def _inputs(self, batch: Batch, divisor: float) -> Inputs:
        """Return what an update reads, of one of few shapes. Padding adds nothing to any sum."""
        assert isinstance(self.model, SpeechModel)
        samples, tokens = (replayed.bucket(each.shape[1]) - each.shape[1] for each in (batch.waveforms, batch.targets))
        wider = replace(batch, waveforms=functional.pad(batch.waveforms, (0, samples)))
        device = batch.waveforms.device
        with products_of(self.precision, device):
            features, num_frames = self.model.augmented(wider, self.augment.features)
        lengths = torch.stack([num_frames, batch.num_tokens]).to(device, non_blocking=True)
        rates = [divisor, *(group["lr"] for group in self.optimiser.param_groups)]
        numbers = torch.tensor(rates, dtype=torch.float32).to(device, non_blocking=True)
        return Inputs(
            features=features,
            num_frames=lengths[0],
            targets=functional.pad(batch.targets, (0, tokens)),
            num_tokens=lengths[1],
            divisor=numbers[0],
            rates=numbers[1:],
            left_out=torch.zeros((), dtype=torch.bool, device=device),
        )

    def _seed(self, step: int) -> None:
        devices.seed_update(self.seed, step, distributed.rank())

    def _gradient(self, batches: Sequence[Batch], divisor: float, step: int) -> list[Tensor]:
        """Compute this process's share of the loss, a term for each micro-batch, and the gradient of all processes.

        If memory runs out in one of them, all compute again in smaller micro-batches.
        """
        while True:
            self._seed(step)
            self.optimiser.zero_grad(set_to_none=True)
            self.gradient_sum.begin()
            failed, losses = False, list[Tensor]()
            try:
                parts = [part for batch in batches for part in batch.split(self.micro_batch_size)]
                losses += [self._part(part, divisor) for part in parts[:-1]]
                with self.gradient_sum.overlapped():
                    losses += [self._part(part, divisor) for part in parts[-1:]]
            except torch.OutOfMemoryError:
                failed = True
            self.gradient_sum.finish()
            (any_failed,) = distributed.any_of(failed)
            if not any_failed:
                return losses
            self._halve_micro_batch(batches, step)

    def _part(self, batch: Batch, divisor: float) -> Tensor:
        with products_of(self.precision, batch.waveforms.device):
            output = self.model.forward_batch(batch, self.augment.features)
        loss = self.loss.objective(self.model, output, batch) / divisor
        loss.backward()
        return loss.detach()

    def _halve_micro_batch(self, batches: Sequence[Batch], step: int) -> None:
        """Halve the number of utterances computed at once, in all processes alike."""
        ids_by_process = distributed.gather([batch.ids for batch in batches])
        largest = max(len(ids) for process in ids_by_process for ids in process)
        at_once = min(largest, self.micro_batch_size or largest)
        if at_once == 1:
            ids = [name for process in ids_by_process for ids in process for name in ids]
            raise LasError(
                f"step {step}: memory does not suffice for one utterance at a time, among {first_of(ids)}. "
                "Leave out the longest with limits.longest_s=..., or take a smaller model"
            )
        self.optimiser.zero_grad(set_to_none=True)
        if self.graphs is not None:
            self.graphs.stop()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.micro_batch_size = at_once // 2


class Bucket:
    """Gradients that are summed together; `missing` are those that the backward pass has not completed."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.flat = parameters[0].new_zeros(sum(parameter.numel() for parameter in parameters))
        sizes = [parameter.numel() for parameter in parameters]
        self.parts = [part.view_as(each) for part, each in zip(self.flat.split(sizes), parameters, strict=True)]
        self.clear()

    def clear(self) -> None:
        """Forget the sum before this one."""
        self.missing = set(range(len(self.parameters)))
        self.wait_for_sum: Callable[[], None] | None = None

    def start(self) -> None:
        """Start the sum, with zeros for parameters without a gradient."""
        for part, parameter in zip(self.parts, self.parameters, strict=True):
            part.zero_() if parameter.grad is None else part.copy_(parameter.grad)
        self.wait_for_sum = distributed.start_sum(self.flat)

    def finish(self) -> None:
        """Wait for the sum, and make it the gradient."""
        assert self.wait_for_sum is not None
        self.wait_for_sum()
        for part, parameter in zip(self.parts, self.parameters, strict=True):
            parameter.grad = part.clone() if parameter.grad is None else parameter.grad.copy_(part)


class GradientSum:
    """The sum of gradients over all processes: `begin`, one backward pass within `overlapped`, `finish`.

    Every process starts the sums of all buckets in the same order, from the last parameters to the first, as a backward
    pass completes them. With one process nothing is done.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], bucket_bytes: int = BUCKET_BYTES) -> None:
        self.parameters, self.bucket_bytes = [*parameters], bucket_bytes
        self.trainable: list[nn.Parameter] = []
        self.buckets: list[Bucket] = []
        self.num_started = 0

    def begin(self) -> None:
        """Begin an update, or try it again."""
        if distributed.world_size() == 1:
            return
        trainable = [parameter for parameter in reversed(self.parameters) if parameter.requires_grad]
        if [*map(id, trainable)] != [*map(id, self.trainable)]:
            self.trainable, self.buckets = trainable, [*map(Bucket, self._divided(trainable))]
        for bucket in self.buckets:
            bucket.clear()
        self.num_started = 0

    @contextmanager
    def overlapped(self) -> Iterator[None]:
        """Start the sum of each bucket as soon as the backward pass in the body completes it."""
        if distributed.world_size() == 1:
            yield
            return
        handles = [
            parameter.register_post_accumulate_grad_hook(self._hook(bucket, index))
            for bucket in self.buckets
            for index, parameter in enumerate(bucket.parameters)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def finish(self) -> None:
        """Start the sums that are left, wait for all, and set the gradients."""
        if distributed.world_size() == 1:
            return
        with torch.no_grad():
            for bucket in self.buckets[self.num_started :]:
                bucket.start()
            self.num_started = len(self.buckets)
            for bucket in self.buckets:
                bucket.finish()

    def _divided(self, parameters: list[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
        """Yield runs of parameters of one type that are not larger than a bucket."""
        run: list[nn.Parameter] = []
        for parameter in parameters:
            size = sum(each.nbytes for each in run) + parameter.nbytes
            if run and (size > self.bucket_bytes or parameter.dtype != run[0].dtype):
                yield run
                run = []
            run.append(parameter)
        if run:
            yield run

    def _hook(self, bucket: Bucket, index: int) -> Callable[[Tensor], None]:
        def completed(_: Tensor) -> None:
            bucket.missing.discard(index)
            while self.num_started < len(self.buckets) and not self.buckets[self.num_started].missing:
                self.buckets[self.num_started].start()
                self.num_started += 1

        return completed
