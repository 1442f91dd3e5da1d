"""A trial of a training's longest batches before step 1: the memory they take, and how large they may be.

Updates of the 1, 2, 4, ... longest utterances are tried, up to the batch size, which no batch of any epoch exceeds. The
memory of an update grows in proportion to its seconds of audio, padding included. The trials therefore predict the
memory of larger batches, and a batch that is predicted to need more than the free memory is not tried.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch

from las.config.build import Config
from las.data.corpora.base import Corpus
from las.data.loader import Batch, Loader, by_length, cut
from las.data.manifest import Utterance
from las.nn.kernels import choice
from las.runtime import machine
from las.runtime.errors import LasError
from las.runtime.machine import GB, NOTE, OK, PROBLEM, Check
from las.training import memory
from las.training.setup import TrainingParts
from las.training.step import TrainingStep

RESERVE = 0.1  # share of the free memory that a prediction leaves unused


class Trial(NamedTuple):
    """An update of some utterances: seconds with padding, bytes at its peak beyond the model's own, duration."""

    utterances: int
    seconds: float
    num_bytes: int
    took_s: float


class Forecast(NamedTuple):
    """The result of the trials: free bytes, and the seconds of audio, padding included, that a batch may have."""

    trials: list[Trial]
    free: int
    failed: int | None
    """The number of utterances of the trial that ran out of memory."""
    longest_batch_s: float | None
    """Seconds of audio that fit into memory as one batch; None where memory cannot be measured."""


def checks(config: Config, parts: TrainingParts, corpus: Corpus, train: Sequence[Utterance]) -> Iterator[Check]:
    """Check that the longest batch of a training fits into memory; names the setting to change if it does not.

    Args:
        config: the config of the training.
        parts: its parts; the trials train the model and draw its random numbers.
        corpus: its corpus.
        train: its training utterances.
    """
    usable = [utterance for utterance in train if utterance.duration_s <= parts.limits.longest_s]
    if not usable:
        limit = f"limits.longest_s={parts.limits.longest_s:g}"
        yield Check("longest batch", PROBLEM, f"all training utterances are longer than {limit}")
        return
    longest = [usable[index] for index in cut(by_length(usable)[::-1], usable, parts.batch_size)[0]]
    with choice.use_kernel(str(config["kernel"])):
        prediction = forecast(parts, longest, corpus)
    longest_s = longest[0].duration_s
    wanted_s = len(longest) * longest_s
    batch = f"{len(longest)} of {longest_s:.1f} s, {wanted_s:,.0f} s with padding"
    yield verdict(prediction, batch, wanted_s, wanted_s / min(*parts.augment.speeds, 1.0))


def verdict(forecast: Forecast, batch: str, wanted_s: float, slowed_s: float) -> Check:
    """Return the verdict on a batch of `wanted_s` seconds, `slowed_s` at the slowest speed of augmentation."""
    name = "longest batch"
    if not forecast.trials:
        command = "limits.longest_s=... (seconds), or a smaller model"
        return Check(name, PROBLEM, f"{batch}: memory does not suffice for the longest utterance alone", command)
    last = forecast.trials[-1]
    pace = f"{last.utterances} took {last.took_s:.1f} s"
    if forecast.longest_batch_s is None:
        return Check(name, NOTE, f"{batch}: {pace}; this system does not say how much memory they took")
    budget_s = forecast.longest_batch_s * wanted_s / slowed_s
    took = f"{last.num_bytes / GB:.2f} of {forecast.free / GB:.1f} GB for {last.utterances}, {pace}"
    if budget_s < wanted_s or forecast.failed is not None:
        return Check(
            name, PROBLEM, f"{batch}: {took}; all will not fit", f"trainer.max_batch_s={max(int(budget_s), 1)}"
        )
    return Check(name, OK, f"{batch}: {took}; memory is enough for trainer.max_batch_s={int(budget_s):,}")


def forecast(parts: TrainingParts, utterances: Sequence[Utterance], corpus: Corpus) -> Forecast:
    """Try updates of 1, 2, 4, ... utterances, longest first, as long as they fit.

    The first update does not count as a trial: it also allocates the memory of optimiser and kernels.
    """
    device, model = parts.device, parts.model.to(parts.device)
    updates, targets = parts.training_step(parts.optim(model.parameters())), parts.task.trial_targets(corpus, model)
    parts.task.bind_loss(parts.loss, utterances, targets)
    loader = Loader(utterances, targets, corpus.sample_rate, 0)
    free = _free(device)
    trials: list[Trial] = []
    failed = None
    for step, count in enumerate([1, *_doubling(len(utterances))], start=1):
        if free is not None and len(trials) > 1:
            expected = _line(trials)
            if expected[0] + expected[1] * count * utterances[0].duration_s > free:
                break
        ((_, batch),) = loader.batches([list(range(count))])
        trial = _trial(updates, batch.to(device), utterances[0].duration_s, device, step)
        if trial is None:
            failed = count
            break
        if step == 1:
            free = _free(device)
        else:
            trials.append(trial)
    if free is None or not trials or not any(trial.num_bytes for trial in trials):
        return Forecast(trials, free or 0, failed, None)
    fixed, per_second = _line(trials)
    longest_batch_s = ((1 - RESERVE) * free - fixed) / per_second if per_second > 0 else trials[-1].seconds
    if failed is not None:
        longest_batch_s = min(longest_batch_s, trials[-1].seconds)
    return Forecast(trials, free, failed, longest_batch_s)


def _trial(updates: TrainingStep, batch: Batch, longest_s: float, device: torch.device, step: int) -> Trial | None:
    """Run and measure one update; None if memory ran out."""
    began = time.perf_counter()

    def update() -> None:
        updates([batch], step)

    try:
        measured = memory.allocated(update, device) if device.type == "cuda" else memory.resident(update, device)
    except LasError:  # not even one utterance at a time
        return None
    if updates.micro_batch_size is not None:
        return None
    count = len(batch.ids)
    return Trial(count, count * longest_s, measured or 0, time.perf_counter() - began)


def _line(trials: Sequence[Trial]) -> tuple[float, float]:
    """Return an upper line through the trials: bytes of any update, and bytes per second of audio."""
    if len(trials) == 1:
        return 0.0, trials[0].num_bytes / trials[0].seconds
    slopes = [(b.num_bytes - a.num_bytes) / (b.seconds - a.seconds) for a, b in pairwise(trials)]
    slope = max(slopes[-2:])
    return max(trials[-1].num_bytes - slope * trials[-1].seconds, 0.0), slope


def _doubling(largest: int) -> Iterator[int]:
    count = 1
    while count < largest:
        yield count
        count *= 2
    yield largest


def _free(device: torch.device) -> int | None:
    """Return the bytes that an update may take; on a GPU with those that the allocator holds unused."""
    if device.type != "cuda":
        return machine.available_memory()
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
