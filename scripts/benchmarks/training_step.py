"""suite=model: one training step of an experiment's model, split by part."""

from collections.abc import Iterator
from functools import partial

from benchmarks import inputs as benchmark_inputs
from benchmarks import peak, timing
from benchmarks.records import SPREAD_MS, Group, TableColumn, number, text
from benchmarks.settings import Settings
from benchmarks.step_parts import PARTS, parts
from las.data.loader import Batch
from las.nn.kernels import choice
from las.training.step import TrainingStep

COLUMNS = (
    TableColumn("kernel", text("implementation")),
    TableColumn("listener's cell", text("cell")),
    *(TableColumn(f"{part.replace('_', ' ')} ms", number(f"{part}_ms", 1)) for part in PARTS),
    TableColumn("total ms", number("total_ms", 1)),
    SPREAD_MS,
    TableColumn("plain / it", number("times_faster_than_plain")),
    TableColumn("time / speechbrain", number("ratio_to_peer")),
    TableColumn("million parameters", number("parameters", 1, 1e-6)),
    TableColumn("peak MB", number("peak_bytes", 0, 1e-6)),
    TableColumn("% of peak", number("peak_share", 0, 100.0)),
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
    precision = settings.config["trainer"]["precision"]
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
            steps[kernel] = subject.step(precision)
    works = {kernel: timing.Work(partial(made_by, kernel, step, batch)) for kernel, step in steps.items()}
    times = timing.alternate(works, settings.repeats, settings.budget_s, settings.device, "steps")
    audio_s = benchmark_inputs.duration_s(batch, subject.corpus)
    operations, most = peak.listener_operations(model, batch), peak.per_ms(settings.device)
    measured = []
    for kernel, step in steps.items():
        with choice.use_kernel(kernel):
            by_part = parts(step, batch, max(timing.MIN_REPEATS, settings.repeats // 2))
        shares = {f"{part}_peak_share": count / by_part[f"{part}_ms"] / most for part, count in operations.items()}
        total = timing.spread(times[kernel])
        row = settings.row(kernel, card, shape) | by_part | total.in_ms() | shares
        row |= {"audio_s": audio_s, "audio_s_per_s": 1e3 * audio_s / total.median}
        if "plain" in steps:
            row["times_faster_than_plain"] = timing.spread(times["plain"]).median / total.median
        measured.append(row)
    yield Group(title(shape), [*measured, *table])


def made_by(kernel: str, update: TrainingStep, batch: Batch) -> None:
    """Make an update on a batch by a kernel."""
    with choice.use_kernel(kernel):
        update([batch], 1)
