"""Tasks of trainings: where targets come from, what is counted before the first update, how a model is validated.

A task belongs to what a model predicts (`Trainable.predicts`): tokens of texts, or states of phones frame by frame.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from las.config.build import Config
from las.data.augmentation.augmentation import Augmentation
from las.data.corpora.base import Corpus
from las.data.loader import Targets
from las.data.manifest import Utterance
from las.decoding.base import Search, require_search
from las.hmm.tying import TiedStates
from las.nn.losses import TrainingLoss
from las.nn.trainable import Trainable
from las.runtime.errors import ConfigError
from las.training.data_preparation import Splits
from las.training.tasks import frame_labels, frames
from las.training.tasks.targets import TrainingTargets
from las.training.tasks.tokens import Validator, ValidatorProtocol


class Task(NamedTuple):
    """Parts of a training that depend on what its model predicts."""

    validator: Callable[..., ValidatorProtocol]
    sizes: Callable[[Corpus, Config], dict[str, int]]
    """Counts what a model of a corpus predicts, by the names of arguments of its constructor."""
    completed: Callable[[Corpus, Splits, Config], Config]
    """Returns a config with what the utterances by split tell about the size of a model."""
    targets: Callable[[Corpus, Any, Splits, Config], TrainingTargets]
    """Makes the targets for a corpus, a model, the utterances by split, and the config of the training."""
    trial_targets: Callable[[Corpus, Any], Targets]
    """Makes targets of the right size for a corpus and a model, for trials of memory and time."""
    fit: Callable[[Any, Corpus, Sequence[Utterance], Any], None]
    """Sets what a model counts on the training utterances and the source of their targets, before the first update."""
    check: Callable[[Augmentation], None]
    """Raises ConfigError for an augmentation that does not fit."""


def _nothing(*given: object) -> None:
    """Do nothing."""


def _num_tokens(corpus: Corpus, config: Config) -> dict[str, int]:
    return {"vocab_size": corpus.tokens.size}


def _tokens(corpus: Corpus, model: Trainable, splits: Splits, config: Config) -> TrainingTargets:
    return TrainingTargets(corpus.tokens)


def _num_phones(corpus: Corpus, config: Config) -> dict[str, int]:
    """Phones and the boundary; tied states, where the labels have them."""
    states = frame_labels.states_of(corpus, frame_labels.lexicon_of(corpus, config), config)
    tied = {"num_pdfs": states.num_pdfs} if isinstance(states, TiedStates) else {}
    return {"vocab_size": 1 + len(states.topology.phones), **tied}


TOKENS = Task(
    Validator,
    _num_tokens,
    lambda corpus, splits, config: config,
    _tokens,
    lambda corpus, model: corpus.tokens,
    _nothing,
    _nothing,
)
FRAMES = Task(
    frames.FrameValidator,
    _num_phones,
    frame_labels.completed,
    frame_labels.of_config,
    frame_labels.FirstLabels,
    frames.fit_counts,
    frames.check_augmentation,
)
TASKS = {"tokens": TOKENS, "frames": FRAMES}
"""Tasks by what a model predicts."""
LOSSES = {"tokens": "loss=cross_entropy", "frames": "loss=frame_focal"}
"""Cards of losses by what a model predicts, for messages."""


def of(kind: type) -> Task:
    """Return the task of a class of models. Raises ConfigError for a class that predicts something else."""
    predicts = getattr(kind, "predicts", None)
    if predicts not in TASKS:
        raise ConfigError(f"model: a {kind.__name__} predicts {predicts}: a model predicts {' or '.join(TASKS)}")
    return TASKS[predicts]


def require_same(model: Trainable, loss: TrainingLoss, searches: Sequence[Search]) -> None:
    """Raise ConfigError unless loss and searches are for what the model predicts."""
    if loss.predicts != model.predicts:
        raise ConfigError(
            f"loss: this model predicts {model.predicts}, and the loss is of {loss.predicts}: choose "
            f"{LOSSES[model.predicts]}"
        )
    for search in searches:
        require_search(search, model)
