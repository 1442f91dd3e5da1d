"""suite=growth: the time of a training step against batch, length, width and depth, one of them at a time."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import inputs, timing
from benchmarks.records import SPREAD_MS, Group, Row, TableColumn, number, text
from benchmarks.settings import Settings
from benchmarks.timing import Work
from las.config.build import Config
from las.training import plots

BATCH, LENGTH_S = 16, 4.0
"""Utterances and their seconds where they are not what grows."""

COLUMNS = (
    TableColumn("what grows", text("axis")),
    TableColumn("to", text("value")),
    TableColumn("step ms", number("total_ms", 1)),
    SPREAD_MS,
    TableColumn("audio s per s", number("audio_s_per_s", 0)),
    TableColumn("million parameters", number("parameters", 2, 1e-6)),
    TableColumn("exponent", number("exponent")),
)


class Axis(NamedTuple):
    """A quantity that grows: its name, its values, and what sets it in a config, a batch size and a length."""

    name: str
    values: tuple[int, ...]
    config: Callable[[Config, int], Config] = lambda config, value: config
    batch: Callable[[int], int] = lambda value: BATCH
    seconds: Callable[[int], float] = lambda value: LENGTH_S


def deeper(config: Config, count: int) -> Config:
    """A config with another number of listener's layers; time is reduced in the first ones as before."""
    reductions = [*config["model"]["listener"]["time_reduction"], *[1] * count][:count]
    return with_listener(config, num_layers=count, time_reduction=reductions)


def with_listener(config: Config, **changes: Any) -> Config:
    """A config with other values of the listener's keys."""
    changed = copy.deepcopy(config)
    changed["model"]["listener"] |= changes
    return changed


AXES = (
    Axis("utterances of a batch", (4, 8, 16, 32, 64), batch=lambda value: value),
    Axis("seconds of an utterance", (1, 2, 4, 8, 16), seconds=float),
    Axis(
        "width of the listener",
        (64, 128, 256, 512),
        config=lambda config, size: with_listener(config, hidden_size=size),
    ),
    Axis("layers of the listener", (2, 3, 4, 6), config=deeper),
)


def title(shape: str) -> str:
    """The title over the rows: the experiment."""
    return f"one training step of {shape}"


def measure(settings: Settings) -> Iterator[Group]:
    """Measure every point of every axis, those of an axis by turns, and fit the exponent of its growth."""
    shape = f"{settings.config['name']}, {BATCH} utterances of {LENGTH_S:g} s but for what grows"
    rows = [row for axis in AXES for row in _grown(axis, settings, shape)]
    yield Group(title(shape), rows)


def _grown(axis: Axis, settings: Settings, shape: str) -> list[Row]:
    works, rows = {}, []
    for value in axis.values:
        subject = inputs.subject(axis.config(settings.config, value))
        model = subject.model.to(settings.device).train()
        update = subject.updates(settings.config["trainer"]["precision"], str(settings.config["kernel"]))
        seconds = axis.seconds(value)
        batch = inputs.batch(axis.batch(value), [seconds, seconds], subject.corpus).to(settings.device)
        works[value] = Work(partial(update, batch))
        rows.append(
            settings.row(f"{axis.name} {value}", inputs.card(model), shape)
            | {"axis": axis.name, "value": value, "audio_s": inputs.duration_s(batch, subject.corpus)}
            | {"parameters": sum(parameter.numel() for parameter in model.parameters())}
        )
    times = timing.alternate(works, settings.repeats, settings.budget_s, settings.device, axis.name)
    for row, value in zip(rows, axis.values, strict=True):
        row |= timing.spread(times[value]).in_ms()
        row["audio_s_per_s"] = 1e3 * row["audio_s"] / row["total_ms"]
    rows[-1]["exponent"] = exponent(axis.values, [row["total_ms"] for row in rows])
    return rows


def exponent(values: Sequence[float], times: Sequence[float]) -> float:
    """The slope of log time over log value, by least squares: 1 where time grows as the value does."""
    return float(np.polyfit(np.log(values), np.log(times), 1)[0])


def draw(rows: Iterable[Row], path: Path) -> Path:
    """Draw time over value for each axis, both logarithmic, with its fit. Raises LasError without matplotlib."""
    by_axis: dict[str, list[Row]] = {}
    for row in rows:
        by_axis.setdefault(row["axis"], []).append(row)
    figure = plots.blank_figure(8.0, 6.0)
    for place, (name, points) in enumerate(by_axis.items(), start=1):
        axes = figure.add_subplot(2, 2, place)
        values, times = [row["value"] for row in points], [row["total_ms"] for row in points]
        slope = exponent(values, times)
        middle = np.exp(np.mean(np.log(times)) - slope * np.mean(np.log(values)))
        axes.loglog(values, times, "o", color="tab:blue")
        axes.loglog(values, [middle * value**slope for value in values], color="grey", linestyle=":")
        axes.set_xticks(values, [str(value) for value in values])
        axes.set_yticks(times, [f"{time:,.0f}" for time in times], fontsize=8)
        axes.minorticks_off()
        axes.set_xlabel(name, fontsize=9)
        axes.set_ylabel("ms of a step", fontsize=9)
        axes.set_title(f"exponent {slope:.2f}", fontsize=9)
    return plots.save(figure, path)
