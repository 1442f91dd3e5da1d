"""The least cost of aligning networks of words, for many pairs at once.

Costs are kept in single precision, as sclite keeps them: the thousandths that an empty word costs round differently
along different paths, and that decides between paths of equal cost.
"""

from typing import Any

import numpy as np

Table = np.ndarray[Any, np.dtype[Any]]

MATCHED, SUBSTITUTED, DELETED, INSERTED = range(4)
"""The moves into a cell."""


def fill(
    substitutions: Table, deletions: Table, insertions: Table, before_spoken: Table, before_heard: Table
) -> tuple[Table, Table]:
    """The least cost of reaching each cell, a pair of arcs, and the move that does: both [spoken heard batch].

    Costs of words: `substitutions` [spoken heard batch], infinite for arc 0, `deletions` [spoken batch], `insertions`
    [heard batch]. Arcs that may come before each: `before_spoken` [choices spoken batch] and `before_heard`, of lower
    numbers; arc 0 comes before itself. Of moves that cost the same a match or substitution is taken before an
    insertion, and that before a deletion. Cells whose numbers of arcs have the same sum depend on cells of smaller
    sums only and are computed together.
    """
    rows, columns, lanes = substitutions.shape
    lane = np.arange(lanes)
    above = before_spoken * (columns * lanes) + lane
    left = before_heard * lanes + lane
    costs = np.full((rows * columns, lanes), np.inf, np.float32)
    costs[0] = 0
    entered = np.full_like(costs, np.inf)  # the least cost in the same row of a cell whose arc may come before
    moves = np.zeros(costs.shape, np.int8)
    for total in range(1, rows + columns - 1):
        row = np.arange(max(0, total - columns + 1), min(rows, total + 1))
        column = total - row
        here = row * columns + column
        in_row, in_column = (row * columns * lanes)[:, None], (column * lanes)[:, None]
        entered[here] = _least(costs, left[:, column] + in_row)
        inserted = entered[here] + insertions[column]
        deleted = _least(costs, above[:, row] + in_column) + deletions[row]
        price = substitutions[row, column]
        substituted = _least(entered, above[:, row] + in_column) + price
        omitted = np.minimum(deleted, inserted)
        costs[here] = np.minimum(substituted, omitted)
        moves[here] = np.where(
            substituted <= omitted,
            np.where(price == 0, MATCHED, SUBSTITUTED),
            np.where(deleted < inserted, DELETED, INSERTED),
        )
    return costs.reshape(substitutions.shape), moves.reshape(substitutions.shape)


def _least(table: Table, choices: Table) -> Table:
    return table.take(choices).min(axis=0)
