"""One update of a model: from batches to a gradient, and from a finite gradient to new parameters.

The gradient is that of the loss of the whole update, however it is divided: into micro-batches that fit into memory,
several batches (accumulation), several processes (`las.training.gradient_sum`).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from las.data.augmentation.augmentation import Augmentation
from las.data.loader import Batch
from las.nn.losses import TrainingLoss
from las.nn.trainable import Trainable
from las.runtime import devices, distributed
from las.runtime.devices import PRECISIONS
from las.runtime.errors import LasError
from las.training.gradient_sum import GradientSum
from las.training.gradients import GradientTransform
from las.training.weight_noise import WeightNoise


class StepResult(NamedTuple):
    """Loss of one update, over all batches and processes, and the norm of its gradient before clipping."""

    loss: float
    norm: float

    @property
    def finite(self) -> bool:
        """True if loss and gradient are finite; otherwise the update was skipped."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


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
        self.model.train()
        distributed.announce_step(step, [name for batch in batches for name in batch.ids])
        (targets,) = distributed.total(float(sum(map(self.model.num_targets, batches))))
        divisor = self.loss.divisor(targets)
        with self.weight_noise.applied(self.model.named_parameters(), step):
            share = self._gradient(batches, divisor, step)
        norm = self.gradients.change(self.model.named_parameters(), step)
        (loss,) = distributed.total(share)
        update = StepResult(loss, norm)
        if update.finite:
            self.optimiser.step()
        return update

    def _gradient(self, batches: Sequence[Batch], divisor: float, step: int) -> float:
        """Compute this process's share of the loss, and the gradient of all processes.

        If memory runs out in one of them, all compute again in smaller micro-batches.
        """
        while True:
            devices.seed_update(self.seed, step, distributed.rank())
            self.optimiser.zero_grad(set_to_none=True)
            self.gradient_sum.begin()
            failed, share = False, 0.0
            try:
                parts = [part for batch in batches for part in batch.split(self.micro_batch_size)]
                share += sum(self._part(part, divisor) for part in parts[:-1])
                with self.gradient_sum.overlapped():
                    share += sum(self._part(part, divisor) for part in parts[-1:])
            except torch.OutOfMemoryError:
                failed = True
            self.gradient_sum.finish()
            (any_failed,) = distributed.any_of(failed)
            if not any_failed:
                return share
            self._halve_micro_batch(batches, step)

    def _part(self, batch: Batch, divisor: float) -> float:
        kind = batch.waveforms.device.type
        with torch.autocast(kind, self.precision, enabled=self.precision != torch.float32):
            output = self.model.forward_batch(batch, self.augment.features)
        loss = self.loss.objective(self.model, output, batch) / divisor
        loss.backward()
        return float(loss.detach())

    def _halve_micro_batch(self, batches: Sequence[Batch], step: int) -> None:
        """Halve the number of utterances computed at once, in all processes alike."""
        ids_by_process = distributed.gather([batch.ids for batch in batches])
        largest = max(len(ids) for process in ids_by_process for ids in process)
        at_once = min(largest, self.micro_batch_size or largest)
        if at_once == 1:
            ids = [name for process in ids_by_process for ids in process for name in ids]
            raise LasError(
                f"step {step}: memory does not suffice for one utterance at a time, among {', '.join(ids[:10])}. "
                "Leave out the longest with limits.longest_s=..., or take a smaller model"
            )
        self.optimiser.zero_grad(set_to_none=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.micro_batch_size = at_once // 2
