"""Gaussian mixtures that words are found by, of what was aligned: `las align gaussians=FOLDER`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from las.config.build import Config, build, option
from las.data.corpora.base import Corpus
from las.data.loader import DECODED
from las.hmm import gmm
from las.hmm.aligner import Aligner, NetworkAligner, labelled_examples, recognition_schedule, say_round
from las.hmm.gmm import GaussianModel
from las.hmm.labels import Labels
from las.hmm.segments import FrameTimes
from las.hmm.spoken import Spoken
from las.hmm.tying import TiedStates
from las.nn.features import Features
from las.runtime import progress
from las.runtime.errors import ConfigError
from las.storage import atomic, checkpoint, run_directory
from las.training import data_preparation
from las.training.tasks import frames

SEARCHES = {True: "word_graph_gaussians", False: "phone_bigram"}
"""Cards of the searches of models of words, and of phones."""
GRIDS = {
    True: "'scales.acoustic_scale=[1.0,2.0,3.0]' scales.prior_scale=null 'scales.lm_scale=[10.0,20.0,30.0]' "
    "scales.insertion=null",
    False: "scales.prior_scale=null 'scales.lm_scale=[2.0,5.0,10.0]' 'scales.insertion=[0.0,10.0]'",
}
"""Scales to try first, for the line that says what comes next."""


def check(config: Config, corpus: Corpus, aligner: Aligner | NetworkAligner) -> None:
    """Check what can be checked before anything is trained.

    Raises ConfigError for a folder that holds a run, features of other frames than those that are aligned, and tied
    states of a corpus of phones, which no search knows; StorageError for a place that cannot be written.
    """
    folder = Path(config["gaussians"])
    if (folder / "checkpoints").exists():
        raise ConfigError(f"gaussians={folder} holds a run already: name another folder, or remove this one")
    if config["triphones"] and aligner.lexicon.silence is None:
        raise ConfigError("gaussians= with triphones=true needs the words of a dictionary: leave triphones out")
    own = FrameTimes.of(_features(config, corpus))
    if own != aligner.times:
        raise ConfigError(
            f"gaussian_features: its windows ({_windows(own)}) are not those that were aligned "
            f"({_windows(aligner.times)}): set frame_length_ms and frame_shift_ms of both alike"
        )
    atomic.require_folder(folder)


def train(
    config: Config,
    corpus: Corpus,
    spoken: Sequence[Spoken],
    labels: Mapping[str, Labels],
    aligner: Aligner | NetworkAligner,
) -> None:
    """Train mixtures on aligned utterances, and write them as the checkpoint of a run.

    Args:
        config: of the command, with the section of the corpus.
        corpus: built from that section.
        spoken: the training part.
        labels: the pdf of every frame of its utterances, by their ids.
        aligner: by which they were aligned.

    Raises StorageError where the checkpoint cannot be written.
    """
    states, lexicon = aligner.states, aligner.lexicon
    features = _features(config, corpus)
    data_preparation.fit_features(features, [each.utterance for each in spoken], corpus, DECODED)
    examples = labelled_examples(spoken, labels, features, lexicon, states)
    progress.say("Gaussian mixtures to find words by, from this alignment")
    counts = np.bincount(np.concatenate([each.first_path for each in examples]), minlength=states.num_pdfs)
    schedule = recognition_schedule(int(counts.sum()), states.num_pdfs)
    mixtures = gmm.train(examples, states.num_pdfs, schedule, say_round)
    section = {
        "_target_": "las.GaussianModel",
        "_partial_": True,
        "features": config["gaussian_features"],
        "num_components": mixtures.weights.shape[1],
    }
    tied = {"num_pdfs": states.num_pdfs} if isinstance(states, TiedStates) else {}
    model: GaussianModel = build(section, where="model")(
        corpus.sample_rate, vocab_size=1 + len(states.topology.phones), **tied
    )
    model.features.load_state_dict(features.state_dict())
    model.set_mixtures(mixtures, torch.from_numpy(counts).float())
    has_words = lexicon.silence is not None
    if not has_words:
        model.bigram.copy_(frames.phone_bigram([words for _, words in spoken], states.topology.phones, corpus.name))
    config = config | {"model": section, "search": option("search", SEARCHES[has_words])}
    _write(config, schedule.realignments, corpus, model, aligner)
    folder = config["gaussians"]
    progress.say(f"{model.explain()} written to {folder}")
    progress.say(f"next:  las tune checkpoint={folder} search={SEARCHES[has_words]} {GRIDS[has_words]}")


def _features(config: Config, corpus: Corpus) -> Features:
    section = config["gaussian_features"]
    if isinstance(section, str):
        raise ConfigError(f"gaussian_features={section}: choose the option so: features@gaussian_features={section}")
    features: Features = build(section, where="gaussian_features")(corpus.sample_rate)
    return features


def _windows(times: FrameTimes) -> str:
    return f"{1000 * times.length_s:g} ms every {1000 * times.shift_s:g} ms"


def _write(config: Config, step: int, corpus: Corpus, model: GaussianModel, aligner: Aligner | NetworkAligner) -> None:
    """Write the folder of a finished run: config, environment, checkpoint and result."""
    folder = Path(config["gaussians"])
    config = config | {"name": folder.name, "run_dir": str(folder)}
    lexicon, states = aligner.lexicon, aligner.states
    state: dict[str, Any] = {
        "step": step,
        "corpus": {
            "tokens": corpus.tokens.state(),
            "sample_rate": corpus.sample_rate,
            "metric": corpus.metric,
            **({} if lexicon.silence is None else {"lexicon": lexicon.state()}),
            **({"tying": states.state()} if isinstance(states, TiedStates) else {}),
        },
    }
    parameters = sum(parameter.numel() for parameter in model.parameters())
    saved = checkpoint.save(folder / "checkpoints", step, model.state_dict(), {}, state, config)
    for name in ("best", "latest"):
        checkpoint.point(folder / "checkpoints", name, saved)
    atomic.write_json(folder / "config.json", config)
    environment = run_directory.environment()
    atomic.write_json(folder / "environment.json", environment)
    result = {"name": folder.name, "corpus": corpus.name, "steps": step, "parameters": parameters, "splits": {}}
    atomic.write_json(folder / "result.json", result | {"commit": environment["commit"]})
