"""suite=nn_lstm: `las.LSTM` in place of `torch.nn.LSTM`, both called alike: stacks, directions, padded and packed."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from benchmarks.baselines import Padded
from benchmarks.candidates import Candidate
from benchmarks.lstm import LayerRun, spreads
from benchmarks.records import Group, Row, TableColumn, number, text
from benchmarks.settings import Settings
from benchmarks.shapes import SHAPES
from las.nn.lstm import LSTM

PADDED, PACKED = SHAPES["C1"], SHAPES["C4"]
"""Rows of one length, and of half to full length."""

COLUMNS = (
    TableColumn("implementation", text("implementation")),
    TableColumn("cell", text("cell")),
    TableColumn("forward ms", number("forward_ms", 1)),
    TableColumn("total ms", number("total_ms", 1)),
    TableColumn("/ nn.LSTM", number("ratio_to_lstm")),
)


def title(name: str) -> str:
    """The title of a stack: `3 layers, two directions, packed (H=256 I=512 B=16 T=200)`."""
    sizes = f"H={PADDED.hidden_size} I={PADDED.input_size} B={PADDED.batch} T={PADDED.frames}"
    return f"{name} ({sizes})"


def measure(settings: Settings) -> Iterator[Group]:
    """Measure each stack with padded and with packed input, in one group each."""
    for layers, directions, is_packed in product((1, 3), (1, 2), (False, True)):
        name = (
            f"{layers} layer{'s' if layers > 1 else ''}, {'two directions' if directions == 2 else 'one direction'}, "
            f"{'packed' if is_packed else 'padded'}"
        )
        yield Group(title(name), _rows(settings, name, layers, directions == 2, is_packed))


def _rows(settings: Settings, name: str, layers: int, bidirectional: bool, is_packed: bool) -> list[Row]:
    options: dict[str, Any] = {"num_layers": layers, "batch_first": True, "bidirectional": bidirectional}
    sizes = PADDED.input_size, PADDED.hidden_size
    stacks = {
        ("nn.LSTM", "lstm"): nn.LSTM(*sizes, **options),
        ("las.LSTM", "lstm"): LSTM(*sizes, **options, cell="lstm"),
        ("las.LSTM", "ln_global"): LSTM(*sizes, **options, cell="ln_global"),
    }
    frames = torch.randn(PADDED.batch, PADDED.frames, PADDED.input_size).to(settings.device)
    runs = []
    for key, lstm in stacks.items():
        layer = (Rows if is_packed else Padded)(lstm).to(settings.device, settings.dtype)
        runs.append(LayerRun(Candidate(*key, settings.dtype, layer), PACKED, frames))
    measured = [(forward.median, total.median) for forward, total in spreads(settings, name, runs)]
    return [
        settings.row(*key, name) | {"forward_ms": forward, "total_ms": total, "ratio_to_lstm": total / measured[0][1]}
        for key, (forward, total) in zip(stacks, measured, strict=True)
    ]


class Rows(Padded):
    """A stack that is given a PackedSequence, and returns the rows of one."""

    def forward(self, frames: Tensor, num_frames: Tensor | None = None) -> Tensor:
        assert num_frames is not None
        packed = pack_padded_sequence(frames, num_frames.cpu(), batch_first=True, enforce_sorted=False)
        output: PackedSequence = self.lstm(packed)[0]
        return output.data
