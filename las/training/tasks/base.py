"""Interface of a kind of targets: its `Task`, its `TrainingTargets` and its `Validator`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from las.config.build import Config
from las.data.augmentation.augmentation import Augmentation
from las.data.corpora.base import Corpus
from las.data.loader import Batch, BatchSize, Loader, Targets, drop_unknown_symbols, sequential
from las.data.manifest import Utterance
from las.data.quality import QualityLimits
from las.data.tokenizers import Tokenizer
from las.decoding.base import Search, prepare, tokens_of
from las.hmm.lexicon import Lexicon
from las.hmm.tying import TiedStates
from las.nn.attention import diagnostics
from las.nn.attention.diagnostics import Alignment
from las.nn.losses import TrainingLoss
from las.runtime import distributed
from las.runtime.signals import Signals
from las.scoring import error_rates
from las.storage.run_directory import RunDirectory
from las.training import chance, data_preparation
from las.training.chance import ChanceLevel
from las.training.data_preparation import PreparedCorpus, Splits


class TrainingTargets(NamedTuple):
    """Source of targets with what belongs to it.

    >>> import las
    >>> from las.training.tasks.base import TrainingTargets
    >>> TrainingTargets(las.Characters("ab")).state
    {}
    """

    source: Targets
    origin: Mapping[str, str] = {}
    """Properties that are compared when a training goes on (`las.storage.run_directory.KINDS`)."""
    lexicon: Lexicon | None = None
    """The dictionary whose phones the model predicts; None for a model of the corpus's own tokens."""
    tied: TiedStates | None = None
    """Tied states of triphones that the model predicts; None for those of phones."""
    missing: frozenset[str] = frozenset()
    """Ids of training utterances without targets."""
    remarks: Sequence[str] = ()
    """Lines for the log."""

    @property
    def state(self) -> dict[str, Any]:
        """Parts that a recogniser needs besides tokens, as plain JSON values for checkpoints."""
        parts = {"lexicon": self.lexicon, "tying": self.tied}
        return {name: part.state() for name, part in parts.items() if part is not None}


class Validation(NamedTuple):
    """Result of a validation; the same in all processes."""

    loss: float
    """Cross-entropy per token (or frame, of a hybrid model) without smoothing, true tokens fed."""
    error: float
    """Error of the decoded hypotheses: the validator's metric, a fraction; the perplexity of a language model."""
    token_accuracy: float
    """Share of tokens (frames) that are the most probable ones, a fraction, true tokens fed."""
    alignment: Alignment | None
    """Mean diagnostics of the attention; None for a model without attention."""
    objective: float
    """The loss that training minimises, per token or frame; the cross-entropy where the schedule does not follow it."""


class Measured(NamedTuple):
    """Sums over the tokens or frames of some dev utterances, and the decoded texts by id."""

    cross_entropy: float
    correct: float
    total: float
    objective: float = 0.0
    texts: Mapping[str, str] = {}
    alignments: Sequence[Alignment] = ()


