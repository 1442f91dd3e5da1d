"""An update of a model, timed by part."""

import itertools
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from las.data.loader import Batch
from las.runtime.precision import products_of
from las.training.step import TrainingStep

PARTS = ("features", "listener", "speller", "loss", "speller_backward", "listener_backward", "optimiser")
"""The parts of an update in order. The loss's backward pass counts as the speller's, clipping as the optimiser's."""

WARM_UP = 1


def parts(update: TrainingStep, batch: Batch, repeats: int) -> dict[str, float]:
    """Median milliseconds of each part, `<part>_ms`, of updates that are made one operation after the other."""
    with _marked(update) as clock:
        for number in range(1, WARM_UP + repeats + 1):
            _update(update, batch, number, clock)
    columns = zip(*clock.durations_ms()[WARM_UP:], strict=True)
    return {f"{part}_ms": statistics.median(column) for part, column in zip(PARTS, columns, strict=True)}


class _Clock:
    """Marks between the parts of updates: on a GPU events of its stream, which nothing waits for."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.updates: list[list[torch.cuda.Event | float]] = []

    def begin(self) -> None:
        """Begin an update, after a GPU has finished the one before."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.updates.append([])
        self.mark()

    def mark(self, *_: object) -> None:
        """End a part. It also serves as a hook, without changes."""
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.updates[-1].append(event)
        else:
            self.updates[-1].append(1e3 * time.perf_counter())

    def durations_ms(self) -> list[list[float]]:
        """Milliseconds of the parts of each update."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return [[_between(*pair) for pair in itertools.pairwise(marks)] for marks in self.updates]


def _between(start: torch.cuda.Event | float, end: torch.cuda.Event | float) -> float:
    if isinstance(start, float) or isinstance(end, float):
        return float(end) - float(start)  # type: ignore[arg-type]
    elapsed: float = start.elapsed_time(end)
    return elapsed


@contextmanager
def _marked(update: TrainingStep) -> Iterator[_Clock]:
    """A clock whose marks the model's modules make."""
    model, loss = update.model, update.loss
    clock = _Clock(model.device)

    def listened(module: nn.Module, inputs: object, outputs: tuple[Tensor, ...]) -> None:
        clock.mark()
        outputs[0].register_hook(clock.mark)

    handles = [
        model.get_submodule("features").register_forward_hook(clock.mark),
        model.get_submodule("listener").register_forward_hook(listened),
        loss.register_forward_pre_hook(clock.mark),
        loss.register_forward_hook(clock.mark),
    ]
    try:
        yield clock
    finally:
        for handle in handles:
            handle.remove()


def _update(update: TrainingStep, batch: Batch, number: int, clock: _Clock) -> None:
    """What `TrainingStep` does on one GPU, or on a CPU."""
    model = update.model.train()
    update.optimiser.zero_grad(set_to_none=True)
    divisor = update.loss.divisor(float(model.num_targets(batch)))
    clock.begin()
    with products_of(update.precision, model.device):
        output = model.forward_batch(batch, update.augment.features)
    (update.loss.objective(model, output, batch) / divisor).backward()
    clock.mark()
    update.gradients.change(model.named_parameters(), number)
    update.optimiser.step()
    clock.mark()
