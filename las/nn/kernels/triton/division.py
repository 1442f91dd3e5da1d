"""How the programs of `las.nn.kernels.triton.persistent` divide a layer; importing it needs no Triton."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from las.nn.cells.base import NUM_GATES

OWN = 16
"""Units of a program: with four gates, the 64 rows of a product on a tensor core of compute capability 9.0."""

SIDES = (1, 2, 4, 8)
"""Tiles of U' in a row and in a column, backwards."""

SLACK = 12 * 1024
"""Bytes of shared memory that a program needs besides its tiles."""


class Device(NamedTuple):
    """What divides the work."""

    multiprocessors: int
    shared: int
    """Bytes of shared memory that a program can have."""

    @classmethod
    def of(cls, device: torch.device) -> "Device":
        if device.type != "cuda":
            return cls(132, 227 * 1024)  # an H100, for the interpreter
        found: Any = torch.cuda.get_device_properties(device)
        return cls(found.multi_processor_count, found.shared_memory_per_block_optin)


class Division(NamedTuple):
    """How programs divide a layer and a batch."""

    programs: int
    """Of a direction of a group of rows."""
    own: int
    """Units of a program."""
    block: int
    """Width of a program's tile of U', rounded up: units forwards, those of a block of SIDE programs backwards."""
    rows: int
    """Of a group, rounded up."""
    groups: int
    together: int
    """The largest number of groups, of all directions, that run at the same time."""
    side: int = 0

    @classmethod
    def forward(cls, hidden_size: int, directions: int, batch: int, itemsize: int, device: Device) -> "Division | None":
        """Return the division of the forward pass; None if none fits on the device."""
        block = max(16, power_of_2(hidden_size))
        programs = -(-hidden_size // OWN)

        def tiles(rows: int) -> int:
            return (NUM_GATES * OWN + rows) * block * itemsize

        return cls._of(programs, OWN, block, directions, batch, tiles, device)

    @classmethod
    def backward(
        cls, hidden_size: int, directions: int, batch: int, itemsize: int, device: Device
    ) -> "Division | None":
        """Return the division of the backward pass; None if none fits on the device."""
        side = next((side for side in SIDES if side * side * OWN >= hidden_size), SIDES[-1])
        own = 2 * -(-hidden_size // (2 * side * side))  # two numbers in half precision are a word
        span = max(16, power_of_2(side * own))

        def tiles(rows: int) -> int:
            return NUM_GATES * span * (span + rows) * itemsize

        division = cls._of(side * side, own, span, directions, batch, tiles, device)
        return division and division._replace(side=side)

    @classmethod
    def _of(
        cls,
        programs: int,
        own: int,
        block: int,
        directions: int,
        batch: int,
        tiles: Callable[[int], int],
        device: Device,
    ) -> "Division | None":
        together = device.multiprocessors // programs
        fitting = [rows for rows in (16, 32, 64) if tiles(rows) + SLACK <= device.shared]
        if not together or not fitting:
            return None
        at_once = (rows for rows in fitting if directions * -(-batch // rows) <= together)
        rows = next(at_once, fitting[-1])
        return cls(programs, own, block, rows, max(1, -(-batch // rows)), together)

    @property
    def slots(self) -> int:
        """Rows of all groups."""
        return self.rows * self.groups

    def launches(self, directions: int) -> Iterator[tuple[tuple[int, int, int], int, int]]:
        """Return the grids that run one after the other, with the first direction and the first group of each."""
        side_by_side = min(directions, self.together)
        groups = min(self.groups, self.together // side_by_side)
        for direction in range(0, directions, side_by_side):
            for group in range(0, self.groups, groups):
                yield (self.programs, side_by_side, min(groups, self.groups - group)), direction, group

    def words(self, like: Tensor, directions: int, parts: int = 1) -> Tensor:
        """Return the buffer of operands for two turns, `parts` numbers for each unit and row."""
        units = self.programs * self.own * like.element_size() // 4
        return like.new_zeros(2, directions, self.slots, parts * units, dtype=torch.int32)

    def sums(self, like: Tensor, directions: int) -> Tensor:
        """Return the buffer of sums for two turns, at most eight for each row."""
        return like.new_zeros(directions * self.groups, 2, self.programs, 8 * self.rows, dtype=torch.int32)


def divisions(hidden_size: int, directions: int, batch: int, itemsize: int, device: Device) -> list[Division | None]:
    """Return how both passes are divided."""
    given = hidden_size, directions, batch, itemsize, device
    return [Division.forward(*given), Division.backward(*given)]


def power_of_2(number: int) -> int:
    """Return the lowest power of two that is no lower than a number."""
    return 1 << (number - 1).bit_length()
