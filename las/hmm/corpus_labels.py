"""Labels of the frames of a corpus by forced alignment from a flat start, made once and kept for the next training."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from las.config.build import Config, build
from las.data import manifest
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.hmm import labels, spoken, tying
from las.hmm.aligner import Aligner, Alignment
from las.hmm.decision_tree import Growth
from las.hmm.frame_times import FrameTimes
from las.hmm.gmm_training import DEFAULT_SCHEDULE
from las.hmm.labels import INDEX, FrameLabels, LabelKind
from las.hmm.lexicon import Lexicon
from las.hmm.topology import StateNumbering
from las.hmm.tying import TiedStates
from las.runtime import progress

# Part of the name of a folder: raise it when the same corpus and dictionary begin to give other labels.
_FORMAT = 1


def aligned(
    corpus: Corpus,
    splits: Mapping[str, Sequence[Utterance]],
    dictionary: Lexicon,
    features: Config,
    data_dir: Path,
    growth: Growth | None = None,
) -> FrameLabels:
    """Labels of some splits: read from `<data_dir>/labels/<corpus>-<hash of all they depend on>`, or made first.

    The models are trained on the first of the splits. An utterance that no path fits has no labels, and is named.

    Args:
        corpus: tells the words and, for a corpus of phones, their numbering.
        splits: utterances by split.
        dictionary: of all their words.
        features: section of a config, of the Gaussian mixtures.
        data_dir: folder of prepared data.
        growth: limits for the tying of triphones, whose states the labels have then; None for those of phones.

    Raises DataError for words that the dictionary lacks and for audio that cannot be read.
    """
    everything = {split: spoken.spoken(corpus, utterances) for split, utterances in splits.items()}
    spoken.require_known(
        everything,
        dictionary,
        "leave these utterances out: las align with partial=true labels=FOLDER, then las train with labels=FOLDER",
    )
    topology = spoken.topology(corpus, dictionary)
    described = {
        "format": _FORMAT,
        "utterances": {split: manifest.content_hash(utterances) for split, utterances in splits.items()},
        "lexicon": dictionary.content_hash,
        "topology": [topology.content_hash, *topology.speech, *topology.pause],
        "features": features,
        "schedule": DEFAULT_SCHEDULE,
        **({} if growth is None else {"tying": growth}),
    }
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    folder = data_dir / "labels" / f"{corpus.name}-{digest[:12]}"
    if (folder / INDEX).is_file():
        return FrameLabels(folder)
    total = sum(map(len, everything.values()))
    progress.say(f"labels of frames: {corpus.name} has none yet, so {total:,} utterances are aligned (las align)")
    aligner = Aligner(build(features, where="features")(corpus.sample_rate), dictionary, topology, growth=growth)
    aligner.train(next(iter(everything.values())))
    found = aligner.align([each for listed in everything.values() for each in listed])
    found.say_without_path()
    stored = write(folder, found, aligner.states, aligner.times)
    progress.say(f"labels of {stored.counts().sum():,} frames written to {folder}, for other seeds and models too")
    return stored


def write(folder: str | Path, found: Alignment, states: StateNumbering, times: FrameTimes) -> FrameLabels:
    """Write the labels of aligned utterances, and before them the tying of their states where these are tied."""
    if isinstance(states, TiedStates):
        states.write(Path(folder) / tying.TYING)
    return labels.write(
        folder, ((each.id, found.labels[each.id]) for each in found.aligned), LabelKind.of(states, times)
    )
