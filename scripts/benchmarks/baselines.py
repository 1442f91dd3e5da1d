"""Baselines of recurrent layers, each a layer: (frames [batch, frames, input], num_frames) to outputs."""

import importlib
import importlib.util
import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.shapes import Shape
from las.nn.cells.base import NUM_GATES

# torch leaves weights of bf16 where they are, and warns at every call. cuDNN took no less time with them side by side.
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")


class Padded(nn.Module):
    """An LSTM that returns outputs and states, on padded rows: it reads padding as if it were speech."""

    def __init__(self, lstm: nn.Module) -> None:
        super().__init__()
        self.lstm = lstm

    def forward(self, frames: Tensor, num_frames: Tensor | None = None) -> Tensor:
        outputs: Tensor = self.lstm(frames)[0]
        return outputs


class Projected(Padded):
    """An LSTM with a projection, without torch's warning that oneDNN does not compute it."""

    def forward(self, frames: Tensor, num_frames: Tensor | None = None) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")
            return super().forward(frames)


class Packed(Padded):
    """An LSTM on a PackedSequence, which leaves out padding like the layers of this package."""

    def forward(self, frames: Tensor, num_frames: Tensor | None = None) -> Tensor:
        assert num_frames is not None
        packed = pack_padded_sequence(frames, num_frames.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=frames.shape[1])[0]


class Directions(nn.Module):
    """Layers of one direction, the second on rows turned around."""

    def __init__(self, make: Callable[[], nn.Module], directions: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make() for _ in range(directions))

    def forward(self, frames: Tensor, num_frames: Tensor) -> Tensor:
        outputs = [self.layers[0](frames)]
        outputs += [layer(frames.flip(1)).flip(1) for layer in list(self.layers)[1:]]
        return torch.cat(outputs, dim=-1)


class Naive(nn.Module):
    """A straightforward `ln_global` in PyTorch's operations, with autograd.

    Both projections, two `nn.LayerNorm`s and the gates are computed frame by frame.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        width = NUM_GATES * hidden_size
        self.input = nn.Linear(input_size, width, bias=False)
        self.recurrent = nn.Linear(hidden_size, width, bias=False)
        self.input_norm = nn.LayerNorm(width)
        self.recurrent_norm = nn.LayerNorm(width)

    def forward(self, frames: Tensor) -> Tensor:
        hidden = cell = frames.new_zeros(len(frames), self.recurrent.in_features)
        outputs = []
        for frame in frames.unbind(1):
            gates = self.input_norm(self.input(frame)) + self.recurrent_norm(self.recurrent(hidden))
            i, f, g, o = gates.chunk(NUM_GATES, 1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            outputs.append(hidden)
        return torch.stack(outputs, 1)


class FlashRNN(nn.Module):
    """The fused kernel of NX-AI/flashrnn with one head, and the input projection, which the kernel lacks."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.size = hidden_size
        self.project = nn.Linear(input_size, NUM_GATES * hidden_size, bias=False)
        self.weight = nn.Parameter(torch.randn(NUM_GATES, 1, hidden_size, hidden_size) / hidden_size**0.5)
        self.bias = nn.Parameter(torch.zeros(NUM_GATES, 1, hidden_size))

    def forward(self, frames: Tensor) -> Tensor:
        gates = self.project(frames).unflatten(-1, (NUM_GATES, 1, self.size))
        recur = importlib.import_module("flashrnn").flashrnn
        states, _ = recur(gates, self.weight, self.bias, function="lstm", backend="cuda_fused")
        return states[0].flatten(2)


def each_way(make: Callable[[int, int], nn.Module]) -> Callable[[int, int, int], nn.Module]:
    """A layer of `make(input_size, hidden_size)` for each direction."""
    return lambda input_size, hidden_size, directions: Directions(lambda: make(input_size, hidden_size), directions)


def lstm(input_size: int, hidden_size: int, directions: int = 1) -> nn.LSTM:
    """`nn.LSTM`; one direction in fp16 is the only case in which cuDNN picks its persistent kernel."""
    return nn.LSTM(input_size, hidden_size, batch_first=True, bidirectional=directions == 2)


def projected(input_size: int, hidden_size: int, directions: int = 1) -> nn.LSTM:
    """`nn.LSTM` with outputs of half its hidden size, as `projected_lstm` has by default."""
    sizes = {"proj_size": hidden_size // 2}
    return nn.LSTM(input_size, hidden_size, batch_first=True, bidirectional=directions == 2, **sizes)


def gru(input_size: int, hidden_size: int, directions: int = 1) -> nn.GRU:
    """`nn.GRU`."""
    return nn.GRU(input_size, hidden_size, batch_first=True, bidirectional=directions == 2)


def haste(input_size: int, hidden_size: int) -> nn.Module:
    """The layer-normalised LSTM of lmnt-com/haste: the same function as `ln_global`, in fp32."""
    return Padded(importlib.import_module("haste_pytorch").LayerNormLSTM(input_size, hidden_size, batch_first=True))


NO_STACK = "stacks are of layers whose outputs are as wide as their hidden states"


class Baseline(NamedTuple):
    """A constructor of a layer from (input_size, hidden_size, directions), and the conditions of its measurement."""

    layer: Callable[[int, int, int], nn.Module]
    ragged: bool | None = None
    """Whether rows must be padded, or must not be; None for any."""
    needs_gpu: bool = False
    module: str = ""
    """A module that has to be installed."""
    dtype: torch.dtype | None = None
    """The only type it is measured in; None for any."""
    captured: bool = False
    """True if its kernels are replayed from CUDA graphs."""
    cell: str = "lstm"
    """The kind of cell that it computes."""

    def unsupported_reason(self, shape: Shape, device: torch.device) -> str:
        """The reason why it cannot be measured at a shape on a device, or an empty text."""
        if self.module and not importlib.util.find_spec(self.module):
            return "not installed"
        if self.needs_gpu and device.type != "cuda":
            return "needs a GPU"
        if self.ragged not in (None, shape.ragged):
            return "reads padding as speech" if shape.ragged else "all rows are of one length"
        if self.cell == "projected_lstm" and len(shape.reduction) > 1:
            return NO_STACK
        return ""


on_whole_rows = partial(Baseline, ragged=False)

BASELINES = {
    "lstm": Baseline(lambda *sizes: Padded(lstm(*sizes))),
    "lstm_packed": Baseline(lambda *sizes: Packed(lstm(*sizes)), ragged=True),
    "lstm_best": on_whole_rows(each_way(lambda *sizes: Padded(lstm(*sizes))), needs_gpu=True, dtype=torch.float16),
    "lstm_graph": on_whole_rows(lambda *sizes: Padded(lstm(*sizes)), needs_gpu=True, captured=True),
    "projected": Baseline(lambda *sizes: Projected(projected(*sizes)), cell="projected_lstm"),
    "gru": Baseline(lambda *sizes: Padded(gru(*sizes)), cell="gru"),
    "naive": on_whole_rows(each_way(Naive), cell="ln_global"),
    "haste": on_whole_rows(
        each_way(haste), needs_gpu=True, module="haste_pytorch", dtype=torch.float32, cell="ln_global"
    ),
    "flashrnn": on_whole_rows(each_way(FlashRNN), needs_gpu=True, module="flashrnn", dtype=torch.bfloat16),
}
