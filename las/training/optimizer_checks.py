"""Are the settings of an optimiser sound? Those of torch accept a learning rate that trains nothing."""

from typing import Any

from las.runtime import config
from las.runtime.errors import ArgumentError, ConfigError

BETWEEN = ("betas", "momentum", "dampening", "rho", "alpha", "lr_decay")
NOT_NEGATIVE = ("eps", "weight_decay", "lambd")


def check(section: dict[str, Any]) -> None:
    """Raise ConfigError naming the key of `optim` whose value makes no sense."""
    try:
        for key in BETWEEN:
            config.require(key, section.get(key), 0.0, 1.0)
        for key in NOT_NEGATIVE:
            config.require(key, section.get(key), 0.0)
    except ArgumentError as error:
        raise ConfigError(f"optim.{error}") from error
    rate = section.get("lr")
    if isinstance(rate, int | float) and rate <= 0:
        raise ConfigError(f"optim.lr={rate} trains nothing: it must be above 0, for example optim.lr=0.001")
