"""Packed frames: the true frames of a padded batch, frame by frame for all active rows, in one direction or two."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.nn.kernels.torch.allocator import allocator


class Buffer(NamedTuple):
    """A buffer and its views of each frame, [directions, rows, size]."""

    whole: Tensor
    steps: Sequence[Tensor]


class Packing(NamedTuple):
    """Positions of the true frames of a padded batch when its rows are sorted by length, longest first.

    A packed buffer is [directions, true frames, size]: in each direction the first frame of all rows that have one,
    then the second, and so on. The second direction reads each row from its true end, so that both have the same active
    rows at every step. A trajectory is such a buffer with a state of every row before it, [directions, batch +
    true frames, size].
    """

    order: Int[Tensor, "batch"]
    """The rows, longest first."""
    positions: Int[Tensor, "directions packed"]
    """Position of each packed frame in the padded batch as [batch * frames, size]."""
    sources: Int[Tensor, "directions packed"]
    """Position of each packed frame in the inputs: in the padded batch, or in its true frames (see `compact`)."""
    last: Int[Tensor, "batch"]
    """Position of each row's last state in a trajectory, rows in their original order."""
    sizes: list[int]
    """Number of active rows at each frame; never increases."""
    frames: int
    """Frames of the padded batch."""

    def compact(self) -> tuple["Packing", Int[Tensor, "packed"]]:
        """The packing of inputs without padding, and the positions of their frames in the padded batch."""
        true = self.positions[0].sort().values
        places = true.new_zeros(len(self.order) * self.frames)
        places[true] = torch.arange(len(true), device=true.device)
        return self._replace(sources=places[self.positions]), true

    def pieces(self, inputs: Sequence[Float[Tensor, "rows size"]], frames: int) -> Iterator[Buffer]:
        """Packed copies of one tensor per direction, taken at `sources`, in runs of this many frames."""
        for run, rows in self.chunks(frames):
            piece = allocator.empty(inputs[0], len(inputs), rows.stop - rows.start, inputs[0].shape[1])
            for values, sources, out in zip(inputs, self.sources, piece, strict=True):
                torch.index_select(values, 0, sources[rows], out=out)
            yield Buffer(piece, piece.split(self.sizes[run], 1))

    def pack(self, padded: Float[Tensor, "batch frames both"], packed: Float[Tensor, "directions packed size"]) -> None:
        """Fill a packed buffer with the true frames of a batch that holds its directions side by side."""
        sides = padded.flatten(0, 1).chunk(len(self.positions), 1)
        for side, positions, rows in zip(sides, self.positions, packed, strict=True):
            torch.index_select(side, 0, positions, out=rows)

    def unpack(self, packed: Float[Tensor, "directions packed size"]) -> Float[Tensor, "batch frames both"]:
        """The inverse of `pack`, zero in padding."""
        directions, true, size = packed.shape
        rows = len(self.order) * self.frames
        padded = allocator.empty(packed, rows, directions, size)
        if rows != true:
            padded.zero_()
        for direction, (positions, values) in enumerate(zip(self.positions, packed, strict=True)):
            padded[:, direction].index_copy_(0, positions, values)
        return padded.view(len(self.order), self.frames, directions * size)

    def trajectory(self, initial: Float[Tensor, "directions batch size"]) -> Float[Tensor, "directions rows size"]:
        """A new trajectory that holds the initial states."""
        directions, batch, size = initial.shape
        trajectory = allocator.empty(initial, directions, batch + self.positions.shape[1], size)
        trajectory[:, :batch] = initial[:, self.order]
        return trajectory

    def before_and_after(self, trajectory: Float[Tensor, "directions rows size"]) -> tuple[list[Tensor], list[Tensor]]:
        """The states of the active rows before and after every frame."""
        alive = [len(self.order), *self.sizes]
        states = list(trajectory.split(alive, 1))
        changes = zip(states, alive, self.sizes, strict=False)
        return [state if now == previous else state[:, :now] for state, previous, now in changes], states[1:]

    def after(self, trajectory: Float[Tensor, "directions rows size"]) -> Float[Tensor, "directions packed size"]:
        """The states after every frame, packed."""
        return trajectory[:, len(self.order) :]

    def steps(self, packed: Float[Tensor, "directions packed size"]) -> tuple[Tensor, ...]:
        """The rows of every frame in a packed buffer."""
        return packed.split(self.sizes, 1)

    def active(self, rows: Float[Tensor, "directions batch *size"]) -> list[Tensor]:
        """The active rows of every frame among sorted rows: views of the same memory."""
        views = {size: rows[:, :size] for size in set(self.sizes)}
        return [views[size] for size in self.sizes]

    def blocks(self, flat: Float[Tensor, "rows size"]) -> list[Tensor]:
        """The rows of every frame in a buffer ordered by frame, and within a frame by direction.

        Unlike the rows of a packed buffer, these [directions, rows, size] have no gap in memory.
        """
        directions, size = len(self.positions), flat.shape[1]
        # Runs of frames with the same rows are cut at once: one view after the other would take much longer.
        runs = [(rows, len([*same])) for rows, same in groupby(self.sizes)]
        parts = flat.split([directions * rows * frames for rows, frames in runs])
        views = [part.view(frames, directions, rows, size) for part, (rows, frames) in zip(parts, runs, strict=True)]
        return [frame for view in views for frame in view.unbind()]

    def chunks(self, frames: int) -> list[tuple[slice, slice]]:
        """Runs of this many frames, each with its rows in a packed buffer."""
        starts = [*range(0, len(self.sizes), frames), len(self.sizes)]
        first = [0, *accumulate(self.sizes)]
        return [(slice(start, stop), slice(first[start], first[stop])) for start, stop in pairwise(starts)]


