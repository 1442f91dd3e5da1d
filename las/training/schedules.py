"""Learning rate schedules, and the comparison of a learning rate with the one tuned for the option of the model.

A schedule is plain data with two methods, stored in checkpoints, and names the loss that it follows:

factor(step)                multiplier of the optimiser's base learning rate at this step
validated(dev_loss)         passes the result of a validation, which ends a sub-epoch, to the schedule
follows                     the dev loss that is passed: `cross_entropy`, or the `objective` that training minimises

Steps are counted from 1. Each call of `validated` ends a sub-epoch; the first sub-epoch runs until the first call.
The state of a schedule is its attributes that are no arguments; the arguments come from the config.

A larger model takes a smaller rate: with Adam about in inverse proportion to its width (Yang et al. 2022, "Tensor
Programs V"), so to the square root of its parameters. For a smaller one the tuned rate is kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from las.config.build import Config, check_value, require
from las.runtime.errors import ArgumentError, ConfigError, NumericalError, require_known
from las.storage import run_directory
from las.storage.run_directory import Lengths

TOO_HIGH, TOO_LOW = 2.0, 0.1
"""A rate is far from the suitable one when it is more than twice, or less than a tenth of it."""
FOLLOWED = ("cross_entropy", "objective")
TINY = 1e-12
"""Avoids division by a dev loss or rate of zero."""


@dataclass
class Schedule:
    """Constant learning rate after a warm-up, by steps or by sub-epochs.

    Args:
        warmup_steps: linear warm-up from `warmup_from` before the first step to the full learning rate at this step.
        warmup_sub_epochs: linear warm-up from `warmup_from` in the first sub-epoch to the full learning rate in this
            one, which RETURNN's configs write as `numpy.linspace`.
        warmup_from: the start of a linear warm-up, as a share of the learning rate.
        warmup_rates: the share of the learning rate in each of the first sub-epochs, in place of a linear warm-up.

    >>> import las
    >>> schedule = las.Schedule(warmup_steps=1000)
    >>> [schedule.factor(step) for step in (1, 500, 1000, 9000)]
    [0.001, 0.5, 1.0, 1.0]
    """

    warmup_steps: int = 0
    warmup_sub_epochs: int = 0
    warmup_from: float = 0.0
    warmup_rates: Sequence[float] = ()
    sub_epochs: int = field(default=0, init=False)

    follows = FOLLOWED[0]
    """The dev loss that `validated` takes: plain `cross_entropy`, or the `objective` that training minimises."""

    def __post_init__(self) -> None:
        require("warmup_steps", self.warmup_steps, 0)
        require("warmup_sub_epochs", self.warmup_sub_epochs, 0)
        require("warmup_from", self.warmup_from, 0.0, 1.0)
        for index, rate in enumerate(self.warmup_rates):
            require(f"warmup_rates[{index}]", rate, 0.0)
        if self.warmup_sub_epochs == 1:
            raise ArgumentError("warmup_sub_epochs=1: warmup_sub_epochs must be 0 or at least 2")
        warmups = [key for key in ("warmup_steps", "warmup_sub_epochs", "warmup_rates") if getattr(self, key)]
        if len(warmups) > 1:
            raise ArgumentError(f"{' and '.join(warmups)} are set: set only one of them")

    def factor(self, step: int) -> float:
        """Multiplier of the base learning rate for the update number `step`, counted from 1."""
        if step >= self.warmup_steps:
            return self.sub_epoch_factor()
        line = self.warmup_from + (1.0 - self.warmup_from) * step / self.warmup_steps
        return line * self.sub_epoch_factor()

    def sub_epoch_factor(self) -> float:
        """Multiplier of the current sub-epoch in a warm-up by sub-epochs, otherwise 1."""
        if self.sub_epochs < len(self.warmup_rates):
            return float(self.warmup_rates[self.sub_epochs])
        to_go = self.warmup_sub_epochs - 1 - self.sub_epochs
        return 1.0 - (1.0 - self.warmup_from) * to_go / (self.warmup_sub_epochs - 1) if to_go > 0 else 1.0

    def validated(self, dev_loss: float) -> None:
        """Take the dev loss (lower is better) of a validation, which ends a sub-epoch.

        Raises NumericalError unless it is finite: it cannot be compared, nor written as JSON.
        """
        if not math.isfinite(dev_loss):
            raise NumericalError(
                f"the dev loss is {dev_loss}, so improvement cannot be measured. "
                f"Try a lower optim.lr or a longer schedule.warmup_steps under another name=..."
            )
        self.sub_epochs += 1

    def state_dict(self) -> dict[str, Any]:
        """State of the schedule, as plain JSON values."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if not entry.init}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state from `state_dict`. Old checkpoints lack the number of sub-epochs, which then is 0."""
        restored = {"sub_epochs": 0, **state}
        for name in self.state_dict():
            setattr(self, name, restored[name])


