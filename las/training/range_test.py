"""Learning rate range test (Smith 2017, "Cyclical Learning Rates", section 3.3): a new model is trained while the rate
grows exponentially. Below the suitable rates the loss hardly falls, above them it rises.
"""

import contextlib
import functools
import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from las.config.build import require
from las.data import loader, manifest
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.nn import scheduled
from las.runtime import devices, progress, signals
from las.runtime.errors import ArgumentError, NumericalError
from las.training import data_preparation
from las.training.schedules import rounded_down
from las.training.setup import TrainingParts
from las.training.tasks.base import TrainingTargets

DIVERGED = 2.0
"""A sweep ends when the smoothed loss is so many times the lowest so far."""


class Point(NamedTuple):
    """One update: its learning rate, its loss, and the mean of the losses so far, the last ones weighted most."""

    rate: float
    loss: float
    smoothed: float


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The rates of a range test: `updates` of them from `low` to `high`, at equal ratios.

    Args:
        low, high: first and last rate.
        updates: number of updates.
        smoothing: weight of the losses before in the smoothed loss, from 0 to below 1.
    """

    low: int | float
    high: int | float
    updates: int
    smoothing: int | float

    def __post_init__(self) -> None:
        require("updates", self.updates, 10)
        require("smoothing", self.smoothing, 0.0, 0.999)
        if not 0.0 < self.low < self.high:
            raise ArgumentError(f"low={self.low:g} must be above 0 and below high={self.high:g}")

    def rates(self) -> list[float]:
        """Return the rate of each update."""
        ratio = self.high / self.low
        return [self.low * ratio ** (index / (self.updates - 1)) for index in range(self.updates)]


class RangeTest(NamedTuple):
    """The updates of a range test, up to the one that diverged."""

    points: list[Point]
    diverged: bool

    @property
    def lowest(self) -> Point:
        """The update with the lowest smoothed loss."""
        return min(self.points, key=lambda point: point.smoothed)

    @property
    def suggestion(self) -> float:
        """A rate to train with, 1, 2 or 5 times a power of ten: a tenth of the one with the lowest smoothed loss."""
        return rounded_down(self.lowest.rate / 10.0)


def run(
    parts: TrainingParts, corpus: Corpus, train: Sequence[Utterance], targets: TrainingTargets, sweep: Sweep
) -> RangeTest:
    """Train a model, new or warm-started, while the rate grows; it is used up. Same parts and utterances: same result.

    Raises NumericalError when the first updates are not finite.
    """
    torch.set_num_threads(devices.threads(parts.options.threads))
    model = parts.speech_model.to(parts.device)
    if parts.warm_start.source is not None:
        parts.warm_start.apply(model, corpus.tokens, targets.state)
    if parts.warm_start.statistics == "corpus":
        data_preparation.fit_features(model.features, train, corpus, parts.batch_size)
    optimiser = parts.optim(model.parameters())
    training_step, accumulate = parts.training_step(optimiser), parts.options.accumulate
    points: list[Point] = []
    average, rates = 0.0, sweep.rates()
    with contextlib.closing(_batches(parts, corpus, train, targets.source)) as batches, signals.Signals() as stop:
        for step, rate in progress.counted(enumerate(rates, start=1), len(rates), "updates"):
            for group in optimiser.param_groups:
                group["lr"] = rate
            parts.warm_start.set_trainable(model, step)
            scheduled.update_scheduled_values((model, parts.loss), step, 1)
            update = training_step([next(batches).to(parts.device) for _ in range(accumulate)], step)
            if not update.finite or stop.received is not None:  # a signal is raised again at the end of the body
                break
            average = sweep.smoothing * average + (1.0 - sweep.smoothing) * update.loss
            points.append(Point(rate, update.loss, average / (1.0 - sweep.smoothing**step)))
            if points[-1].smoothed > DIVERGED * min(point.smoothed for point in points):
                break
    if not points:
        raise NumericalError(f"the first update, at the rate {sweep.low:g}, is not finite: try a smaller low=...")
    return RangeTest(points, len(points) < len(rates))


def _batches(
    parts: TrainingParts, corpus: Corpus, train: Sequence[Utterance], targets: loader.Targets
) -> Generator[loader.Batch]:
    """Yield the batches of a training from its first epoch on, without end."""
    content, workers = manifest.content_hash(train), devices.reading_workers(parts.options.num_workers)
    source = loader.Loader(train, targets, corpus.sample_rate, workers, augment=parts.augment)
    for epoch in itertools.count():
        plan = parts.order.plan(train, content, parts.seed, epoch, parts.batch_size)
        key_of = functools.partial(loader.augmentation_seed, parts.seed, epoch)
        for _, batch in source.batches(plan, 0, key_of):
            yield batch