class FrameBuffers:
    """Allocates buffers that hold all frames."""

    def __init__(self, packing: Packing, like: Tensor) -> None:
        self.packing, self.like = packing, like

    def packed(self, size: int) -> Buffer:
        """A packed buffer."""
        whole = allocator.empty(self.like, *self.packing.positions.shape, size)
        return Buffer(whole, self.packing.steps(whole))

    def blocks(self, size: int) -> Buffer:
        """A buffer in the layout of `Packing.blocks`."""
        whole = allocator.empty(self.like, self.packing.positions.numel(), size)
        return Buffer(whole, self.packing.blocks(whole))


class OneFrameBuffers(FrameBuffers):
    """Allocates buffers in which each frame overwrites the one before."""

    def packed(self, size: int) -> Buffer:
        directions, rows = len(self.packing.positions), len(self.packing.order)
        whole = self.like.new_empty(directions * rows, size)
        views = {n: whole[: directions * n].view(directions, n, size) for n in set(self.packing.sizes)}
        return Buffer(whole, [views[n] for n in self.packing.sizes])

    blocks = packed


def packing_of(
    num_frames: Int[Tensor, "batch"], frames: int, directions: int = 1, device: torch.device | None = None
) -> Packing:
    """The packing of a batch padded to `frames`, from true lengths [batch], for one direction or both.

    It is made on the CPU, where the lengths lie as a rule, and copied to the device of the frames without waiting.
    """
    lengths, order = num_frames.cpu().clamp(0, frames).sort(descending=True, stable=True)
    times = torch.arange(frames).unsqueeze(1)
    active = times < lengths
    sizes = active.sum(1)
    both = torch.stack([times.expand_as(active), lengths - 1 - times][:directions])
    positions = (order * frames + both)[:, active]
    # State t of a trajectory starts after the initial states and frames 0 ... t - 2.
    starts = torch.cat([sizes.new_tensor([0, len(order)]), len(order) + sizes.cumsum(0)])
    last = torch.empty_like(order)
    last[order] = starts[lengths] + torch.arange(len(order))
    # Frames that no row reaches are left out, but a batch without any true frame keeps one of them.
    per_frame = sizes.tolist()
    frame_sizes = [n for n in per_frame if n] or per_frame[:1]
    if device is not None:
        order, positions, last = (each.to(device, non_blocking=True) for each in (order, positions, last))
    return Packing(order, positions, positions, last, frame_sizes, frames)
