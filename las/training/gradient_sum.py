"""Sum of gradients over the processes, overlapped with the backward pass.

Buckets of gradients are summed while the backward pass computes those of other buckets, as Li et al. (2020, "PyTorch
Distributed") do it. `torch.nn.parallel.DistributedDataParallel` is not used: a process that runs out of memory in the
middle of a backward pass would leave the others waiting. Here it still takes part in the sums of all buckets, and all
processes try again together.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from las.runtime import distributed
from las.runtime.distributed import PendingSum

BUCKET_BYTES = 4 * 2**20
"""Bytes of a bucket, unless one parameter has more: small enough to start early, large beside the latency of a sum."""


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
        self.sum: PendingSum | None = None

    def start(self) -> None:
        """Start the sum, with zeros for parameters without a gradient."""
        for part, parameter in zip(self.parts, self.parameters, strict=True):
            part.zero_() if parameter.grad is None else part.copy_(parameter.grad)
        self.sum = distributed.start_sum(self.flat)

    def finish(self) -> None:
        """Wait for the sum, and make it the gradient."""
        assert self.sum is not None
        self.sum.wait()
        for part, parameter in zip(self.parts, self.parameters, strict=True):
            if parameter.grad is None:
                parameter.grad = part.clone()
            else:
                parameter.grad.copy_(part)


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
        """Runs of parameters of one type that are not larger than a bucket."""
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
