"""`make gpu`, part train: small trainings in several processes at once, on one GPU and on the cores beside it."""

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
from benchmarks.models import DEMO, DEMO_TOKENS, SAMPLE_RATE, demo, noise
from benchmarks.records import Row, TableColumn, number, text
from benchmarks.settings import Settings
from las.nn.kernels.cpp import build
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
    TableColumn("seconds", number("seconds")),
    TableColumn("updates / s", number("updates_per_s", 1)),
    TableColumn(f"trainings of {UPDATES:,} updates / min", number("trainings_per_min")),
    TableColumn("start, s", number("prepare_s", 0)),
)


def measure(ledger: Ledger) -> None:
    """Measure numbers of processes on the GPU and on the cores."""
    if reason := build.unavailable():  # compiles for all
        progress.say(f"the CPU's kernels: {reason}")
    cores = os.cpu_count() or 1
    if ledger.settings.device.type != "cuda":
        ledger.measure("2 processes on the CPU", partial(_together, ledger.settings, "cpu", "fp32", 2, 1.0, 120.0))
        return
    for kind, precision, count in (
        ("cuda", "fp32", 8),
        ("cpu", "bf16", cores),
        ("cuda", "fp32", 1),
        ("cuda", "fp32", cores - 2),
    ):
        left_s = ledger.budget_s - ledger.elapsed_s
        ledger.measure(
            f"{count} processes on {kind}", partial(_together, ledger.settings, kind, precision, count, 6.0, left_s)
        )


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
    rate = sum(counts) / window_s
    shape = f"3 layers of 128, {BATCH} utterances, {precision}"
    yield settings.row(kind, "ln_global", shape) | {
        "suite": "train",
        "dtype": precision,
        "work": f"{count} processes",
        "processes": count,
        "seconds": window_s,
        "updates_per_s": rate,
        "trainings_per_min": 60 * rate / UPDATES,
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
    update = replace(DEMO, make=partial(demo, **SIZES)).step(precision, device)
    draw = torch.Generator().manual_seed(number)
    durations_s = DEMO.durations_s[:: len(DEMO.durations_s) // BATCH]
    samples, tokens = (durations_s * SAMPLE_RATE).long(), (durations_s * 12).long()
    batches = [noise(samples, tokens, DEMO_TOKENS, draw) for _ in range(AT_ONCE)]
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
