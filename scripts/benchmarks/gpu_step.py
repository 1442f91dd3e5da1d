"""`make gpu`, part step: updates of the demo's model and of those of the paper's size, and losses with capture and
without.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import fmean
from unittest.mock import patch

import torch

from benchmarks import peak, side_by_side, speechbrain_las, timing
from benchmarks.ledger import Ledger
from benchmarks.models import DEMO, END_TO_END, HYBRID, SAMPLE_RATE, SUBJECTS, Subject, demo
from benchmarks.records import Row
from benchmarks.settings import Settings
from benchmarks.speechbrain_las import Sizes, SpeechBrainPeer
from benchmarks.step_parts import parts
from las.data.loader import Batch
from las.nn.cells.base import LSTMCell
from las.nn.kernels import choice
from las.nn.model import ListenAttendSpell, SpeechModel
from las.runtime import devices, progress
from las.runtime.precision import PRECISIONS, products_of
from las.training import update_graphs
from las.training.step import TrainingStep

STEPS = 200
"""Updates whose losses are compared."""
SHORT_S = 0.6
"""Seconds of utterances that are long enough for more than one chunk."""
ROUNDING = 2e-2
"""Largest difference of losses that other orders of sums explain, as a share of them."""
IN_A_ROW = 4
"""Updates that are timed together: as in a training, each is read once the next one was started."""
FIRST, LAST = 10, 50
"""Updates whose losses are compared one by one, and those whose mean is."""
ON_GPU = (
    *((END_TO_END, "bf16"), (DEMO, "fp32")),
    *((END_TO_END, "fp32"), (HYBRID, "bf16"), (DEMO, "bf16"), (HYBRID, "fp32")),
)
"""Models and precisions, the newest question first; losses come after the first two."""


def measure(ledger: Ledger) -> None:
    """Measure updates, each alone, then the peer's beside ours, then compare losses."""
    settings = ledger.settings
    if settings.device.type != "cuda":
        small = replace(DEMO, durations_s=DEMO.durations_s[:2])
        ledger.measure("update of demo, fp32", partial(_timed, settings, small, "fp32"))
        ledger.measure("losses", partial(_losses, settings, small, 2))
        return
    side_by_side.compiled(_compile, [(subject.name, precision) for subject, precision in ON_GPU])
    progress.say(f"kernels compiled: {ledger.elapsed_s:.0f} s")
    for number, (subject, precision) in enumerate(ON_GPU):
        if number == 2:
            ledger.measure(f"losses of {STEPS} updates", partial(_losses, settings, DEMO, STEPS))
        ledger.measure(f"update of {subject.name}, {precision}", partial(_timed, settings, subject, precision))


def _compile(task: tuple[str, str]) -> None:
    """Make an update of short utterances, as many as are measured."""
    torch.set_num_threads(1)
    devices.allow_tf32(True)
    name, precision = task
    subject, device = SUBJECTS[name], torch.device("cuda")
    short = replace(subject, durations_s=subject.durations_s.clamp(max=SHORT_S))
    short.step(precision, device)([short.batch().to(device)], 1)
    torch.cuda.synchronize(device)


def row_of(settings: Settings, implementation: str, subject: Subject, batch: Batch, precision: str) -> Row:
    """The columns of a row about a model and its batch; the type is that of products."""
    audio_s = int(batch.num_samples.sum()) / SAMPLE_RATE
    count = len(batch.ids)
    shape = f"{subject.name}, {count} utterance{'s' * (count > 1)}, {audio_s:.1f} s"
    dtype = "tf32" if precision == "fp32" and settings.device.type == "cuda" else str(PRECISIONS[precision])
    return settings.row(implementation, "ln_global", shape) | {
        "suite": "model",
        "subject": subject.name,
        "dtype": dtype.removeprefix("torch."),
        "audio_s": audio_s,
    }


