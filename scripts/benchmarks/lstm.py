"""suite=lstm: one recurrent layer (or a stack), forward alone and forward + backward, every kernel and baseline."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn

from benchmarks import peak, timing
from benchmarks.candidates import Candidate, Refused, candidates
from benchmarks.records import SPREAD_MS, Group, Row, TableColumn, number, text
from benchmarks.settings import Settings
from benchmarks.shapes import SHAPES, Shape
from las.config.build import build, option
from las.nn.cells.base import LSTMCell, RecurrentCell
from las.nn.rnn import CellFactory
from las.training import memory


def title(name: str) -> str:
    """The title of a shape: `C1: small, CPU (H=256 I=512 B=16 T=200, both directions, 1 layer)`."""
    shape = SHAPES[name]
    ways = "both directions" if shape.directions == 2 else "one direction"
    layers = f"{len(shape.reduction)} layer{'s' if len(shape.reduction) > 1 else ''}"
    sizes = f"H={shape.hidden_size} I={shape.input_size} B={shape.batch} T={shape.frames}"
    return f"{name}: {shape.description} ({sizes}, {ways}, {layers})"


COLUMNS = (
    TableColumn("implementation", text("implementation")),
    TableColumn("cell", text("cell")),
    TableColumn("measured", text("work")),
    TableColumn("forward ms", number("forward_ms", 1)),
    TableColumn("total ms", number("total_ms", 1)),
    SPREAD_MS,
    TableColumn("% of peak", number("peak_share", 0, 100.0)),
    TableColumn("/ lstm", number("ratio_to_lstm")),
    TableColumn("/ packed", number("ratio_to_packed")),
    TableColumn("/ best", number("ratio_to_best")),
    TableColumn("/ projected", number("ratio_to_projected")),
    TableColumn("/ gru", number("ratio_to_gru")),
    TableColumn("plain / it", number("times_faster_than_plain")),
    TableColumn("naive / it", number("times_faster_than_naive")),
    TableColumn("peak MB", number("peak_bytes", 0, 1e-6)),
    TableColumn("resident MB", number("resident_bytes", 0, 1e-6)),
    TableColumn("note", text("note")),
)


def measure(settings: Settings) -> Iterator[Group]:
    """Measure every candidate at each shape, in one group for each shape."""
    cells = {name: cell_of(name) for name in settings.cells}
    for name in settings.shapes:
        yield Group(title(name), measured(settings, name, cells))


def cell_of(name: str) -> CellFactory:
    """Return the cell of a name: `ln_joined`, or `ln_joined/rms` for an option of configs/norm inside it."""
    cell, _, norm = name.partition("/")
    factory: CellFactory = build(option("cell", cell) | ({"norm": option("norm", norm)} if norm else {}), where=name)
    return factory


def measured(settings: Settings, name: str, cells: Mapping[str, CellFactory]) -> list[Row]:
    """Measure every candidate at a shape."""
    shape = settings.shapes[name]
    torch.manual_seed(1)
    frames = torch.randn(shape.batch, shape.frames, shape.input_size).to(settings.device)
    listed = candidates(shape, cells, settings.kernels, settings.baselines, settings.dtype, frames)
    able = [each for each in listed if isinstance(each, Candidate)]
    empty = dict.fromkeys(("forward_ms", "total_ms", "peak_bytes"))
    refused = [
        settings.row(each.implementation, each.cell, name) | empty | {"refused": each.reason}
        for each in listed
        if isinstance(each, Refused)
    ]
    return compared([*_measured(settings, name, able, frames), *refused])


class LayerRun:
    """Layers with their input, to be timed."""

    def __init__(self, candidate: Candidate, shape: Shape, frames: torch.Tensor) -> None:
        self.layers = candidate.layers
        self.frames = frames.to(candidate.dtype, copy=True).requires_grad_()
        self.num_frames = shape.num_frames().to(frames.device)
        with torch.no_grad():
            self.gradient = torch.randn_like(self.layers(self.frames, self.num_frames))

    def clear(self) -> None:
        """Drop the gradients of the last run."""
        self.frames.grad = None
        self.layers.zero_grad(set_to_none=True)

    def forward(self) -> None:
        """Run the layer without gradients, as in decoding."""
        with torch.no_grad():
            self.layers(self.frames, self.num_frames)

    def total(self) -> None:
        """Run the layer forwards and backwards, to the gradients of parameters and frames, as in training."""
        self.layers(self.frames, self.num_frames).backward(self.gradient)


def spreads(settings: Settings, name: str, runs: Sequence[LayerRun]) -> Iterator[tuple[timing.Spread, timing.Spread]]:
    """Time runs by turns; yields the forward pass and the total of each."""
    works = {}
    for index, run in enumerate(runs):
        works[index, "forward"] = timing.Work(run.forward)
        works[index, "total"] = timing.Work(run.total, run.clear)
    times = timing.alternate(works, settings.repeats, settings.budget_s, settings.device, f"{name}: measurements")
    for index in range(len(runs)):
        yield timing.spread(times[index, "forward"]), timing.spread(times[index, "total"])


def _measured(settings: Settings, name: str, candidates: Sequence[Candidate], frames: torch.Tensor) -> Iterator[Row]:
    shape = settings.shapes[name]
    runs = [LayerRun(candidate, shape, frames) for candidate in candidates]
    operations = 3 * peak.layer_operations(shape)
    for candidate, run, (forward, total) in zip(candidates, runs, spreads(settings, name, runs), strict=True):
        run.clear()
        allocated = memory.allocated(run.total, settings.device)
        run.clear()
        row = settings.row(candidate.implementation, candidate.cell, name) | total.in_ms()
        row |= {
            "dtype": str(candidate.dtype).removeprefix("torch."),
            "forward_ms": forward.median,
            "peak_bytes": allocated,
            "peak_share": operations / total.median / peak.per_ms(settings.device, candidate.dtype)
            if _is_lstm(candidate.layers)
            else None,
            "resident_bytes": memory.resident(run.total, settings.device),
            "prepare_s": candidate.prepare_s,
            "note": "" if candidate.prepare_s is None else f"compiled or captured in {candidate.prepare_s:.0f} s",
        }
        if settings.device.type == "cuda" and candidate.cell == "lstm":
            row["device_kernels"] = timing.device_kernels(run.total)
            row["note"] = ", ".join(row["device_kernels"])
        yield row


def _is_lstm(layers: nn.Module) -> bool:
    """Return whether layers multiply W [4H, input] and U [4H, H]."""
    for module in layers.modules():
        if isinstance(module, RecurrentCell):
            return isinstance(module, LSTMCell) and module.output_size == module.hidden_size
        if isinstance(module, nn.RNNBase):
            return isinstance(module, nn.LSTM) and not module.proj_size
    return True


RATIOS = {
    "ratio_to_lstm": ("lstm", "lstm"),
    "ratio_to_packed": ("lstm_packed", "lstm"),
    "ratio_to_best": ("lstm_best", "lstm"),
    "ratio_to_graph": ("lstm_graph", "lstm"),
    "ratio_to_projected": ("projected", "projected_lstm"),
    "ratio_to_gru": ("gru", "gru"),
}
"""Ratios, and implementation and cell of what each is to."""


def compared(table: Sequence[Row]) -> list[Row]:
    """Rows of one shape with their times and peak memory relative to the baselines'."""
    totals = {(row["implementation"], row["cell"]): row["total_ms"] for row in table}
    peaks = {row["implementation"]: row["peak_bytes"] for row in table if row["cell"] == "lstm"}
    rows = []
    for row in table:
        ratios = {key: _ratio(row["total_ms"], totals.get(other)) for key, other in RATIOS.items()}
        for loop in ("plain", "naive"):
            ratios[f"times_faster_than_{loop}"] = _ratio(totals.get((loop, row["cell"])), row["total_ms"])
        ratios["peak_to_lstm"] = _ratio(row["peak_bytes"], peaks.get("lstm"))
        measured = {key: value for key, value in ratios.items() if value is not None or key == "ratio_to_lstm"}
        rows.append(row | measured)
    return rows


def _ratio(a: int | float | None, b: int | float | None) -> float | None:
    return None if a is None or not b else a / b
