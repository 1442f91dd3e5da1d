"""Masks of true lengths, and reductions over unmasked entries."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Lengths = Int[Tensor, "batch"]
"""Numbers of true samples, frames, states or tokens of the utterances of a batch."""


def mask_of(lengths: Lengths, size: int, device: torch.device | None = None) -> Bool[Tensor, "batch size"]:
    """Mask [batch, size] that is True at positions before each length [batch], on a device or that of the lengths.

    Lengths lie on the CPU as a rule, as those of `torch.nn.utils.rnn.pack_padded_sequence` do: loops and buffers are
    planned by them, and what is planned by a tensor on a GPU waits for it. A mask is copied there without waiting.

    >>> import torch
    >>> from las.nn.masking import mask_of
    >>> mask_of(torch.tensor([3, 1]), 4)
    tensor([[ True,  True,  True, False],
            [ True, False, False, False]])
    """
    mask = torch.arange(size, device=lengths.device) < lengths.unsqueeze(1)
    return mask if device is None else mask.to(device, non_blocking=True)


def masked_softmax(energy: Float[Tensor, "*shape"], mask: Bool[Tensor, "*masks"]) -> Float[Tensor, "*shape"]:
    """Softmax over the last axis with zero weight where the mask (broadcast to the energy) is False.

    A row without a single True gives zero weights, not NaN, so an utterance without states does not affect the others.

    >>> import torch
    >>> from las.nn.masking import mask_of, masked_softmax
    >>> masked_softmax(torch.zeros(2, 4), mask_of(torch.tensor([4, 2]), 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500],
            [0.5000, 0.5000, 0.0000, 0.0000]])
    """
    lowest = torch.finfo(energy.dtype).min
    weights = torch.softmax(energy.masked_fill(~mask, lowest), dim=-1)
    return weights.masked_fill(~mask, 0.0)


def masked_mean(values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*masks"], dim: int) -> Float[Tensor, "*reduced"]:
    """Mean over `dim` of the entries where the mask (broadcast to the values) is True; 0 where there are none."""
    mask = mask.expand_as(values)
    total = values.masked_fill(~mask, 0.0).sum(dim)
    return total / mask.sum(dim).clamp(min=1)


def reverse(frames: Float[Tensor, "batch frames *size"], lengths: Lengths) -> Float[Tensor, "batch frames *size"]:
    """Each row read backwards within its own length; padding stays where it is. Its own inverse."""
    positions = torch.arange(frames.shape[1], device=frames.device)
    index = lengths.to(frames.device, non_blocking=True).unsqueeze(1) - 1 - positions
    index = torch.where(index < 0, positions, index)
    return frames[torch.arange(frames.shape[0], device=frames.device).unsqueeze(1), index]
