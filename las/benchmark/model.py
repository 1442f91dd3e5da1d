"""suite=model: one training step of an experiment's model, split by part."""

import itertools
import statistics
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from las import recurrent
from las.batches import Batch
from las.benchmark import material, timing
from las.benchmark.candidates import refusal
from las.benchmark.material import Subject
from las.benchmark.rows import Column, Group, Row, number, text
from las.benchmark.settings import Settings

PARTS = ("features", "listener", "speller", "speller_backward", "listener_backward", "optimiser")
"""In the order of a step; the loss counts with the speller, clipping with the optimiser."""

COLUMNS = (
    Column("kernel", text("implementation")),
    Column("listener's cell", text("cell")),
    *(Column(f"{part.replace('_', ' ')} ms", number(f"{part}_ms", 1)) for part in PARTS),
    Column("total ms", number("total_ms", 1)),
    Column("lowest - highest", lambda row: f"{row['total_lowest_ms']:,.1f} - {row['total_highest_ms']:,.1f}"),
    Column("plain / it", number("times_faster_than_plain")),
    Column("audio s per s", number("audio_s_per_s", 0)),
)


def title(shape: str) -> str:
    """The experiment and its batch, as the rows name them."""
    return f"one training step: {shape}"


def measure(settings: Settings) -> Iterator[Group]:
    """One group: the kernels."""
    torch.set_num_threads(settings.threads)
    subject = material.subject(settings.config)
    size, seconds = settings.config["trainer"]["batch_size"], settings.config["seconds"]
    batch = material.batch(size, seconds, subject.corpus).to(settings.device)
    shape = f"{settings.config['name']}, {size} utterances of {seconds[0]:g} to {seconds[1]:g} s"
    model = subject.built.parts.model.to(settings.device).train()
    cells, card = material.cells(model), material.card(model)
    steps, table = {}, []
    for kernel in settings.kernels:
        reason = next(filter(None, (refusal(kernel, cell, batch.waveforms) for cell in cells)), "")
        if reason:
            nothing = {"total_ms": None, "refused": reason}
            table.append(settings.row(kernel, card, shape) | nothing)
        else:
            steps[kernel] = Step(kernel, subject, batch, settings)
    works = {kernel: timing.Work(step.run) for kernel, step in steps.items()}
    times = timing.alternate(works, settings.repeats, settings.budget_s, settings.device, "steps")
    audio_s = material.duration_s(batch, subject.corpus)
    measured = [
        settings.row(kernel, card, shape) | step.parts() | _total(times[kernel], audio_s)
        for kernel, step in steps.items()
    ]
    yield Group(title(shape), [*compared(measured), *table])


def compared(table: list[Row]) -> list[Row]:
    """Rows with how many times faster than the plain kernel they are, where that was measured."""
    plain = {row["implementation"]: row["total_ms"] for row in table}.get("plain")
    return [row | ({} if plain is None else {"times_faster_than_plain": plain / row["total_ms"]}) for row in table]


def _total(times: list[float], audio_s: float) -> Row:
    total = timing.spread(times)
    return {
        "total_ms": total.median,
        "total_lowest_ms": total.lowest,
        "total_highest_ms": total.highest,
        "repeats": total.repeats,
        "audio_s": audio_s,
        "audio_s_per_s": 1e3 * audio_s / total.median,
    }


class Step:
    """A training step that looks at the clock between its parts; the model is shared, the optimiser is its own."""

    def __init__(self, kernel: str, subject: Subject, batch: Batch, settings: Settings) -> None:
        self.kernel, self.batch, self.device = kernel, batch, settings.device
        self.model, self.loss = subject.built.parts.model, subject.built.parts.loss
        self.optimiser = subject.built.parts.optim(self.model.parameters())
        self.gradients = subject.built.parts.gradients
        self.marks: list[float] = []
        self.taken: list[list[float]] = []

    def run(self) -> None:
        """One step, as the trainer makes it."""
        self.marks = []
        batch = self.batch
        self.model.zero_grad(set_to_none=True)
        self._mark()
        with recurrent.using(self.kernel):
            features, num_frames = self.model.features(batch.waveforms, batch.num_samples)
            self._mark()
            encoded, num_states = self.model.listener(features, num_frames)
            encoded.register_hook(self._mark)
            self._mark()
            memory = self.model.speller.attention.prepare(encoded, num_states)
            logits = self.model.speller(memory, batch.targets).logits
            sums = self.loss(logits, batch.targets, batch.num_tokens)
            loss = sums.loss / sums.tokens
        self._mark()
        loss.backward()
        self._mark()
        self.gradients.change(self.model.named_parameters(), step=1)
        self.optimiser.step()
        self._mark()
        self.taken.append([after - before for before, after in itertools.pairwise(self.marks)])

    def parts(self) -> dict[str, float]:
        """Median milliseconds of each part, without the rounds that do not count."""
        columns = zip(*self.taken[timing.WARM_UP :], strict=True)
        return {f"{part}_ms": statistics.median(column) for part, column in zip(PARTS, columns, strict=True)}

    def _mark(self, gradient: Tensor | None = None) -> None:
        """Note the time, in ms; a GPU finishes first what it was given. As a hook, it leaves the gradient as it is."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.marks.append(1e3 * time.perf_counter())