@dataclass
class NewbobSchedule(Schedule):
    """Decay when a validation no longer improves enough (the rule known as newbob since QuickNet).

    Args:
        decay: multiplies the learning rate after such a validation.
        threshold: the smallest relative improvement of the dev loss that is enough, e.g. 0.0025.
        patience: the number of validations without enough improvement that precede each decay.
        floor: the least multiplier.

    >>> import las
    >>> schedule = las.NewbobSchedule(decay=0.5, threshold=0.01)
    >>> for dev_loss in (2.0, 1.5, 1.495, 1.2):
    ...     schedule.validated(dev_loss)
    ...     print(dev_loss, schedule.factor(1))
    ...
    2.0 1.0
    1.5 1.0
    1.495 0.5
    1.2 0.5
    """

    decay: float = 0.5
    threshold: float = 0.0025
    patience: int = 0
    floor: float = 0.0
    current: float = field(default=1.0, init=False)
    best: float | None = field(default=None, init=False)
    without_improvement: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require("decay", self.decay, 0.0, 1.0)
        require("threshold", self.threshold, 0.0, 1.0)
        require("floor", self.floor, 0.0, 1.0)
        require("patience", self.patience, 0)

    def factor(self, step: int) -> float:
        return super().factor(step) * self.current

    def validated(self, dev_loss: float) -> None:
        super().validated(dev_loss)
        improved = self.best is None or dev_loss < self.best * (1.0 - self.threshold)
        self.without_improvement = 0 if improved else self.without_improvement + 1
        if self.without_improvement > self.patience:
            self.current = max(self.floor, self.current * self.decay)
            self.without_improvement = 0
        self.best = dev_loss if self.best is None else min(self.best, dev_loss)


@dataclass
class NewbobMultiEpochSchedule(Schedule):
    """Newbob on the mean of several sub-epochs (`newbob_multi_epoch` of RETURNN, learning_rate_control.py, as the
    configs of Zeineldeen et al. 2020 set it).

    Between two sub-epochs e - 1 and e with dev losses L and factors f, the improvement is

        (L[e-1] - L[e]) / |L[e]| / f[e]

    since a small learning rate cannot be expected to improve as much as a large one. After every sub-epoch, the last of
    the warm-up included, the learning rate decays if the mean of the last `window` improvements (fewer at the start) is
    below `threshold`, unless one of the last `stay` sub-epochs had another rate.

    RETURNN's improvements have the opposite sign: its threshold of -0.01 is 0.01 here. A warm-up by steps is left out
    of the comparisons, because its rate changes within a sub-epoch.

    Args:
        decay: multiplies the learning rate.
        threshold: the smallest mean relative improvement that is enough.
        window: the number of improvements in the mean.
        stay: the least number of sub-epochs at each rate.
        floor: the least multiplier.
        follows: the dev loss that is compared: plain `cross_entropy`, or the `objective` that training minimises, with
            its smoothing or focus, as RETURNN does.
    """

    decay: float = 0.5
    threshold: float = 0.01
    window: int = 6
    stay: int = 3
    floor: float = 0.0
    follows: str = FOLLOWED[0]
    current: float = field(default=1.0, init=False)
    losses: list[float] = field(default_factory=list, init=False)
    factors: list[float] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require("decay", self.decay, 0.0, 1.0)
        require("floor", self.floor, 0.0, 1.0)
        require("window", self.window, 1)
        require("stay", self.stay, 1)
        require_known("follows", self.follows, FOLLOWED)

    def sub_epoch_factor(self) -> float:
        return super().sub_epoch_factor() * self.current

    def validated(self, dev_loss: float) -> None:
        history, factor = max(self.window + 1, self.stay), self.sub_epoch_factor()
        super().validated(dev_loss)
        self.losses = [*self.losses, dev_loss][-history:]
        self.factors = [*self.factors, factor][-history:]
        warming_up = self.sub_epochs < max(self.warmup_sub_epochs, len(self.warmup_rates))
        recent_factors = self.factors[-self.stay :]
        stayed = len(recent_factors) == self.stay and len(set(recent_factors)) == 1
        if not warming_up and stayed and self._improvement() < self.threshold:
            self.current = max(self.floor, self.current * self.decay)

    def _improvement(self) -> float:
        """Mean relative improvement of the last sub-epochs; infinite before there are two to compare."""
        pairs = zip(self.losses, self.losses[1:], self.factors[1:], strict=False)
        improvements = [(old - new) / max(abs(new), TINY) / max(factor, TINY) for old, new, factor in pairs][
            -self.window :
        ]
        return sum(improvements) / len(improvements) if improvements else math.inf


