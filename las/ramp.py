"""A number of the config that changes during training: label smoothing or scheduled sampling with a schedule."""

from collections.abc import Sequence

from las.errors import ConfigError, suggest

UNITS = ("steps", "sub_epochs")


class Ramp:
    """Straight lines from point to point; before the first point its value, after the last point its value.

    Two points at one place are a jump, which has happened when that place is reached. It remembers nothing: a training
    that continues asks for the same places and gets the same values.

    Args:
        points: (place, value) pairs, places in order.
        unit: what places count, from 1: `steps` or `sub_epochs`.
    """

    def __init__(self, *, points: Sequence[Sequence[int | float]], unit: str = "steps") -> None:
        if not points or any(len(point) != 2 for point in points):
            raise ConfigError(f"points={[list(point) for point in points]}: give pairs [place, value], one at least")
        places = [place for place, _ in points]
        if places != sorted(places):
            raise ConfigError(f"points: their places {places} must be in order")
        if unit not in UNITS:
            raise ConfigError(f"unit={unit}: places count steps or sub_epochs.{suggest(unit, UNITS)}")
        self.points = [(float(place), float(value)) for place, value in points]
        self.unit = unit

    def at(self, step: int, sub_epoch: int) -> float:
        """The value at update number `step`, in sub-epoch number `sub_epoch`, both from 1."""
        place = step if self.unit == "steps" else sub_epoch
        left, value = self.points[0]
        if place < left:
            return value
        for right, target in self.points[1:]:
            if place < right:
                return value + (target - value) * (place - left) / (right - left)
            left, value = right, target
        return value
