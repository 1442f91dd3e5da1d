"""Sizes of a Listen-Attend-Spell and constants of its training, by which suite=peers makes models of other toolkits."""

import importlib
from typing import Any, NamedTuple

from las.config.build import Config
from las.runtime.errors import ConfigError
from las.runtime.torchaudio_compat import torchaudio

LOCATION_CHANNELS = 10
"""Filters of the attention's convolution."""
CLIPPING = 5.0
"""Largest norm of the gradient."""
SMOOTHING = 0.1
"""Probability of all other tokens in the smoothed targets."""
IMPROBABLE = -1e4
"""Logit of the end of a sentence that may not end."""


def imported(module: str, name: str) -> Any:
    """A class or function of another toolkit, of which some import torchaudio."""
    torchaudio()
    return getattr(importlib.import_module(module), name)


class Sizes(NamedTuple):
    """Sizes of a Listen-Attend-Spell."""

    sample_rate: int
    num_tokens: int
    num_mels: int
    hidden_size: int
    time_reduction: tuple[int, ...]
    """Frames joined after each layer of the listener."""
    listener_dropout: float
    embedding_size: int
    speller_size: int
    speller_layers: int
    speller_dropout: float
    key_size: int
    width: int

    @classmethod
    def of(cls, config: Config, sample_rate: int, num_tokens: int) -> "Sizes":
        """Read the sizes of the config of a training. Raises ConfigError for a model that its modules cannot form."""
        try:
            features, listener, speller = (config["model"][part] for part in ("features", "listener", "speller"))
            sizes = cls(
                sample_rate=sample_rate,
                num_tokens=num_tokens,
                num_mels=features["num_mels"],
                hidden_size=listener["hidden_size"],
                time_reduction=tuple(listener["time_reduction"]),
                listener_dropout=listener["dropout"],
                embedding_size=speller["embedding_size"],
                speller_size=speller["hidden_size"],
                speller_layers=speller["num_layers"],
                speller_dropout=speller["dropout"],
                key_size=speller["attention"]["key_size"],
                width=speller["attention"]["width"],
            )
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"suite=peers: model has no {error}, so no peer's can be made like it: try +experiment=an4_ctc"
            ) from error
        if listener["reduction"] != "concat" or listener["input_reduction"] != 1 or config["model"].get("ctc") is None:
            raise ConfigError(
                "suite=peers: the model must join frames (reduction=concat, input_reduction=1) and have CTC: "
                "try +experiment=an4_ctc"
            )
        return sizes
