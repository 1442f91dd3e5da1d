"""True frames without their padding, one frame of all living rows after the other."""

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Packing(NamedTuple):
    """Where the true frames of a padded batch lie when rows are sorted by length, longest first.

    A packed buffer is [true frames, size]: first frame 0 of all rows that have one, then frame 1, and so on. A
    trajectory is such a buffer with a state of every row before it, [batch + true frames, size].
    """

    order: Int[Tensor, "batch"]
    """The rows, longest first."""
    positions: Int[Tensor, "packed"]
    """Where each packed frame lies in the padded batch seen as [batch * frames, size]."""
    last: Int[Tensor, "batch"]
    """Where each row's last state lies in a trajectory, rows in their own order."""
    sizes: list[int]
    """How many rows live at each frame; never increases."""

    def pack(self, padded: Float[Tensor, "batch frames size"]) -> Float[Tensor, "packed size"]:
        """A copy of the true frames."""
        return padded.flatten(0, 1).index_select(0, self.positions)

    def padded(self, like: Tensor, frames: int, size: int) -> Float[Tensor, "rows size"]:
        """Room for a padded batch, [batch * frames, size], zero wherever there is padding."""
        rows = len(self.order) * frames
        return like.new_empty(rows, size) if rows == len(self.positions) else like.new_zeros(rows, size)

    def unpack(self, packed: Float[Tensor, "packed size"], frames: int) -> Float[Tensor, "batch frames size"]:
        """The inverse of `pack`, zero in padding."""
        padded = self.padded(packed, frames, packed.shape[1]).index_copy_(0, self.positions, packed)
        return padded.unflatten(0, (len(self.order), frames))

    def trajectory(self, initial: Float[Tensor, "batch size"]) -> Float[Tensor, "rows size"]:
        """Room for one, with the initial states in it."""
        trajectory = initial.new_empty(len(self.order) + len(self.positions), initial.shape[1])
        trajectory[: len(self.order)] = initial[self.order]
        return trajectory

    def around(self, trajectory: Float[Tensor, "rows size"]) -> tuple[list[Tensor], list[Tensor]]:
        """For every frame, the states of its rows before it and after it."""
        alive = [len(self.order), *self.sizes]
        states = list(trajectory.split(alive))
        changes = zip(states, alive, self.sizes, strict=False)
        return [state if now == previous else state[:now] for state, previous, now in changes], states[1:]

    def after(self, trajectory: Float[Tensor, "rows size"]) -> Float[Tensor, "packed size"]:
        """The states after every frame, packed."""
        return trajectory[len(self.order) :]

    def steps(self, buffer: Float[Tensor, "rows size"]) -> tuple[Tensor, ...]:
        """For every frame, its rows of a packed buffer."""
        return buffer.split(self.sizes)

    def chunks(self, frames: int) -> list[tuple[slice, slice]]:
        """Runs of this many frames, each with its rows in a packed buffer."""
        starts = [*range(0, len(self.sizes), frames), len(self.sizes)]
        first = [0, *accumulate(self.sizes)]
        return [(slice(start, stop), slice(first[start], first[stop])) for start, stop in pairwise(starts)]

    def living(self, rows: Float[Tensor, "batch size"]) -> tuple[Tensor, ...]:
        """For every frame, those of the sorted rows that live at it: the same memory every time."""
        views = {size: rows[:size] for size in set(self.sizes)}
        return tuple(views[size] for size in self.sizes)


class Buffer(NamedTuple):
    """Rows and the way to cut them into one view per frame: `Packing.steps`, or `Packing.living` to reuse them."""

    rows: Float[Tensor, "rows size"]
    cut: Callable[[Tensor], tuple[Tensor, ...]]

    def steps(self, start: int = 0, stop: int | None = None) -> tuple[Tensor, ...]:
        """For every frame, its rows of the columns from `start` to `stop`."""
        return self.cut(self.rows[:, start:stop])


def packing_of(num_frames: Int[Tensor, "batch"], frames: int) -> Packing:
    """The packing of a batch padded to `frames`, from true lengths [batch]."""
    lengths, order = num_frames.clamp(0, frames).sort(descending=True, stable=True)
    times = torch.arange(frames, device=lengths.device).unsqueeze(1)
    living = times < lengths
    sizes = living.sum(1)
    # State t of a trajectory starts after the initial states and frames 0 ... t - 2.
    starts = torch.cat([sizes.new_tensor([0, len(order)]), len(order) + sizes.cumsum(0)])
    last = torch.empty_like(order)
    last[order] = starts[lengths] + torch.arange(len(order), device=order.device)
    # Frames that no row reaches are left out, but a batch without any true frame keeps one of them.
    per_frame = sizes.tolist()
    return Packing(order, (order * frames + times)[living], last, [n for n in per_frame if n] or per_frame[:1])
