"""Validation during training: dev loss, decoded dev error, attention diagnostics; shared out over the processes."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torch.utils.tensorboard import SummaryWriter

from las.data import loader
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.data.sampler import BatchSize, sequential
from las.decoding import evaluation
from las.decoding.evaluation import Search
from las.nn.attention import diagnostics
from las.nn.attention.diagnostics import Alignment
from las.nn.trainable import SpeechModel
from las.runtime import distributed
from las.scoring import error_rates
from las.storage.run_directory import RunDirectory
from las.training import chance, plots
from las.training.chance import ChanceLevel


class Validation(NamedTuple):
    """Result of a validation; the same in all processes."""

    loss: float
    """Cross-entropy per token without smoothing, true tokens fed."""
    error: float
    """Error of the decoded hypotheses: the corpus's metric, a fraction."""
    token_accuracy: float
    """Share of tokens that are the most probable ones, a fraction, true tokens fed."""
    alignment: Alignment | None
    """Mean diagnostics of the attention; None for a model without attention."""


@runtime_checkable
class ValidatorProtocol(Protocol):
    """Interface of a validator: measures a model, and words and draws the result."""

    def __call__(self) -> Validation: ...

    def chance_level(self, train: Sequence[Utterance]) -> ChanceLevel:
        """The scores of a model that knows only the texts of the training utterances."""

    def describe_chance(self, level: ChanceLevel) -> str:
        """A line about the chance level."""

    def format_error(self, validation: Validation) -> str:
        """The error with its name, for the progress line."""

    def describe(self, validation: Validation) -> str:
        """A line about what stands behind the error."""

    def log_images(self, board: SummaryWriter, run: RunDirectory, step: int, histograms: bool, attention: bool) -> None:
        """Write histograms of the parameters and a picture of attention to TensorBoard, where asked for."""


class Validator:
    """Validates a model on the dev utterances.

    Args:
        model, search, corpus: finished parts.
        dev: the utterances; symbols of their texts that the tokens lack count as errors.
        targets: their source.
        size: of batches.
        num_workers: threads that read audio ahead.
    """

    def __init__(
        self,
        model: SpeechModel,
        search: Search,
        corpus: Corpus,
        dev: Sequence[Utterance],
        targets: loader.Targets,
        size: BatchSize,
        num_workers: int,
    ) -> None:
        self.model, self.search = model, search
        self.corpus, self.dev, self.size = corpus, dev, size
        spelled = loader.drop_unknown_symbols(dev, corpus.tokens)
        self.loader = loader.Loader(spelled, targets, corpus.sample_rate, num_workers)

    def __call__(self) -> Validation:
        plan = distributed.share(sequential(self.dev, self.size))
        evaluated = evaluation.evaluate(self.model, self.search, self.loader.batches(plan))
        cross_entropy, correct, tokens = distributed.total(evaluated.cross_entropy, evaluated.correct, evaluated.tokens)
        texts: dict[str, str] = {}
        alignments: list[Alignment] = []
        own = evaluation.texts(evaluated.decoded, self.corpus.tokens), evaluated.alignments
        for some_texts, some_alignments in distributed.gather(own):
            texts |= some_texts
            alignments += [Alignment(*each) for each in some_alignments]
        score = self.corpus.score(self.corpus.splits[1], list(self.dev), texts)
        tokens = max(tokens, 1.0)
        return Validation(
            cross_entropy / tokens,
            score.total.rate,
            correct / tokens,
            diagnostics.mean(alignments) if alignments else None,
        )

    def chance_level(self, train: Sequence[Utterance]) -> ChanceLevel:
        """The scores of a recogniser that does not hear."""
        return chance.chance_level(self.corpus, train, self.dev)

    def describe_chance(self, level: ChanceLevel) -> str:
        """A line about the chance level."""
        name = error_rates.SHORT_NAMES[self.corpus.metric]
        return (
            f"without hearing: {100 * level.token_accuracy:.1f} % of the dev tokens right by a bigram, dev {name} "
            f"{100 * level.error:.1f} % by writing {repr(level.sentence) if level.sentence else 'nothing'} each time"
        )

    def format_error(self, validation: Validation) -> str:
        """The error with its name: `PER 23.1 %`."""
        return f"{error_rates.SHORT_NAMES[self.corpus.metric]} {100 * validation.error:.1f} %"

    def describe(self, validation: Validation) -> str:
        """A line about the shape of attention, or about the tokens for a model without."""
        if validation.alignment is None:
            return f"{100 * validation.token_accuracy:.1f} % of the dev tokens are the most probable ones"
        return diagnostics.line(validation.alignment)

    def log_images(self, board: SummaryWriter, run: RunDirectory, step: int, histograms: bool, attention: bool) -> None:
        """Write histograms of the parameters and a picture of the attention of the first dev utterance by id."""
        if histograms:
            for name, parameter in self.model.named_parameters():
                board.add_histogram(name, parameter.detach().cpu(), step)
        if not (attention and self.dev and plots.available()):
            return
        first = min(range(len(self.dev)), key=lambda index: self.dev[index].id)
        ((_, batch),) = self.loader.batches([[first]])
        weights = evaluation.attention_weights(self.model, batch)
        if weights is None:
            return
        symbols = [*(self.corpus.tokens.symbols[i] for i in batch.targets[0].tolist()), "(end)"]
        path = run.directory / "attention" / f"step{step:08d}.png"
        plots.attention_picture(weights, symbols, self.model.state_ms, path, f"{batch.ids[0]}, step {step}")
        board.add_image("attention", plots.pixels(path), step, dataformats="HWC")
