"""Operations of the products of LSTM layers, and how many of them the machine does in a large product: its peak."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from benchmarks import timing
from benchmarks.shapes import Shape
from las.data.loader import Batch
from las.nn.acoustic_model import AcousticModel, chunks_of
from las.nn.cells.base import NUM_GATES, LSTMCell
from las.nn.kernels.cpp import build
from las.nn.kernels.cpp.layer import bfloat16_unit
from las.nn.kernels.cpp.tensors import CppLibrary
from las.nn.listener import reduced_length
from las.nn.model import ListenAttendSpell, SpeechModel

Size = tuple[int, int, int]
SIZES: dict[str, tuple[Size, ...]] = {"cpu": ((2048, 2048, 2048), (3200, 512, 1024)), "cuda": ((8192, 8192, 8192),)}
"""Rows, inner size and columns of the products by which the peak is measured. Smaller ones do not fill a GPU."""
SMALL: dict[str, Size] = {"cpu": (256, 256, 256), "cuda": (4096, 4096, 4096)}
"""Those of one that tells whether a type is fast."""


@cache
def per_ms(device: torch.device, operand: torch.dtype = torch.float32) -> float:
    """Operations per millisecond of a large product, the fastest of several, by torch or by the compiled kernels.

    Where a processor has no fast products of a type, those of fp32 on rounded numbers are the fastest.
    """
    fastest = operand if is_fast(device, operand) else torch.float32
    return max(_rate(size, device, fastest) for size in SIZES[device.type])


@cache
def is_fast(device: torch.device, operand: torch.dtype) -> bool:
    """Return whether products of a type are at least as fast as those of fp32."""
    small = SMALL[device.type]
    return operand == torch.float32 or _rate(small, device, operand) >= _rate(small, device, torch.float32)


def _rate(size: Size, device: torch.device, operand: torch.dtype) -> float:
    rows, inner, columns = size
    left, right = torch.randn(rows, inner, device=device), torch.randn(inner, columns, device=device)
    typed = left.to(operand), right.to(operand)
    products: list[Callable[[], Tensor]] = [lambda: torch.mm(*typed)]
    if device.type == "cpu" and operand in (torch.float32, torch.bfloat16) and not build.unavailable():
        unit = None if operand == torch.float32 else bfloat16_unit()
        library = CppLibrary(build.library(), unit)
        products.append(lambda: library.product(left, right))
    times = [timing.milliseconds(product, device) for _ in range(5) for product in products]
    return 2 * rows * inner * columns / min(times)


def update_operations(model: SpeechModel, batch: Batch) -> float:
    """Operations of the products of an update: of the listener, and of what follows it forwards and twice backwards."""
    total = sum(listener_operations(model, batch).values())
    if isinstance(model, AcousticModel):
        return total + 3 * 2 * model.num_targets(batch) * model.output.weight.numel()
    assert isinstance(model, ListenAttendSpell)
    speller, attention = model.speller, model.speller.attention
    states, steps = model.num_states(batch.num_samples), batch.num_tokens + 1
    of_a_pair = of_states = 0
    for name, weight in attention.named_parameters():
        if weight.shape[-1] == model.listener.output_size:
            of_states += weight.numel()
        elif name != "query.weight" and weight.dim() > 1:
            of_a_pair += weight.numel()
    matrices = [
        weight for weight in speller.parameters() if weight.dim() == 2 and weight is not speller.embedding.weight
    ]
    others = [weight for name, weight in attention.named_parameters() if name != "query.weight" and weight.dim() == 2]
    of_steps = sum(weight.numel() for weight in matrices) - sum(weight.numel() for weight in others)
    pairs = int((states * steps).sum()) * (of_a_pair + model.listener.output_size)
    return total + 3 * 2 * (int(steps.sum()) * of_steps + int(states.sum()) * of_states + pairs)


def listener_operations(model: SpeechModel, batch: Batch) -> dict[str, float]:
    """Operations of the products of the listener's layers over true frames, by the part of a step.

    Those of x and h with W and U forwards, twice as many backwards; features need no gradient.
    """
    forwards, of_features = 0.0, 0.0
    num_rows = model.features.num_frames(batch.num_samples)
    if isinstance(model, AcousticModel):
        num_rows = chunks_of(num_rows, model.chunk_size, model.chunk_step).lengths
    factors = [*model.listener.reductions, 1]
    lead = len(factors) - 1 - len(model.listener.layers)
    for factor in factors[:lead]:
        num_rows = reduced_length(num_rows, factor)
    for index, layer in enumerate(model.listener.layers):
        for cell in layer.modules():
            if isinstance(cell, LSTMCell):
                rows, width = int(num_rows.sum()), 2 * NUM_GATES * cell.hidden_size
                forwards += rows * width * (cell.input_size + cell.hidden_size)
                of_features += 0.0 if index else rows * width * cell.input_size
        num_rows = reduced_length(num_rows, factors[lead + index])
    return {"listener": forwards, "listener_backward": 2 * forwards - of_features}


def layer_operations(shape: Shape) -> float:
    """Operations of the products of layers over true frames, forwards; backwards they are twice as many."""
    rows, size, total = shape.num_frames(), shape.input_size, 0.0
    for factor in shape.reduction:
        width = 2 * NUM_GATES * shape.hidden_size * shape.directions
        total += int(rows.sum()) * width * (size + shape.hidden_size)
        rows, size = reduced_length(rows, factor), shape.directions * shape.hidden_size
    return total
