"""Comparison of a training's learning rate with the one that the card of its model was tuned with.

A larger model takes a smaller rate: with Adam about in inverse proportion to its width (Yang et al. 2022, "Tensor
Programs V"), so to the square root of its parameters. For a smaller one the tuned rate is kept.
"""

import math
from collections.abc import Callable

from las.config.build import Config, check_value
from las.runtime.errors import ConfigError
from las.storage import run_directory
from las.storage.run_directory import Lengths

TOO_HIGH, TOO_LOW = 2.0, 0.1
"""A rate is far from the suitable one when it is more than twice, or less than a tenth of it."""


def suitable_rate(tuned: int | float, tuned_parameters: int | float, parameters: int) -> float:
    """The rate for a model of so many parameters, from the rate that was tuned for another one."""
    return tuned * min(1.0, math.sqrt(tuned_parameters / parameters))


def rounded_down(rate: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not above a rate."""
    power = 10.0 ** math.floor(math.log10(rate))
    factor = max(each for each in (1, 2, 5) if each * power <= rate * (1 + 1e-9))
    return float(f"{factor * power:.0e}")


def remark(config: Config, parameters: int) -> str:
    """A line about a rate that is far from the suitable one, with what to type; empty for one that is near.

    Only rates of Adam are compared. Raises ConfigError for a section `learning_rate` that is none.
    """
    section, optimiser = config["learning_rate"], config["optim"]
    for key in ("value", "parameters"):
        check_value(f"learning_rate.{key}", section[key], float)
        if section[key] <= 0:
            raise ConfigError(f"learning_rate.{key}={section[key]} must be above 0")
    suitable, rate = suitable_rate(section["value"], section["parameters"], parameters), optimiser.get("lr")
    is_near = isinstance(rate, (int, float)) and TOO_LOW * suitable <= rate <= TOO_HIGH * suitable * (1 + 1e-9)
    if optimiser["_target_"] not in ("torch.optim.Adam", "torch.optim.AdamW") or is_near:
        return ""
    tuned = f"learning rate {section['value']:g} was tuned for a model of {_millions(section['parameters'])} parameters"
    own = f"this one has {_millions(parameters)}" + (f" and {rate:g}" if rate != section["value"] else "")
    advice = section["value"] if suitable > 0.8 * section["value"] else rounded_down(suitable)
    return f"{tuned}; {own}: about {advice:g} suits it (optim.lr={advice:g}), or find it with las tune_lr"


def describe_extension(lengths: Lengths, rate: Callable[[int], float], step: int) -> str:
    """A line about a run that goes on for longer from a step: its new length, and its learning rate from here on.

    `rate` gives the learning rate of a step by the schedule as it stands now.
    """
    _, last = lengths.get("max_steps", (None, None))
    line = f"continued for longer: {run_directory.describe(lengths)}. The learning rate goes on by the schedule: "
    line += f"{rate(step):.3g} at step {step}, {rate(step + 1):.3g} at step {step + 1}"
    if last is not None:
        line += f", {rate(last):.3g} at step {last}"
    return f"{line}. For a schedule that begins again, start a new run from this one: warm_start.from=..."


def _millions(count: int | float) -> str:
    return f"{count / 1e6:.1f} M"
