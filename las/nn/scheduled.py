"""Numbers that follow a schedule during training: label smoothing, the probability of scheduled sampling."""

from collections.abc import Iterable, Sequence
from itertools import chain

from torch import nn

from las.config.build import require
from las.runtime.errors import ArgumentError, suggest

UNITS = ("steps", "sub_epochs")


class PiecewiseLinear:
    """A piecewise linear function of the step or sub-epoch, constant before the first and after the last point.

    Two points at one place are a jump; at that place the second value holds. It has no state, so a resumed training
    gets the same values.

    Args:
        points: pairs (place, value) in order of place.
        unit: the unit of places, counted from 1: `steps` or `sub_epochs`.

    >>> import las
    >>> smoothing = las.PiecewiseLinear(points=[[1000, 0.0], [3000, 0.2]])
    >>> [smoothing.value_at(step, sub_epoch=1) for step in (1, 2000, 9000)]
    [0.0, 0.1, 0.2]
    """

    def __init__(self, *, points: Sequence[Sequence[int | float]], unit: str = "steps") -> None:
        if not points or any(len(point) != 2 for point in points):
            raise ArgumentError(f"points={[list(point) for point in points]}: give pairs [place, value], one at least")
        places = [place for place, _ in points]
        if places != sorted(places):
            raise ArgumentError(f"points: their places {places} must be in order")
        if unit not in UNITS:
            raise ArgumentError(f"unit={unit}: places count steps or sub_epochs.{suggest(unit, UNITS)}")
        self.points = [(float(place), float(value)) for place, value in points]
        self.unit = unit

    def value_at(self, step: int, sub_epoch: int) -> float:
        """Return the value at update number `step`, in sub-epoch number `sub_epoch`, both from 1."""
        place = step if self.unit == "steps" else sub_epoch
        left, value = self.points[0]
        if place < left:
            return value
        for right, target in self.points[1:]:
            if place < right:
                return value + (target - value) * (place - left) / (right - left)
            left, value = right, target
        return value


class ScheduledModule(nn.Module):
    """A module with scheduled numbers: plain attributes that are set before each update."""

    def __init__(self) -> None:
        super().__init__()
        self.schedules: dict[str, PiecewiseLinear] = {}

    def schedule(self, name: str, number: float | PiecewiseLinear, largest: float) -> None:
        """Register a number or a schedule as the attribute `name`, set to the first value of the schedule.

        Raises ArgumentError unless it always lies between 0 and `largest`.
        """
        if not isinstance(number, PiecewiseLinear):
            require(name, number, 0.0, largest)
        schedule = number if isinstance(number, PiecewiseLinear) else PiecewiseLinear(points=[[1, number]])
        for _, value in schedule.points:
            require(name, value, 0.0, largest)
        if schedule is number:
            self.schedules[name] = schedule
        setattr(self, name, schedule.value_at(1, 1))


def update_scheduled_values(modules: Iterable[nn.Module], step: int, sub_epoch: int) -> None:
    """Set every scheduled number in these modules to its value at update `step` in `sub_epoch`, both from 1."""
    for each in chain.from_iterable(module.modules() for module in modules):
        if isinstance(each, ScheduledModule):
            for name, schedule in each.schedules.items():
                setattr(each, name, schedule.value_at(step, sub_epoch))
