"""Timing of alternatives that take turns, so that other load of the machine slows all of them alike."""

import re
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from las.runtime import devices, progress

Key = TypeVar("Key")
MIN_REPEATS = 3
WARM_UP = 1


class Work(NamedTuple):
    """A function to be measured, and its preparation, which is not measured."""

    run: Callable[[], object]
    prepare: Callable[[], object] = bool


class Spread(NamedTuple):
    """The spread of repeated measurements, in milliseconds."""

    median: float
    lowest: float
    highest: float
    repeats: int

    def in_ms(self) -> dict[str, float]:
        """Columns of a row of steps and layers."""
        return {
            "total_ms": self.median,
            "total_lowest_ms": self.lowest,
            "total_highest_ms": self.highest,
            "repeats": self.repeats,
        }

    def in_seconds(self) -> dict[str, float]:
        """Columns of a row of passes over a corpus."""
        return {
            "seconds": self.median / 1e3,
            "lowest_s": self.lowest / 1e3,
            "highest_s": self.highest / 1e3,
            "repeats": self.repeats,
        }


def milliseconds(run: Callable[[], object], device: torch.device) -> float:
    """The duration of one run in milliseconds, until the device has finished."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)
    began = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - began) / 1e6


def alternate(
    works: Mapping[Key, Work], repeats: int, budget_s: float, device: torch.device, what: str
) -> dict[Key, list[float]]:
    """Measure every work once per round, after a warm-up round; returns milliseconds by work in order of the rounds.

    A work that has used up `budget_s` seconds is skipped after `MIN_REPEATS` rounds. `what` labels the progress bar.
    """
    times: dict[Key, list[float]] = {key: [] for key in works}
    turns = [(turn, key) for turn in range(-WARM_UP, repeats) for key in works]
    with devices.garbage_frozen():
        for turn, key in progress.counted(turns, len(turns), what):
            if turn >= MIN_REPEATS and sum(times[key]) > 1e3 * budget_s:
                continue
            works[key].prepare()
            duration = milliseconds(works[key].run, device)
            if turn >= 0:
                times[key].append(duration)
    return times


def spread(values: list[float]) -> Spread:
    """The spread of at least one measurement."""
    return Spread(statistics.median(values), min(values), max(values), len(values))


def device_kernels(run: Callable[[], object], count: int = 3) -> list[str]:
    """The names of the `count` GPU kernels that take most of the time of `run`, longest first, without arguments."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        run()
        torch.cuda.synchronize()
    events = sorted(profiler.key_averages(), key=lambda event: event.self_device_time_total, reverse=True)
    return [re.sub(r"^void |[<(].*$", "", event.key) for event in events[:count]]
