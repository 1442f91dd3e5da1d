"""The dev split during training: loss, decoded error, attention's health; shared out over the processes."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch.utils.tensorboard import SummaryWriter

from las.data import loader
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.data.sampler import Size, sequential
from las.decoding import evaluation
from las.decoding.evaluation import Search
from las.nn.attention import diagnostics
from las.nn.attention.diagnostics import Alignment
from las.nn.losses import LabelSmoothedCrossEntropy
from las.nn.model import ListenAttendSpell
from las.runtime import distributed
from las.scoring import error_rates
from las.storage.run_directory import Run
from las.training import plots


class Validation(NamedTuple):
    """What a validation found; the same in all processes."""

    loss: float
    """Cross-entropy per token without smoothing, true tokens fed."""
    error: float
    """Of what search writes without them: the corpus's metric, a fraction."""
    token_accuracy: float
    """Share of tokens that are the most probable ones, true tokens fed."""
    alignment: Alignment | None
    """None where nothing attends."""


class AnyValidator(Protocol):
    """What a training asks of what validates its model."""

    def __call__(self) -> Validation: ...

    def shown(self, found: Validation) -> str:
        """The error with its name, for the progress line."""

    def remark(self, found: Validation) -> str:
        """A line about what stands behind it."""

    def pictures(self, board: SummaryWriter, run: Run, step: int, histograms: bool, attention: bool) -> None:
        """What a validation leaves for the eye."""


class Validator:
    """Validates a model on the dev utterances.

    Args:
        model, loss, search, corpus: finished parts.
        dev: the utterances; symbols of their texts that the tokens lack count as errors.
        size: of batches.
        num_workers: threads that read audio ahead.
    """

    def __init__(
        self,
        model: ListenAttendSpell,
        loss: LabelSmoothedCrossEntropy,
        search: Search,
        corpus: Corpus,
        dev: Sequence[Utterance],
        size: Size,
        num_workers: int,
    ) -> None:
        self.model, self.loss, self.search = model, loss, search
        self.corpus, self.dev, self.size = corpus, dev, size
        spelled = loader.spellable(dev, corpus.tokens)
        self.loader = loader.Loader(spelled, corpus.tokens, corpus.sample_rate, num_workers)

    def __call__(self) -> Validation:
        plan = sequential(self.dev, self.size)[distributed.rank() :: distributed.world_size()]
        found = evaluation.evaluate(self.model, self.loss, self.search, self.loader.batches(plan))
        cross_entropy, correct, tokens = distributed.total(found.cross_entropy, found.correct, found.tokens)
        texts: dict[str, str] = {}
        alignments: list[Alignment] = []
        for part, looked in distributed.gather((evaluation.texts(found.decoded, self.corpus.tokens), found.alignments)):
            texts |= part
            alignments += [Alignment(*each) for each in looked]
        score = self.corpus.score(self.corpus.splits[1], list(self.dev), texts)
        tokens = max(tokens, 1.0)
        return Validation(cross_entropy / tokens, score.total.rate, correct / tokens, diagnostics.mean(alignments))

    def shown(self, found: Validation) -> str:
        """`PER 23.1 %`"""
        return f"{error_rates.SHORT_NAMES[self.corpus.metric]} {100 * found.error:.1f} %"

    def remark(self, found: Validation) -> str:
        """How attention looks."""
        assert found.alignment is not None
        return diagnostics.line(found.alignment)

    def pictures(self, board: SummaryWriter, run: Run, step: int, histograms: bool, attention: bool) -> None:
        """What a validation leaves for the eye: histograms of the parameters, the attention of one utterance."""
        if histograms:
            for name, parameter in self.model.named_parameters():
                board.add_histogram(name, parameter.detach().cpu(), step)
        if not (attention and self.dev and plots.available()):
            return
        first = min(range(len(self.dev)), key=lambda index: self.dev[index].id)
        ((_, batch),) = self.loader.batches([[first]])
        weights = evaluation.attention_weights(self.model, batch)
        symbols = [*(self.corpus.tokens.symbols[i] for i in batch.targets[0].tolist()), "(end)"]
        path = run.directory / "attention" / f"step{step:08d}.png"
        plots.attention_picture(weights, symbols, self.model.state_ms, path, f"{batch.ids[0]}, step {step}")
        board.add_image("attention", plots.pixels(path), step, dataformats="HWC")
