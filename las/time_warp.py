"""Time warping of SpecAugment: a point in the middle of the spectrogram is pulled along time, the image follows.

Park et al. 2019, section 2: an image warp whose control point lies on the middle band and whose six anchors (the four
corners and the middles of the two vertical edges) stay. Between them the displacement is a thin-plate spline, the
smoothest surface through all seven (Duchon 1977). It has a part along time only, since no point moves along frequency.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.errors import ConfigError


def warp(
    features: Float[Tensor, "batch frames size"],
    num_frames: Int[Tensor, "batch"],
    centres: Int[Tensor, "batch"],
    shifts: Int[Tensor, "batch"],
    orders: int = 1,
) -> Float[Tensor, "batch frames size"]:
    """What stood in frame `centres` on the middle band stands in frame `centres + shifts`; padding stays as it is.

    Args:
        num_frames: of each utterance, padding left out.
        centres, shifts: both `centres` and `centres + shifts` lie within the utterance and on neither of its ends.
        orders: blocks of equal size in a row (features and their time derivatives), which are warped alike.

    Raises ConfigError for rows of less than two bands, which have no middle between their edges.
    """
    batch, frames, size = features.shape
    bands = size // orders
    if bands < 2:
        raise ConfigError(f"augment.max_warp_frames needs features of at least 2 bands, not {bands}")
    positions = torch.arange(frames, device=features.device)
    # The image that is read is the old one, so the way back from each place of the new one is what is needed.
    source = positions[None, :, None] - displacement(num_frames, bands, centres, shifts, frames)
    source = torch.minimum(source.clamp(min=0), (num_frames - 1)[:, None, None].clamp(min=0))
    lower = source.floor()
    share = (source - lower).unsqueeze(2).to(features.dtype)
    rows = features.view(batch, frames, orders, bands)
    index = lower.long().unsqueeze(2).expand(rows.shape)
    before, after = rows.gather(1, index), rows.gather(1, (index + 1).clamp(max=frames - 1))
    warped = torch.lerp(before, after, share.expand(rows.shape)).view(features.shape)
    spoken = positions < num_frames[:, None]
    return torch.where(spoken.unsqueeze(2), warped, features)


def displacement(
    num_frames: Int[Tensor, "batch"],
    bands: int,
    centres: Int[Tensor, "batch"],
    shifts: Int[Tensor, "batch"],
    frames: int,
) -> Float[Tensor, "batch frames bands"]:
    """By how many frames each place of the new image was moved: `shifts` at the moved point, 0 at the six anchors.

    The spline is a plane and a weighted sum of r² log r, r the distance from each of the seven points; the weights
    have no part that a plane could have.
    """
    last = (num_frames - 1).double()
    zeros = torch.zeros_like(last)
    edges = torch.tensor([0.0, (bands - 1) / 2, bands - 1], dtype=torch.float64, device=last.device)
    times = torch.stack([(centres + shifts).double(), zeros, zeros, zeros, last, last, last], dim=1)
    heights = torch.cat([edges[1:2], edges, edges]).expand_as(times)
    unit = last.clamp(min=1).unsqueeze(1)  # another unit of length gives the same spline, this one good numbers
    times, heights = times / unit, heights / unit
    apart = _basis(times.unsqueeze(2) - times.unsqueeze(1), heights.unsqueeze(2) - heights.unsqueeze(1))
    plane = torch.stack([torch.ones_like(times), times, heights], dim=2)
    nothing = plane.new_zeros(len(plane), 3, 3)
    system = torch.cat([torch.cat([apart, plane], 2), torch.cat([plane.mT, nothing], 2)], 1)
    values = torch.nn.functional.pad(shifts.double().unsqueeze(1), (0, system.shape[1] - 1))
    # Solved in fp64, added up in fp32: right to a hundredth of a frame, and many times faster.
    solved = torch.linalg.solve(system, values)[:, :, None, None].float()
    at = (torch.arange(frames, device=last.device)[None, :, None] / unit.unsqueeze(2)).float()
    height = (torch.arange(bands, device=last.device)[None, None, :] / unit.unsqueeze(2)).float()
    moved = solved[:, -3] + solved[:, -2] * at + solved[:, -1] * height
    for point in range(times.shape[1]):  # one after the other: all at once would need seven times the memory
        along, across = (each[:, point, None, None].float() for each in (times, heights))
        moved.addcmul_(solved[:, point], _basis(at - along, height - across))
    return moved


def _basis(along: Tensor, across: Tensor) -> Tensor:
    """r² log r of the distance r, 0 at 0."""
    squared = along.square() + across.square()
    return squared.clamp(min=1e-30).log_().mul_(squared).mul_(0.5)
