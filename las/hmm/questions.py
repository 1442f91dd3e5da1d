"""Questions about the neighbours of a phone, which decision trees ask: "is the phone on the left one of B, D, G?"

Without a list of them they come from the data, as Kaldi's do: phones are clustered by the likelihood of their frames,
the two whose union loses least at a time, and every cluster on the way is a question.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.hmm.triphones import Sums, log_likelihood
from las.runtime.errors import DataError, suggest

Side = Literal["left", "right"]
SIDES: tuple[Side, ...] = ("left", "right")


class Question(NamedTuple):
    """Question whether the phone on one side is one of some."""

    side: Side
    phones: frozenset[str]

    def answer(self, left: str, right: str) -> bool:
        """Answer for the neighbours of a phone."""
        return (left if self.side == "left" else right) in self.phones


def of_sets(sets: Sequence[Sequence[str]], phones: Sequence[str]) -> list[Question]:
    """Questions about each set on both sides. Raises DataError with the nearest phones for an unknown one."""
    for number, phone in ((number, phone) for number, each in enumerate(sets, 1) for phone in each):
        if phone not in phones:
            raise DataError(f"question {number}: there is no phone {phone!r}.{suggest(phone, phones)}")
    return [Question(side, frozenset(each)) for each in sets for side in SIDES]


def clusters(statistics: Mapping[str, Sums], floor: NDArray[np.float64]) -> list[tuple[str, ...]]:
    """Sets of phones that sound alike, from single ones up to all but one cluster, sorted within.

    Args:
        statistics: sums of each phone, [states, 1 + 2 size]; of a union, the likelihoods of the states add up.
        floor: least variance, [size].
    """
    names: list[tuple[str, ...]] = [(phone,) for phone in sorted(statistics)]
    sums = [statistics[name[0]] for name in names]
    found = list(names)
    while len(names) > 2:
        stacked = np.stack(sums)
        own = log_likelihood(stacked, floor).sum(-1)
        losses = np.full((len(names), len(names)), np.inf)
        for row in range(len(names) - 1):
            joint = log_likelihood(stacked[row] + stacked[row + 1 :], floor).sum(-1)
            losses[row, row + 1 :] = own[row] + own[row + 1 :] - joint
        first, second = divmod(int(losses.argmin()), len(names))
        names.append(tuple(sorted(names[first] + names.pop(second))))
        sums.append(sums[first] + sums.pop(second))
        del names[first], sums[first]
        found.append(names[-1])
    return found