def _timed(settings: Settings, subject: Subject, precision: str) -> Iterator[Row]:
    """Rows of one update: ours with its parts, and the peer's beside it at the size of the paper."""
    device = settings.device
    batch = subject.batch().to(device)
    update = subject.step(precision, device)
    model = update.model
    assert isinstance(model, SpeechModel)
    kernel = kernel_of(update, batch)
    works = {kernel: timing.Work(partial(_in_a_row, update, batch))}
    peer = _peer(model, device) if subject.name == END_TO_END.name else None
    if peer is not None:
        works[speechbrain_las.NAME] = timing.Work(partial(_theirs, peer, batch, PRECISIONS[precision]))
    works[kernel].run()
    for work in [*works.values()] * (1 + update_graphs.IN_PARTS // IN_A_ROW):
        work.run()  # compiles and captures
    times = {
        name: [each / IN_A_ROW for each in of_work]
        for name, of_work in timing.alternate(
            works, settings.repeats, IN_A_ROW * settings.budget_s, device, subject.name
        ).items()
    }
    total = timing.spread(times[kernel])
    row = row_of(settings, kernel, subject, batch, precision) | total.in_ms()
    operand = torch.float32 if precision == "fp32" else PRECISIONS[precision]
    row |= {
        "parameters": sum(each.numel() for each in model.parameters()),
        "audio_s_per_s": 1e3 * row["audio_s"] / total.median,
        "peak_share": peak.update_operations(model, batch) / total.median / peak.per_ms(device, operand),
        "peak_bytes": _peak_bytes(partial(update, [batch], 1), device),
    }
    if peer is None:
        yield row | parts(update, batch, timing.MIN_REPEATS)
        if subject.name == END_TO_END.name:
            refused = {"cell": "lstm", "total_ms": None, "refused": speechbrain_las.unavailable()}
            yield row_of(settings, speechbrain_las.NAME, subject, batch, precision) | refused
        return
    theirs = timing.spread(times[speechbrain_las.NAME])
    row["ratio_to_peer"] = total.median / theirs.median
    yield row | parts(update, batch, timing.MIN_REPEATS)
    other = row_of(settings, speechbrain_las.NAME, subject, batch, precision) | theirs.in_ms()
    yield other | {"cell": "lstm", "parameters": peer.num_parameters, "ratio_to_peer": 1.0}


def _in_a_row(update: TrainingStep, batch: Batch) -> None:
    before = update.start([batch], 1)
    for _ in range(IN_A_ROW - 1):
        following = update.start([batch], 1)
        before()
        before = following
    before()


def kernel_of(update: TrainingStep, batch: Batch) -> str:
    """The name of the kernel that computes the listener."""
    cell = next(module for module in update.model.modules() if isinstance(module, LSTMCell))
    with products_of(update.precision, batch.waveforms.device):
        picked = choice.select_kernel(cell, batch.waveforms)
    return next(name for name, kernel in choice.KERNELS.items() if kernel is picked)


def _peer(model: torch.nn.Module, device: torch.device) -> SpeechBrainPeer | None:
    """SpeechBrain's encoder-decoder of the same sizes, which joins frames, where it can be imported."""
    if speechbrain_las.unavailable():
        return None
    assert isinstance(model, ListenAttendSpell)
    listener, speller = model.listener, model.speller
    sizes = Sizes(
        sample_rate=SAMPLE_RATE,
        num_tokens=speller.vocab_size,
        num_mels=model.features.size,
        hidden_size=listener.hidden_size,
        time_reduction=listener.time_reduction,
        listener_dropout=0.3,
        embedding_size=speller.embedding.embedding_dim,
        speller_size=speller.readout.out_features,
        speller_layers=len(speller.cells),
        speller_dropout=0.3,
        key_size=speller.attention.get_parameter("key.weight").shape[0],
        width=51,
    )
    return SpeechBrainPeer(sizes, 0.0, 1e-3, device)


def _theirs(peer: SpeechBrainPeer, batch: Batch, operand: torch.dtype) -> None:
    with products_of(operand, batch.waveforms.device):
        for _ in range(IN_A_ROW):
            peer.update(batch)


def _peak_bytes(run: Callable[[], object], device: torch.device) -> int | None:
    """The largest memory of an update with parameters and optimiser, as torch's allocator counts it."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


def _losses(settings: Settings, subject: Subject, steps: int) -> Iterator[Row]:
    """A row of the largest difference between the losses of updates with CUDA graphs and without.

    Dropout is off: its draws differ.
    """
    quiet = replace(subject, make=partial(demo, dropout=0.0, input_noise=0.0))
    batch = quiet.batch().to(settings.device)
    losses = []
    for off in (contextlib.nullcontext(), patch.object(choice, "has_graphs", lambda device: False)):
        with off:
            update = quiet.step("fp32", settings.device)
            losses.append([float(update([batch], number).loss) for number in range(1, steps + 1)])
    # Rounding grows from update to update, so that single losses are compared at the start and their mean at the end.
    early = max(abs(a - b) / abs(a) for a, b in zip(*(each[:FIRST] for each in losses), strict=True))
    late = [fmean(each[-LAST:]) for each in losses]
    apart = max(early, abs(late[0] - late[1]) / late[0])
    yield row_of(settings, "captured", quiet, batch, "fp32") | {
        "suite": "check",
        "work": f"losses of {steps} updates",
        "difference": apart,
        "tolerance": ROUNDING,
        "losses": late,
    }
    if not apart <= ROUNDING:
        raise AssertionError(f"losses differ by {apart:.3g} of them with capture and without")
