"""Operations of the products of LSTM layers, and how many of them the machine does in a large product: its peak."""

from functools import cache

import torch

from benchmarks import timing
from benchmarks.shapes import Shape
from las.data.loader import Batch
from las.nn.acoustic_model import AcousticModel, chunks_of
from las.nn.cells.base import NUM_GATES, LSTMCell
from las.nn.listener import reduced_length
from las.nn.model import ListenAttendSpell, SpeechModel

SIZES, SMALL = {"cpu": 2048, "cuda": 8192}, {"cpu": 256, "cuda": 4096}
"""Rows and columns of the product by which the peak is measured, and of one that tells whether a type is fast. Smaller
ones do not fill a GPU."""


@cache
def per_ms(device: torch.device, operand: torch.dtype = torch.float32) -> float:
    """Operations per millisecond of a large product, the fastest of several.

    Where a processor has no fast products of a type, those of fp32 on rounded numbers are the fastest.
    """
    return _rate(SIZES[device.type], device, operand if is_fast(device, operand) else torch.float32)


@cache
def is_fast(device: torch.device, operand: torch.dtype) -> bool:
    """Return whether products of a type are at least as fast as those of fp32."""
    small = SMALL[device.type]
    return operand == torch.float32 or _rate(small, device, operand) >= _rate(small, device, torch.float32)


def _rate(size: int, device: torch.device, operand: torch.dtype) -> float:
    left, right = (torch.randn(size, size, device=device, dtype=operand) for _ in range(2))
    times = [timing.milliseconds(lambda: left @ right, device) for _ in range(5)]
    return 2 * size**3 / min(times)


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
