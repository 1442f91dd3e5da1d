"""Labels of frames as targets of trainings: from times that a corpus knows, or from a folder, which `align` makes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from las.config.build import Config, check_value, option
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.hmm import aligner, labels, spoken, tying
from las.hmm.decision_tree import DEFAULT_GROWTH
from las.hmm.labels import NO_LABEL, FrameLabels, LabelKind, Labels
from las.hmm.lexicon import Lexicon
from las.hmm.segments import FrameTimes
from las.hmm.topology import NUM_STATES, StateNumbering, Topology
from las.hmm.tying import TiedStates
from las.nn.acoustic_model import AcousticModel
from las.nn.features import Features
from las.runtime import distributed
from las.runtime.errors import ConfigError, DataError, first_of
from las.training.data_preparation import Splits
from las.training.tasks.base import TrainingTargets

TIMES, ALIGN, TRIPHONES = "times", "align", "triphones"
"""Values of the key `labels` that name no folder."""
ALIGNER_FEATURES = ("features", "mfcc13_delta")
"""Option of the features of the Gaussian mixtures, that of configs/align.yaml."""
NUM_LISTED = 20


class LabelSource(ABC):
    """Base of sources of labels.

    Args:
        corpus: with its dictionary.
        lexicon: of its words; of phones where its texts are phones.
        model: its features tell which frames there are.
        states: of its phones, which the labels number.

    Raises ConfigError for a model of another number of states.
    """

    def __init__(self, corpus: Corpus, lexicon: Lexicon, model: AcousticModel, states: StateNumbering) -> None:
        self.corpus, self.lexicon, self.features = corpus, lexicon, model.features
        self.states, self.topology = states, states.topology
        if states.num_pdfs != model.num_pdfs:
            raise ConfigError(
                f"model.states_per_phone, model.num_pdfs: the model has {model.num_pdfs} states for "
                f"{len(self.topology.phones)} phones, and the labels have {states.num_pdfs}"
            )
        self.times = FrameTimes.of(self.features)

    @abstractmethod
    def targets(self, utterance: Utterance) -> Labels:
        """Labels of the frames of an utterance. Raises DataError for labels that do not belong to its audio."""

    def phones(self, utterance: Utterance) -> Sequence[str]:
        """Phones of an utterance: those of its text, or of its labels where the text is words."""
        if self.lexicon.silence is None:
            return self.corpus.tokens.split(utterance.text)
        own = self.targets(utterance)
        own = own[own != NO_LABEL]
        phones, states = (owners[own] for owners in self.states.owners())
        begins = np.flatnonzero((np.diff(phones, prepend=-1) != 0) | (np.diff(states, prepend=0) < 0))
        return [self.topology.phones[phone] for phone in phones[begins]]


class TimedLabels(LabelSource):
    """Labels from the times of phones that a corpus knows; its texts are phones, and `states` theirs."""

    def targets(self, utterance: Utterance) -> Labels:
        """Labels of an utterance. Raises DataError for one without times, or with times of other audio."""
        intervals = self.corpus.phone_times(utterance)
        if not intervals:
            raise DataError(
                f"utterance {utterance.id}: {self.corpus.name} has no times of its phones. Alignment finds them: "
                f"labels={ALIGN}"
            )
        where = f"utterance {utterance.id}"
        return labels.of_times(intervals, _num_frames(self.features, utterance), self.topology, self.times, where)


class StoredLabels(LabelSource):
    """Labels from a folder, fitted to the frames of the model; utterances without any are not trained on."""

    def __init__(
        self, corpus: Corpus, lexicon: Lexicon, model: AcousticModel, states: StateNumbering, stored: FrameLabels
    ) -> None:
        super().__init__(corpus, lexicon, model, states)
        self.stored = FrameLabels(stored.folder, LabelKind.of(states, self.times))

    def targets(self, utterance: Utterance) -> Labels:
        """Labels of an utterance, all NO_LABEL without a path. Raises DataError for labels of other audio."""
        num_frames = _num_frames(self.features, utterance)
        if utterance.id not in self.stored:
            return np.full(num_frames, NO_LABEL, np.int16)
        return labels.fitted(self.stored.of(utterance.id), num_frames, f"{self.stored.folder}: {utterance.id}")


class FirstLabels:
    """The first pdf for every frame of any utterance: what a trial of memory and time needs, and nothing to learn.

    Characters stand for phones, whose sequences are of about as many kinds.
    """

    def __init__(self, corpus: Corpus, model: AcousticModel) -> None:
        self.features = model.features
        self.states = Topology([str(number) for number in range(max(1, model.num_pdfs // NUM_STATES))])

    def phones(self, utterance: Utterance) -> list[str]:
        """Phones of an utterance, one for each character."""
        return [self.states.phones[ord(each) % len(self.states.phones)] for each in utterance.text]

    def targets(self, utterance: Utterance) -> Labels:
        """Labels of an utterance."""
        return np.zeros(_num_frames(self.features, utterance), np.int16)


def _num_frames(features: Features, utterance: Utterance) -> int:
    return int(features.num_frames(torch.tensor([round(utterance.duration_s * features.sample_rate)])))


def lexicon_of(corpus: Corpus, config: Config) -> Lexicon:
    """Return the dictionary of a training. Raises ConfigError where a corpus of words has none."""
    given = config.get("lexicon")  # configs of earlier releases have none
    check_value("lexicon", given, str | None)
    return spoken.dictionary(corpus, given)


def states_of(corpus: Corpus, lexicon: Lexicon, config: Config) -> StateNumbering:
    """Return the states that labels are of: those of phones, or of triphones where a folder of labels has their tying.

    For labels=triphones the folder is not known before the corpus is prepared: those of phones (`completed`).

    Raises ConfigError for tied states of a corpus of phones, StorageError or DataError for a tying of other phones.
    """
    topology, chosen = spoken.topology(corpus, lexicon), config.get("labels")
    check_value("labels", chosen, str | None)
    if chosen == TRIPHONES:
        _require_words(corpus, lexicon, f"labels={ALIGN}", chosen)
    if chosen in (None, TIMES, ALIGN, TRIPHONES) or not (path := Path(chosen) / tying.TYING).is_file():
        return topology
    _require_words(corpus, lexicon, "make the labels without triphones=true", chosen)
    return tying.read(path, topology)


def _require_words(corpus: Corpus, lexicon: Lexicon, advice: str, chosen: str) -> None:
    """Raise ConfigError for a corpus of phones."""
    if lexicon.silence is None:
        raise ConfigError(
            f"labels={chosen}: {corpus.name} has phones, and models of triphones need the words of a dictionary: "
            f"{advice}"
        )


def completed(corpus: Corpus, splits: Splits, config: Config) -> Config:
    """Return a config with the folder of its labels for labels=triphones; they are made first where there are none."""
    if config.get("labels") != TRIPHONES:
        return config
    stored = _aligned(corpus, splits, lexicon_of(corpus, config), config)
    return config | {"labels": str(stored.folder)}


def _aligned(corpus: Corpus, splits: Splits, lexicon: Lexicon, config: Config) -> FrameLabels:
    """Labels of the training and the development part by alignment, of triphones if the config asks for them."""
    growth = DEFAULT_GROWTH if config.get("labels") == TRIPHONES else None
    parts = {split: splits[split] for split in corpus.splits[:2]}
    with distributed.main_first():
        data_dir = Path(config["data_dir"])
        return aligner.corpus_labels(corpus, parts, lexicon, option(*ALIGNER_FEATURES), data_dir, growth)


def of_config(corpus: Corpus, model: AcousticModel, splits: Splits, config: Config) -> TrainingTargets:
    """Labels that a config asks for, of the training and the development part; made first where there are none.

    Raises ConfigError or DataError for labels that do not exist or are of another corpus, dictionary or frame shift.
    """
    chosen, lexicon = config.get("labels"), lexicon_of(corpus, config)
    check_value("labels", chosen, str | None)
    train, dev = (splits[split] for split in corpus.splits[:2])
    has_times = lexicon.silence is None and bool(train) and bool(corpus.phone_times(train[0]))
    if chosen == TIMES and lexicon.silence is not None:
        raise ConfigError(f"labels={TIMES}: {corpus.name} has words, without times of phones: labels={ALIGN}")
    if chosen == TIMES or (chosen is None and has_times):
        return TrainingTargets(TimedLabels(corpus, lexicon, model, spoken.topology(corpus, lexicon)), {"labels": TIMES})
    is_folder = chosen is not None and chosen not in (ALIGN, TRIPHONES)
    stored = FrameLabels(str(chosen)) if is_folder else _aligned(corpus, splits, lexicon, config)
    states = states_of(corpus, lexicon, config | {"labels": str(stored.folder)})
    source = StoredLabels(corpus, lexicon, model, states, stored)
    origin = {"labels": stored.content_hash}
    if lexicon.silence is not None:
        origin["lexicon"] = lexicon.content_hash
    missing, of_dev = ([each.id for each in part if each.id not in source.stored] for part in (train, dev))
    remarks = [f"labels of frames from {stored.folder}"]
    for names, fate in ((missing, "left out of training"), (of_dev, "decoded and scored but not in the dev loss")):
        if names:
            counted = f"{len(names)} utterance{'' if len(names) == 1 else 's'}"
            remarks.append(f"without labels of frames, {fate}: {counted}: {first_of(names, NUM_LISTED)}")
    if len(missing) == len(train):
        raise DataError(
            f"{stored.folder}: these are labels of another corpus: it has none of {train[0].id}, nor of any other "
            "training utterance"
        )
    by_words = None if lexicon.silence is None else lexicon
    tied = states if isinstance(states, TiedStates) else None
    return TrainingTargets(source, origin, by_words, tied, frozenset(missing), remarks)
