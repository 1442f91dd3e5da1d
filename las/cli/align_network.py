"""Alignment by a trained acoustic model: `las align checkpoint=...`."""

import re

from las.decoding import transcriber
from las.decoding.transcriber import TrainedModel
from las.hmm.lexicon import Lexicon
from las.hmm.network_aligner import NetworkAligner
from las.hmm.topology import StateNumbering
from las.nn.acoustic_model import AcousticModel
from las.runtime import devices
from las.runtime.config import Config, check_value, require, shown
from las.runtime.errors import ConfigError


def read(config: Config, overrides: list[str]) -> TrainedModel:
    """Restore the model. Raises ConfigError for one that is no acoustic model, and for keys that do not go with it."""
    for override in overrides:
        section = re.split(r"[.=@]", override.lstrip("+~"))[0]
        if section in ("corpus", "features"):
            raise ConfigError(f"{override}: align uses the {section} of the checkpoint: leave this key out")
    for key in ("import", "lexicon", "triphones"):
        if config[key]:
            raise ConfigError(
                f"{key}={shown(config[key])} does not go with checkpoint=, whose model aligns by its own states"
            )
    check_value("strict", config["strict"], bool)
    for key in ("acoustic_scale", "prior_scale"):
        check_value(key, config[key], float)
        require(key, config[key], 0.0)
    network = transcriber.restore(config["checkpoint"], config["strict"])
    if not isinstance(network.model, AcousticModel):
        raise ConfigError(
            f"checkpoint={config['checkpoint']} has no acoustic model, whose states could be aligned. To train one: "
            "las train model=hybrid_small"
        )
    if "corpus" not in network.config:
        raise ConfigError(f"checkpoint={config['checkpoint']} is a bundle, which has no corpus: name a run folder")
    return network


def aligner(network: TrainedModel, lexicon: Lexicon, states: StateNumbering, config: Config) -> NetworkAligner:
    """The aligner of a restored model. Raises ConfigError for imported tied states, whose phones are not known."""
    model = network.model
    assert isinstance(model, AcousticModel)
    if model.num_pdfs != states.num_pdfs:
        raise ConfigError(
            f"checkpoint={config['checkpoint']} has {model.num_pdfs} states, and the phones of the dictionary have "
            f"{states.num_pdfs}: tied states that were imported are not to be aligned"
        )
    model = model.eval().to(devices.pick(config["trainer"]["device"]))
    return NetworkAligner(model, lexicon, states, config["acoustic_scale"], config["prior_scale"])
