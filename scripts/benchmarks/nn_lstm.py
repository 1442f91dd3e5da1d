"""suite=nn_lstm: `las.LSTM` in place of `torch.nn.LSTM`, both called alike: stacks, directions, padded and packed."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from benchmarks import timing
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
    torch.set_num_threads(settings.threads)
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
    runs = {key: StackRun(stack.to(settings.device, settings.dtype), is_packed) for key, stack in stacks.items()}
    works = {}
    for key, run in runs.items():
        works[key, "forward"] = timing.Work(run.forward)
        works[key, "total"] = timing.Work(run.total, run.clear)
    times = timing.alternate(works, settings.repeats, settings.budget_s, settings.device, f"{name}: measurements")
    medians = {key: timing.spread(values).median for key, values in times.items()}
    base = medians[("nn.LSTM", "lstm"), "total"]
    return [
        settings.row(*key, name)
        | {
            "forward_ms": medians[key, "forward"],
            "total_ms": medians[key, "total"],
            "ratio_to_lstm": medians[key, "total"] / base,
        }
        for key in runs
    ]


class StackRun:
    """A stack with its input, to be timed."""

    def __init__(self, stack: nn.Module, is_packed: bool) -> None:
        self.stack, self.is_packed = stack, is_packed
        parameter = next(stack.parameters())
        self.frames = torch.randn(PADDED.batch, PADDED.frames, PADDED.input_size).to(parameter).requires_grad_()
        self.lengths = PACKED.num_frames()

    def clear(self) -> None:
        """Drop the gradients of the last run."""
        self.frames.grad = None
        self.stack.zero_grad(set_to_none=True)

    def forward(self) -> None:
        """Run the stack without gradients, as in decoding."""
        with torch.no_grad():
            self._output()

    def total(self) -> None:
        """Run the stack forwards and backwards, to the gradients of parameters and frames, as in training."""
        self._output().sum().backward()

    def _output(self) -> torch.Tensor:
        if not self.is_packed:
            padded: torch.Tensor = self.stack(self.frames)[0]
            return padded
        packed: PackedSequence = self.stack(
            pack_padded_sequence(self.frames, self.lengths, batch_first=True, enforce_sorted=False)
        )[0]
        return packed.data
