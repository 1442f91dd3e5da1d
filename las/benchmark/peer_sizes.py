"""Sizes of a Listen-Attend-Spell, by which suite=peers makes the models of other toolkits."""

from typing import NamedTuple

from las.runtime.config import Config
from las.runtime.errors import ConfigError


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
