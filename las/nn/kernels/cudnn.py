"""The plain LSTM on an NVIDIA GPU by cuDNN, over packed frames: the kernel that `torch.nn.LSTM` uses.

On a CPU, where torch takes another kernel, the same code is tested against the plain equations. cuDNN does not promise
the same bits in every run, and takes two to six times as long as the kernel in Triton (docs/performance.md).
"""

import sys
import warnings
from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels.base import Frames, InputGates, Lengths, States, Unrolled, side_by_side
from las.nn.kernels.torch import layer as autograd
from las.nn.kernels.trial import Trial, failure
from las.nn.masking import mask_of

TYPES = (torch.float32, torch.float16, torch.bfloat16)

# torch warns at every call that the weights, which are parameters of their own here, are copied into one buffer.
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk", UserWarning)


def unsupported_reason(cell: LSTMCell, input_gates: Tensor) -> str:
    """The reason why this kernel cannot compute the cell on this tensor's device and type, empty if it can."""
    device = input_gates.device
    if device.type != "cuda" or torch.version.cuda is None:
        return "needs an NVIDIA GPU"
    if type(cell) is not PlainLSTMCell or cell.cell_norm != "none":
        return "computes the plain LSTM only"
    if not torch.backends.cudnn.is_available():
        return "cuDNN is not available"
    trial = Trial.of(sys.modules[__name__], cell, input_gates)
    return failure(trial) if trial.own in TYPES else f"does not compute {trial.own}"


def recurrence(cells: Sequence[LSTMCell], input_gates: InputGates, num_frames: Lengths, states: States) -> Unrolled:
    """The recurrence from `input_gates`, by `autograd`: cuDNN computes W x itself."""
    return autograd.recurrence(cells, input_gates, num_frames, states)


def layer(cells: Sequence[LSTMCell], frames: Frames, num_frames: Lengths, states: States) -> Unrolled:
    """`input_gates` of every cell and the recurrence; padding is not read. There is no second derivative."""
    batch, length, _ = frames.shape
    if not batch or not length:
        return autograd.layer(cells, frames, num_frames, states)
    lengths = num_frames.cpu().clamp(0, length)
    state = side_by_side(cells, states, batch)
    weights = [weight for cell in cells for weight in _weights(cell)]
    own = reduce(torch.promote_types, (tensor.dtype for tensor in (frames, *state, *weights)))
    # A packed row has at least one frame; what is computed of the padding of an empty row is dropped below.
    packed = pack_padded_sequence(frames.to(own), lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
    first = [part[:, packed.sorted_indices].to(own).contiguous() for part in state]
    outputs, *last = torch.lstm(
        packed.data,
        packed.batch_sizes,
        first,
        [weight.to(own).contiguous() for weight in weights],
        has_biases=True,
        num_layers=1,
        dropout=0.0,
        train=torch.is_grad_enabled(),
        bidirectional=len(cells) == 2,
    )
    padded, _ = pad_packed_sequence(packed._replace(data=outputs), batch_first=True, total_length=length)
    # Row by row in the order of the batch, and an empty row keeps its state.
    filled = (lengths > 0).to(frames.device, non_blocking=True).view(1, batch, 1)
    after = [
        torch.where(filled, part[:, packed.unsorted_indices].to(own), before.to(own))
        for part, before in zip(last, state, strict=True)
    ]
    mask = mask_of(lengths, length, frames.device).unsqueeze(-1)
    return padded.to(own).masked_fill(~mask, 0.0), [*map(LSTMState, *after)]


def _weights(cell: LSTMCell) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W, U, and the two biases of `torch.nn.LSTM`: ours, and the constant of the forget gate."""
    assert isinstance(cell, PlainLSTMCell)
    return cell.input_weight, cell.recurrent_weight, cell.bias, autograd.forget_bias(cell).flatten()
