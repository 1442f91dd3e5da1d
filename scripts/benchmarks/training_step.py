"""suite=model: one training step of an experiment's model, split by part."""

import itertools
import statistics
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks import inputs as benchmark_inputs
from benchmarks import peak, timing
from benchmarks.inputs import BenchmarkModel
from benchmarks.records import SPREAD_MS, Group, TableColumn, number, text
from benchmarks.settings import Settings
from las.data.loader import Batch
from las.nn.kernels import choice

PARTS = ("features", "listener", "speller", "speller_backward", "listener_backward", "optimiser")
"""The parts of a step in order. The loss counts as speller, clipping as the listener's backward pass."""

COLUMNS = (
    TableColumn("kernel", text("implementation")),
    TableColumn("listener's cell", text("cell")),
    *(TableColumn(f"{part.replace('_', ' ')} ms", number(f"{part}_ms", 1)) for part in PARTS),
    TableColumn("total ms", number("total_ms", 1)),
    SPREAD_MS,
    TableColumn("plain / it", number("times_faster_than_plain")),
    TableColumn("audio s per s", number("audio_s_per_s", 0)),
    TableColumn("listener, % of peak", number("listener_peak_share", 0, 100.0)),
    TableColumn("backward, % of peak", number("listener_backward_peak_share", 0, 100.0)),
)


def title(shape: str) -> str:
    """The title over the rows of a step: the experiment and its batch."""
    return f"one training step: {shape}"


def measure(settings: Settings) -> Iterator[Group]:
    """Measure a training step with each kernel, in one group."""
    subject = benchmark_inputs.subject(settings.config)
    size, seconds = settings.config["trainer"]["batch_size"], settings.config["seconds"]
    batch = benchmark_inputs.batch(size, seconds, subject.corpus).to(settings.device)
    shape = f"{settings.config['name']}, {size} utterances of {seconds[0]:g} to {seconds[1]:g} s"
    model = subject.model.to(settings.device).train()
    clock = StepTimer(subject, settings.device)
    cells, card = benchmark_inputs.cells(model), benchmark_inputs.card(model)
    steps, table = {}, []
    for kernel in settings.kernels:
        reason = next(
            filter(None, (choice.refusal(choice.KERNELS[kernel], cell, batch.waveforms) for cell in cells)), ""
        )
        if reason:
            empty = {"total_ms": None, "refused": reason}
            table.append(settings.row(kernel, card, shape) | empty)
        else:
            steps[kernel] = TimedStep(kernel, subject, batch, clock, settings.config["trainer"]["precision"])
    works = {kernel: timing.Work(step.run) for kernel, step in steps.items()}
    times = timing.alternate(works, settings.repeats, settings.budget_s, settings.device, "steps")
    audio_s = benchmark_inputs.duration_s(batch, subject.corpus)
    operations, most = peak.listener_operations(model, batch), peak.per_ms(settings.device)
    measured = []
    for kernel, step in steps.items():
        parts = step.parts()
        shares = {f"{part}_peak_share": count / parts[f"{part}_ms"] / most for part, count in operations.items()}
        total = timing.spread(times[kernel])
        row = settings.row(kernel, card, shape) | parts | total.in_ms() | shares
        row |= {"audio_s": audio_s, "audio_s_per_s": 1e3 * audio_s / total.median}
        if "plain" in steps:
            row["times_faster_than_plain"] = timing.spread(times["plain"]).median / total.median
        measured.append(row)
    yield Group(title(shape), [*measured, *table])


class StepTimer:
    """Times the parts of a model, forwards and backwards, by hooks between them."""

    def __init__(self, subject: BenchmarkModel, device: torch.device) -> None:
        self.device = device
        self.marks: list[float] = []
        model = subject.model
        for module in (model.features, model.listener, subject.parts.loss):
            module.register_forward_hook(self.mark)
        model.listener.register_forward_hook(self._listened)

    def mark(self, *_: object) -> None:
        """Record the time in ms, after a GPU has finished its work. It also serves as a hook, without changes."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.marks.append(1e3 * time.perf_counter())

    def _listened(self, module: nn.Module, inputs: object, outputs: tuple[Tensor, ...]) -> None:
        outputs[0].register_hook(self.mark)


class TimedStep:
    """The trainer's update of one batch with a kernel; the model is shared, the optimiser is its own."""

    def __init__(self, kernel: str, subject: BenchmarkModel, batch: Batch, clock: StepTimer, precision: str) -> None:
        self.update = subject.step(precision)
        self.update.optimiser.register_step_pre_hook(clock.mark)
        self.kernel, self.batch, self.clock = kernel, batch, clock
        self.durations_ms: list[list[float]] = []

    def run(self) -> None:
        """Run and time one update."""
        self.clock.marks = []
        self.clock.mark()
        with choice.use_kernel(self.kernel):
            self.update([self.batch], len(self.durations_ms) + 1)
        self.clock.mark()
        self.durations_ms.append([end - start for start, end in itertools.pairwise(self.clock.marks)])

    def parts(self) -> dict[str, float]:
        """Median milliseconds of each part, without the warm-up rounds."""
        columns = zip(*self.durations_ms[timing.WARM_UP :], strict=True)
        return {f"{part}_ms": statistics.median(column) for part, column in zip(PARTS, columns, strict=True)}
