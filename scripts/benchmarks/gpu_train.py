"""`make gpu`, part train: small trainings at once, in several processes on one GPU and on the cores beside it, and as
one model.
"""

import itertools
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from multiprocessing.synchronize import Barrier
from queue import Empty
from threading import BrokenBarrierError
from typing import Any

import torch

from benchmarks.ledger import Ledger
from benchmarks.models import DEMO, DEMO_TOKENS, SAMPLE_RATE, Subject, demo, noise
from benchmarks.records import Row, TableColumn, number, text
from benchmarks.seeds import KernelOfSeeds, SeedsUpdate
from benchmarks.settings import Settings
from las.data.loader import Batch
from las.nn.kernels import choice
from las.nn.kernels.cpp import build
from las.nn.kernels.triton.layer import TritonKernel
from las.runtime import devices, progress

SIZES: dict[str, Any] = {"num_layers": 3, "time_reduction": (2, 2, 1)}
"""Those of a recipe's listener, of 128 units."""
BATCH, UPDATES = 16, 3000
"""Utterances of an update, and updates of a training, in the recipes of Ben Othman 2018."""
FIRST, AT_ONCE = 6, 8
"""Updates before the clock runs, and batches that are made before."""

COLUMNS = (
    TableColumn("processes on", text("implementation")),
    TableColumn("cell", text("cell")),
    TableColumn("processes", number("processes", 0)),
    TableColumn("seeds of each", number("seeds", 0)),
    TableColumn("seconds", number("seconds")),
    TableColumn("updates / s", number("updates_per_s", 1)),
    TableColumn(f"trainings of {UPDATES:,} updates / min", number("trainings_per_min")),
    TableColumn("times the most processes", number("ratio_to_processes")),
    TableColumn("start, s", number("prepare_s", 0)),
)


def measure(ledger: Ledger) -> None:
    """Measure numbers of processes on the GPU and on the cores."""
    if reason := build.unavailable():  # compiles for all
        progress.say(f"the CPU's kernels: {reason}")
    cores = os.cpu_count() or 1
    if ledger.settings.device.type != "cuda":
        ledger.measure("2 processes on the CPU", partial(_together, ledger.settings, "cpu", "fp32", 2, 1.0, 120.0))
        ledger.measure("2 seeds as one model", partial(_as_one_model, ledger, "plain", "fp32", 2, 1.0))
        return
    for kind, precision, count in (("cuda", "fp32", 8), ("cpu", "bf16", cores)):
        left_s = ledger.budget_s - ledger.elapsed_s
        ledger.measure(
            f"{count} processes on {kind}", partial(_together, ledger.settings, kind, precision, count, 4.0, left_s)
        )
    for kernel, precision in (("triton", "fp32"), ("persistent", "bf16")):
        ledger.measure(
            f"16 seeds as one model, {precision}", partial(_as_one_model, ledger, kernel, precision, 16, 4.0)
        )


def _as_one_model(ledger: Ledger, kernel: str, precision: str, seeds: int, window_s: float) -> Iterator[Row]:
    """A row of the updates of several seeds in one process, next to the fastest processes of this run."""
    device, began = ledger.settings.device, time.monotonic()
    found = choice.KERNELS[kernel]
    over_seeds = KernelOfSeeds(found) if isinstance(found, TritonKernel) else kernel
    update = SeedsUpdate(subject(), seeds, over_seeds, precision, device)
    batches = [batch.to(device) for batch in drawn(1)]

    def one(number: int) -> None:
        update.read(batches[number % AT_ONCE])
        update().tolist()

    one(0)
    if device.type == "cuda":
        one(1)
        update.capture()
        one(2)
    prepare_s = time.monotonic() - began
    ends, count = time.monotonic() + window_s, 0
    while time.monotonic() < ends:
        one(count)
        count += 1
    rate = seeds * count / (window_s + time.monotonic() - ends)
    others = [row["updates_per_s"] for row in ledger.rows if row["processes"] > 1]
    yield _row(ledger.settings, device.type, precision, rate, f"{seeds} seeds as one model, {kernel}") | {
        "processes": 1,
        "seeds": seeds,
        "seconds": window_s,
        "prepare_s": prepare_s,
        "ratio_to_processes": rate / max(others) if others else None,
    }


def _row(settings: Settings, kind: str, precision: str, rate: float, work: str) -> Row:
    shape = f"3 layers of 128, {BATCH} utterances, {precision}"
    return settings.row(kind, "ln_global", shape) | {
        "suite": "train",
        "dtype": precision,
        "work": work,
        "updates_per_s": rate,
        "trainings_per_min": 60 * rate / UPDATES,
    }


def subject() -> Subject:
    """The demo's model with a recipe's listener."""
    durations_s = DEMO.durations_s[:: len(DEMO.durations_s) // BATCH]
    return replace(DEMO, make=partial(demo, **SIZES), durations_s=durations_s)


def drawn(seed: int) -> list[Batch]:
    """Batches of noise, `AT_ONCE` of them."""
    draw, durations_s = torch.Generator().manual_seed(seed), subject().durations_s
    samples, tokens = (durations_s * SAMPLE_RATE).long(), (durations_s * 12).long()
    return [noise(samples, tokens, DEMO_TOKENS, draw) for _ in range(AT_ONCE)]


def _together(
    settings: Settings, kind: str, precision: str, count: int, window_s: float, limit_s: float
) -> Iterator[Row]:
    """A row of the updates that processes make side by side within the same seconds."""
    context, began = multiprocessing.get_context("spawn"), time.monotonic()
    barrier, made = context.Barrier(count + 1), context.Queue()
    workers = [
        context.Process(target=_train, args=(number, kind, precision, window_s, barrier, made), daemon=True)
        for number in range(count)
    ]
    for worker in workers:
        worker.start()
    try:
        barrier.wait(limit_s)
        prepare_s = time.monotonic() - began
        counts = [made.get(timeout=window_s + 30.0) for _ in workers]
    except (Empty, BrokenBarrierError) as error:
        ended = [worker.exitcode for worker in workers if worker.exitcode]
        raise RuntimeError(
            f"{len(ended)} of {count} processes ended with an error, or none was ready in time"
        ) from error
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    yield _row(settings, kind, precision, sum(counts) / window_s, f"{count} processes") | {
        "processes": count,
        "seeds": 1,
        "seconds": window_s,
        "prepare_s": prepare_s,
    }


def _train(number: int, kind: str, precision: str, window_s: float, barrier: Barrier, made: Any) -> None:
    """Put the number of updates of a window of time into the queue."""
    try:
        made.put(_updates(number, kind, precision, window_s, barrier))
    except BaseException:
        barrier.abort()  # else the others would wait
        raise


def _updates(number: int, kind: str, precision: str, window_s: float, barrier: Barrier) -> int:
    """Train on noise, of which every process draws its own, as fast as it comes."""
    torch.set_num_threads(1)
    devices.allow_tf32(True)
    device = torch.device(kind)
    update = subject().step(precision, device)
    batches = drawn(number)
    numbers = itertools.count(1)

    def one() -> None:
        step = next(numbers)
        update([batches[step % AT_ONCE].to(device)], step)

    for _ in range(FIRST):
        one()
    barrier.wait()
    ends, count = time.monotonic() + window_s, 0
    while time.monotonic() < ends:
        one()
        count += 1
    return count
