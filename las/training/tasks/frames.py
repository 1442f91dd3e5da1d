"""Training of acoustic models: priors and bigram of phones, validation by frames."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from las.data import loader
from las.data.augmentation.augmentation import Augmentation
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.data.sampler import BatchSize, sequential
from las.data.tokenizers import Tokenizer
from las.decoding.base import Search
from las.decoding.hybrid.prepared_search import tokens_of
from las.hmm.labels import NO_LABEL
from las.lm import kneser_ney, ngram
from las.nn.acoustic_model import AcousticModel
from las.nn.masking import mask_of
from las.runtime import distributed
from las.runtime.errors import ConfigError
from las.scoring import error_rates
from las.storage.run_directory import RunDirectory
from las.training import chance
from las.training.chance import ChanceLevel
from las.training.tasks.frame_labels import LabelSource
from las.training.tasks.tokens import Validation


def check_augmentation(augment: Augmentation) -> None:
    """Raise ConfigError for time warping, after which labels belong to other frames; a change of speed moves both."""
    if augment.max_warp_frames:
        raise ConfigError(
            "augment.max_warp_frames: time warping moves frames away from their labels: ++augment.max_warp_frames=0"
        )


def fit_counts(model: AcousticModel, corpus: Corpus, train: Sequence[Utterance], source: LabelSource) -> None:
    """Count the frames of each state, for the priors, and estimate the bigram of phones on the training utterances."""
    frames = np.zeros(model.num_pdfs)
    for utterance in train:
        own = source.targets(utterance)
        frames += np.bincount(own[own != NO_LABEL], minlength=model.num_pdfs)
    sentences = [source.phones(utterance) for utterance in train]
    bigram = phone_bigram(sentences, source.topology.phones, corpus.name)
    model.set_counts(torch.from_numpy(frames).float(), bigram)


def phone_bigram(
    sentences: Sequence[Sequence[str]], phones: Sequence[str], corpus: str
) -> Float[Tensor, "vocab vocab"]:
    """Log-probabilities of the phone of a column after that of a row, by sentences of a corpus; 0 is the boundary."""
    tokens = Tokenizer(phones)
    estimate = kneser_ney.estimate(sentences, 2, tokens.symbols[1:], name=f"the phones of {corpus}")
    bigram = ngram.of_tokens(estimate.model, tokens)
    after = bigram.advance(bigram.start(tokens.size), torch.arange(tokens.size).unsqueeze(1))
    rows = bigram.score(after)[:, 0]
    rows[0] = bigram.score(bigram.start(1))[0, 0]
    return rows.float()


class FrameValidator:
    """Validates an acoustic model on the dev utterances: cross-entropy and accuracy of frames, decoded error.

    The arguments are those of `validation.Validator`; the search is over phones, or prepared for words.
    """

    def __init__(
        self,
        model: AcousticModel,
        search: Search,
        corpus: Corpus,
        dev: Sequence[Utterance],
        targets: LabelSource,
        size: BatchSize,
        num_workers: int,
    ) -> None:
        self.model, self.search, self.corpus, self.dev, self.size = model, search, corpus, dev, size
        self.source, self.tokens = targets, tokens_of(search, corpus.tokens)
        self.loader = loader.Loader(dev, targets, corpus.sample_rate, num_workers)

    @torch.no_grad()
    def __call__(self) -> Validation:
        self.model.eval()
        sums = torch.zeros(3, dtype=torch.float64)
        texts: dict[str, str] = {}
        plan = distributed.share(sequential(self.dev, self.size))
        for _, batch in self.loader.batches(plan):
            batch = batch.to(self.model.device)
            scores, num_frames = self.model.decoder(batch.waveforms, batch.num_samples)
            for name, found in zip(batch.ids, self.search(scores, num_frames), strict=True):
                texts[name] = self.tokens.decode(found[0].tokens)
            sums += self._frames(scores.log_posteriors, num_frames, batch)
        cross_entropy, correct, frames = distributed.total(*sums.tolist())
        gathered = {name: text for some in distributed.gather(texts) for name, text in some.items()}
        score = self.corpus.score(self.corpus.splits[1], list(self.dev), gathered)
        frames = max(frames, 1.0)
        return Validation(cross_entropy / frames, score.total.rate, correct / frames, None)

    def _frames(self, log_posteriors: torch.Tensor, num_frames: torch.Tensor, batch: loader.Batch) -> torch.Tensor:
        """Cross-entropy, right ones and number of the labelled frames of a batch."""
        width = min(log_posteriors.shape[1], batch.targets.shape[1])
        targets, rows = batch.targets[:, :width], log_posteriors[:, :width]
        known = mask_of(torch.minimum(num_frames.cpu(), batch.num_tokens), width, rows.device) & (targets != NO_LABEL)
        chosen, expected = rows[known], targets[known]
        cross_entropy = -chosen.gather(-1, expected.unsqueeze(-1)).sum()
        return torch.tensor([float(cross_entropy), float((chosen.argmax(-1) == expected).sum()), len(expected)])

    def chance_level(self, train: Sequence[Utterance]) -> ChanceLevel:
        """The accuracy of the most frequent state of the dev frames, and the error of a recogniser that is deaf."""
        counts = np.zeros(self.model.num_pdfs)
        for utterance in self.dev:
            own = self.source.targets(utterance)
            counts += np.bincount(own[own != NO_LABEL], minlength=len(counts))
        deaf = chance.chance_level(self.corpus, train, self.dev)
        return deaf._replace(token_accuracy=float(counts.max() / max(counts.sum(), 1.0)))

    def describe_chance(self, level: ChanceLevel) -> str:
        """A line about the chance level."""
        name = error_rates.SHORT_NAMES[self.corpus.metric]
        return (
            f"without hearing: {100 * level.token_accuracy:.1f} % of the dev frames right by their most frequent "
            f"state, dev {name} {100 * level.error:.1f} % by writing the same each time"
        )

    def format_error(self, validation: Validation) -> str:
        """The error with its name: `PER 3.1 %`."""
        return f"{error_rates.SHORT_NAMES[self.corpus.metric]} {100 * validation.error:.1f} %"

    def describe(self, validation: Validation) -> str:
        """The accuracy of frames in words."""
        return (
            f"{100 * validation.token_accuracy:.1f} % of the dev frames have their own state as the most probable one"
        )

    def log_images(self, board: SummaryWriter, run: RunDirectory, step: int, histograms: bool, attention: bool) -> None:
        """Write histograms of the parameters; there is no attention."""
        if histograms:
            for name, parameter in self.model.named_parameters():
                board.add_histogram(name, parameter.detach().cpu(), step)
