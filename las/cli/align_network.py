"""Alignment by a trained acoustic model: `las align checkpoint=...`, of its own corpus or of other recordings."""

import re

from las.config.build import Config, build, check_value, require, shown
from las.data.corpora.base import Corpus
from las.decoding import transcriber
from las.decoding.transcriber import TrainedModel
from las.hmm import lexicon
from las.hmm.lexicon import Lexicon
from las.hmm.network_aligner import NetworkAligner
from las.hmm.topology import StateNumbering, Topology
from las.nn.acoustic_model import AcousticModel
from las.runtime import devices, progress
from las.runtime.errors import ConfigError


def read(config: Config, overrides: list[str]) -> TrainedModel:
    """Restore the model. Raises ConfigError for one that is no acoustic model, and for keys that do not go with it."""
    for override in overrides:
        if re.split(r"[.=@]", override.lstrip("+~"))[0] == "features":
            raise ConfigError(f"{override}: align uses the features of the checkpoint: leave this key out")
    for key in ("import", "triphones"):
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
    return network


def corpus_section(network: TrainedModel, config: Config, overrides: list[str]) -> Config:
    """The section `corpus` of the recordings: that of the command if it names a corpus, else that of the training.

    Raises ConfigError for other keys of a corpus that is not named, and for a bundle, which has none, without a corpus.
    """
    if any(override.startswith("corpus=") for override in overrides):
        section: Config = config["corpus"]
        return section
    if of_other := [override for override in overrides if override.lstrip("+~").startswith("corpus.")]:
        raise ConfigError(
            f"{of_other[0]}: other recordings than those of the training need a corpus=, e.g. corpus=files"
        )
    if "corpus" not in network.config:
        raise ConfigError(
            f"checkpoint={config['checkpoint']} is a bundle, which has no corpus: name a run folder, or recordings "
            "with corpus="
        )
    section = network.config["corpus"]
    return section


def corpus(network: TrainedModel, section: Config) -> Corpus:
    """The corpus of a config. Raises ConfigError for one of another sample rate than the model's."""
    built: Corpus = build(section, where="corpus")
    if built.sample_rate != network.sample_rate:
        raise ConfigError(
            f"{built.name} has {built.sample_rate} samples per second, and the model of the checkpoint hears "
            f"{network.sample_rate}: corpus.sample_rate={network.sample_rate}"
        )
    return built


def dictionary(network: TrainedModel, given: str | None) -> Lexicon:
    """The dictionary of the model, or what its phones can say of a file.

    Raises ConfigError for a file where texts are phones, DataError as `lexicon.read` does.
    """
    own = network.lexicon or lexicon.of_phones(network.tokens.symbols[1:])
    if given is None:
        return own
    if own.silence is None:
        raise ConfigError(f"lexicon={given}: the model of the checkpoint is one of texts that are phones: leave it out")
    read = lexicon.read(given, own.silence)
    sayable, unknown = read.of_phones(own.phones)
    if unknown:
        progress.say(
            f"{given}: {len(read.entries) - len(sayable.entries):,} of {len(read.entries):,} words are left out: the "
            f"model of the checkpoint has no states of the phones {', '.join(unknown)}"
        )
    return sayable


def states(network: TrainedModel) -> StateNumbering:
    """The states that the model predicts."""
    if network.tied is not None:
        return network.tied
    if network.lexicon is None or network.lexicon.silence is None:
        return Topology(network.tokens.symbols[1:])
    return Topology.of_lexicon(network.lexicon)


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