class Validator:
    """Validates a model on the dev utterances, which the processes share.

    Args:
        model, search, corpus: finished parts.
        dev: the utterances; symbols of their texts that the tokens lack count as errors.
        targets: their source.
        size: of batches.
        num_workers: threads that read audio ahead.
        loss: that training minimises, if the schedule follows it.
    """

    error_name = "dev error"
    counted = "tokens"
    """Units that `token_accuracy` counts."""

    def __init__(
        self,
        model: Any,
        search: Search,
        corpus: Corpus,
        dev: Sequence[Utterance],
        targets: Any,
        size: BatchSize,
        num_workers: int,
        loss: TrainingLoss | None = None,
    ) -> None:
        self.model, self.search, self.targets, self.loss = model, search, targets, loss
        self.corpus, self.dev, self.size = corpus, dev, size
        self.loader = Loader(drop_unknown_symbols(dev, corpus.tokens), targets, corpus.sample_rate, num_workers)
        self.tokens = tokens_of(search, corpus.tokens)

    @property
    def metric(self) -> str:
        """Name of the error."""
        return self.corpus.metric

    def __call__(self, stop: Signals) -> Validation | None:
        """Measure the model; None, in all processes, where a signal to one of them broke it off."""
        own = stop.unless_received(self.measure)
        if any(distributed.any_of(own is None)) or own is None:
            return None
        cross_entropy, correct, count, objective = distributed.total(*own[:4])
        texts: dict[str, str] = {}
        alignments: list[Alignment] = []
        for some_texts, some_alignments in distributed.gather((own.texts, own.alignments)):
            texts |= some_texts
            alignments += [Alignment(*each) for each in some_alignments]
        count = max(count, 1.0)
        loss, alignment = cross_entropy / count, diagnostics.mean(alignments) if alignments else None
        objective = objective / count if self.loss else loss
        return Validation(loss, self.error(loss, texts), correct / count, alignment, objective)

    @torch.no_grad()
    def measure(self) -> Measured:
        """Measure the model on this process's share of the utterances."""
        self.model.eval()
        sums = torch.zeros(4, dtype=torch.float64)
        texts: dict[str, str] = {}
        alignments: list[Alignment] = []
        for _, batch in self.loader.batches(distributed.share(sequential(self.dev, self.size))):
            measured = self.measure_batch(batch.to(self.model.device))
            sums += torch.tensor(measured[:4], dtype=torch.float64)
            texts |= measured.texts
            alignments += measured.alignments
        cross_entropy, correct, total, objective = sums.tolist()
        return Measured(cross_entropy, correct, total, objective, texts, alignments)

    def measure_batch(self, batch: Batch) -> Measured:
        """Measure the model on a batch, which is on its device."""
        raise TypeError(f"{type(self).__name__} must define measure_batch")

    def objective(self, output: Any, batch: Batch) -> float:
        """Compute the loss that training minimises from the model's output for a batch; 0 where none is followed."""
        return float(self.loss.objective(self.model, output, batch)) if self.loss else 0.0

    def texts(self, batch: Batch, inputs: Any, num_states: Tensor) -> dict[str, str]:
        """Decode a batch from the inputs of its search; returns the texts of the best hypotheses by id."""
        nbest_lists = self.search(inputs, num_states)
        return {name: self.tokens.decode(nbest[0].tokens) for name, nbest in zip(batch.ids, nbest_lists, strict=True)}

    def error(self, loss: float, texts: Mapping[str, str]) -> float:
        """Compute the error from the loss and the decoded texts by id."""
        return self.corpus.score(self.corpus.splits[1], list(self.dev), texts).total.rate

    def chance_level(self, train: Sequence[Utterance]) -> ChanceLevel:
        """Compute the scores of a model that knows only the texts of the training utterances."""
        return chance.chance_level(self.corpus, train, self.dev)

    def describe_chance(self, level: ChanceLevel) -> str:
        """Describe the chance level in a line."""
        raise TypeError(f"{type(self).__name__} must define describe_chance")

    def format_error(self, error: float) -> str:
        """Format an error with its name: `PER 23.1 %`."""
        return f"{error_rates.SHORT_NAMES[self.metric]} {100 * error:.1f} %"

    def describe(self, validation: Validation) -> str:
        """Describe what stands behind the error in a line: the shape of attention, or the accuracy without any."""
        if validation.alignment is not None:
            return diagnostics.line(validation.alignment)
        return f"{100 * validation.token_accuracy:.1f} % of the dev {self.counted} are the most probable ones"

    def log_images(self, board: SummaryWriter, run: RunDirectory, step: int, histograms: bool, attention: bool) -> None:
        """Write histograms of the parameters and a picture of attention to TensorBoard, where asked for."""
        if histograms:
            for name, parameter in self.model.named_parameters():
                board.add_histogram(name, parameter.detach().cpu(), step)
        if attention:
            self.log_attention(board, run, step)

    def log_attention(self, board: SummaryWriter, run: RunDirectory, step: int) -> None:
        """Write a picture of the attention, if the model has any."""


class Task:
    """A kind of targets: where they come from, what is counted before the first update, how a model is validated."""

    validator: type[Validator]

    def sizes(self, corpus: Corpus, config: Config) -> dict[str, int]:
        """Count what a model of a corpus predicts, by the names of arguments of its constructor."""
        return {"vocab_size": corpus.tokens.size}

    def check(self, augment: Augmentation, config: Config) -> None:
        """Raise ConfigError for an augmentation, or a key of the config, that does not fit."""

    def prepare(self, corpus: Corpus, config: Config, limits: QualityLimits) -> PreparedCorpus:
        """Prepare the corpus. Raises DataError for one that cannot be used."""
        return data_preparation.prepare(corpus, Path(config["data_dir"]), limits)

    def completed(self, corpus: Corpus, splits: Splits, config: Config) -> Config:
        """Return the config with what the utterances by split tell about the size of the model."""
        return config

    def usable(self, data: PreparedCorpus, model: Any, run: Path, max_bad_fraction: float) -> list[Utterance]:
        """Return the training utterances that can be used; the others are listed in the folder `run`.

        Raises DataError when too many cannot be used, or dev and test cannot be decoded.
        """
        train = data_preparation.filter_training_utterances(data, model, run, max_bad_fraction)
        for split in data.corpus.splits[1:]:
            data_preparation.require_decodable(data, split, run / "log.txt")
        return train

    def targets(self, corpus: Corpus, model: Any, splits: Splits, config: Config) -> TrainingTargets:
        """Make the targets of the training and dev utterances."""
        return TrainingTargets(corpus.tokens)

    def bind(
        self, searches: Sequence[Search], model: Any, tokens: Tokenizer, targets: TrainingTargets, cache: Path | None
    ) -> None:
        """Prepare searches for the model; `cache` is a folder where graphs are kept.

        Raises ConfigError or DataError for a search that does not fit the model or its tokens.
        """
        for search in searches:
            prepare(search, tokens, targets.lexicon, targets.tied, model.ctc is not None, cache)

    def trial_targets(self, corpus: Corpus, model: Any) -> Targets:
        """Make targets of the right size, for trials of memory and time."""
        return corpus.tokens

    def bind_loss(self, loss: TrainingLoss, train: Sequence[Utterance], source: Any) -> None:
        """Tell a loss what it must know of the training utterances and their targets."""

    def fit(self, model: Any, corpus: Corpus, train: Sequence[Utterance], source: Any) -> None:
        """Set what a model counts on the training utterances and their targets, before the first update."""
