"""Training of acoustic models: priors and bigram of phones, validation by frames."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from las.config.build import Config
from las.data.augmentation.augmentation import Augmentation
from las.data.corpora.base import Corpus
from las.data.loader import Batch
from las.data.manifest import Utterance
from las.data.tokenizers import Tokenizer
from las.hmm.labels import NO_LABEL
from las.hmm.tying import TiedStates
from las.lm import kneser_ney, ngram
from las.nn.acoustic_model import AcousticModel, FramePredictions, FrameSequences
from las.nn.losses import FrameLoss, TrainingLoss
from las.nn.normalisation import mask_of
from las.runtime.errors import ConfigError
from las.training.chance import ChanceLevel
from las.training.data_preparation import Splits
from las.training.tasks import frame_labels
from las.training.tasks.base import Measured, Task, TrainingTargets, Validator
from las.training.tasks.frame_labels import FirstLabels, LabelSource


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


def count_frames(utterances: Sequence[Utterance], source: LabelSource, num_pdfs: int) -> NDArray[np.float64]:
    """Count the frames of each state in the labels of utterances, [pdfs]."""
    frames = np.zeros(num_pdfs)
    for utterance in utterances:
        own = source.targets(utterance)
        frames += np.bincount(own[own != NO_LABEL], minlength=num_pdfs)
    return frames


class FrameValidator(Validator):
    """Validates an acoustic model: cross-entropy and accuracy of frames, errors of the decoded phones or words."""

    counted = "frames"

    def measure_batch(self, batch: Batch) -> Measured:
        scores, num_frames = self.model.search_inputs(batch.waveforms, batch.num_samples)
        texts = self.texts(batch, scores, num_frames)
        width = min(scores.log_posteriors.shape[1], batch.targets.shape[1])
        targets, rows = batch.targets[:, :width], scores.log_posteriors[:, :width]
        lengths = torch.minimum(num_frames.cpu(), batch.num_tokens)
        labelled = mask_of(lengths, width, rows.device)
        known = labelled & (targets != NO_LABEL)
        chosen, expected = rows[known], targets[known]
        log_probs = chosen.gather(-1, expected.unsqueeze(-1)).squeeze(-1)
        predictions = FramePredictions(
            log_probs, expected, lambda: FrameSequences(rows, targets.masked_fill(~labelled, NO_LABEL), lengths)
        )
        objective = self.objective(predictions, batch)
        right = int((chosen.argmax(-1) == expected).sum())
        return Measured(float(-log_probs.sum()), right, len(expected), objective, texts)

    def chance_level(self, train: Sequence[Utterance]) -> ChanceLevel:
        """Compute the accuracy of the most frequent state of the dev frames, and the error of one sentence for all."""
        counts = count_frames(self.dev, self.targets, self.model.num_pdfs)
        accuracy = float(counts.max() / max(counts.sum(), 1.0))
        return super().chance_level(train)._replace(token_accuracy=accuracy)

    def describe_chance(self, level: ChanceLevel) -> str:
        return (
            f"chance level: {100 * level.token_accuracy:.1f} % of the dev frames right by their most frequent state, "
            f"dev {self.format_error(level.error)} by writing the same each time"
        )


class FrameTask(Task):
    """Targets are states of phones, frame by frame."""

    validator = FrameValidator

    def sizes(self, corpus: Corpus, config: Config) -> dict[str, int]:
        """Count the phones and the boundary; tied states, where the labels have them."""
        states = frame_labels.states_of(corpus, frame_labels.lexicon_of(corpus, config), config)
        tied = {"num_pdfs": states.num_pdfs} if isinstance(states, TiedStates) else {}
        return {"vocab_size": 1 + len(states.topology.phones), **tied}

    def check(self, augment: Augmentation, config: Config) -> None:
        """Raise ConfigError for time warping, after which labels belong to other frames; a new speed moves both."""
        if augment.max_warp_frames:
            raise ConfigError(
                "augment.max_warp_frames: time warping moves frames away from their labels: ++augment.max_warp_frames=0"
            )

    def completed(self, corpus: Corpus, splits: Splits, config: Config) -> Config:
        return frame_labels.completed(corpus, splits, config)

    def targets(self, corpus: Corpus, model: AcousticModel, splits: Splits, config: Config) -> TrainingTargets:
        return frame_labels.of_config(corpus, model, splits, config)

    def trial_targets(self, corpus: Corpus, model: AcousticModel) -> FirstLabels:
        return FirstLabels(corpus, model)

    def bind_loss(self, loss: TrainingLoss, train: Sequence[Utterance], source: LabelSource | FirstLabels) -> None:
        if isinstance(loss, FrameLoss):
            loss.bind_phones((source.phones(each) for each in train), source.states)

    def fit(self, model: AcousticModel, corpus: Corpus, train: Sequence[Utterance], source: LabelSource) -> None:
        """Count the frames of each state, for the priors, and estimate the bigram of phones on the training texts."""
        frames = count_frames(train, source, model.num_pdfs)
        bigram = phone_bigram([source.phones(each) for each in train], source.topology.phones, corpus.name)
        model.set_counts(torch.from_numpy(frames).float(), bigram)