@dataclass
class ExponentialSchedule(Schedule):
    """Smooth decay to `final` of the learning rate over `decay_steps`, constant from there on.

    With a warm-up by steps this is the schedule of Park et al. 2019 (SpecAugment, section 3.2): a ramp to s_r, the peak
    held to s_i, then decay to 1/100 of it at s_f (`start_step` = s_i, `decay_steps` = s_f - s_i, `final` = 0.01).

    Args:
        start_step: steps before the decay begins.
        decay_steps: steps of the decay.
        final: the multiplier at its end.
    """

    start_step: int = 0
    decay_steps: int = 10_000
    final: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require("start_step", self.start_step, 0)
        require("decay_steps", self.decay_steps, 1)
        require("final", self.final, 0.0, 1.0)

    def factor(self, step: int) -> float:
        progress = min(1.0, max(0.0, (step - self.start_step) / self.decay_steps))
        return super().factor(step) * self.final**progress


def rounded_down(rate: float) -> float:
    """Round a rate down to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rate))
    factor = max(each for each in (1, 2, 5) if each * power <= rate * (1 + 1e-9))
    return float(f"{factor * power:.0e}")


def remark(config: Config, parameters: int) -> str:
    """Say that a rate is far from the suitable one, and what to type; empty for one that is near.

    Only rates of Adam are compared. Raises ConfigError for a section `learning_rate` that is none.
    """
    section, optimiser = config["learning_rate"], config["optim"]
    for key in ("value", "parameters"):
        check_value(f"learning_rate.{key}", section[key], float)
        if section[key] <= 0:
            raise ConfigError(f"learning_rate.{key}={section[key]} must be above 0")
    suitable, rate = section["value"] * min(1.0, math.sqrt(section["parameters"] / parameters)), optimiser.get("lr")
    is_near = isinstance(rate, (int, float)) and TOO_LOW * suitable <= rate <= TOO_HIGH * suitable * (1 + 1e-9)
    if optimiser["_target_"] not in ("torch.optim.Adam", "torch.optim.AdamW") or is_near:
        return ""
    tuned = f"learning rate {section['value']:g} was tuned for a model of {_millions(section['parameters'])} parameters"
    own = f"this one has {_millions(parameters)}" + (f" and {rate:g}" if rate != section["value"] else "")
    advice = section["value"] if suitable > 0.8 * section["value"] else rounded_down(suitable)
    return f"{tuned}; {own}: about {advice:g} suits it (optim.lr={advice:g}), or find it with las tune_lr"


def describe_extension(lengths: Lengths, rate: Callable[[int], float], step: int) -> str:
    """One line describing an extended run: its new length, and its learning rate from here on.

    `rate` computes the learning rate of a step by the schedule as it stands now.
    """
    _, last = lengths.get("max_steps", (None, None))
    line = f"continued for longer: {run_directory.describe(lengths)}. The learning rate goes on by the schedule: "
    line += f"{rate(step):.3g} at step {step}, {rate(step + 1):.3g} at step {step + 1}"
    if last is not None:
        line += f", {rate(last):.3g} at step {last}"
    return f"{line}. For a schedule that begins again, start a new run from this one: warm_start.from=..."


def _millions(count: int | float) -> str:
    return f"{count / 1e6:.1f} M"
