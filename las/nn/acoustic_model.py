"""The acoustic model of a hybrid HMM: from waveforms to probabilities of the states of phones, frame by frame.

Bourlard & Morgan 1994: p(x_t | s) goes with p(s | x_t) / p(s), whose numerator a network gives for every frame and
whose denominator, the prior, is counted on the labels that it is trained on.

It is trained on chunks, overlapping stretches of equal length (Zeineldeen et al. 2020). With chunks of 50 frames every
25, all frames but the first 25 are in two chunks, once with their past and once with their future cut off. An LSTM
begins each chunk with an empty state.

A listener that makes one row of r frames predicts the states of all r from it, each by its own rows of the output layer
(Vanhoucke, Devin & Heigold 2013), so that its layers compute r times fewer rows.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from las.config.build import require
from las.nn.factories import made
from las.nn.features import Features, Waveforms
from las.nn.listener import Listener
from las.nn.model import FeatureAugmentation, SpeechModel, TrainingBatch
from las.nn.normalisation import Lengths, mask_of
from las.nn.recomputation import AT_ONCE, recomputed
from las.runtime.errors import ArgumentError
from las.runtime.precision import products_as_now

NO_LABEL = -1
"""Target of a frame that is not trained on."""


class FrameSequences(NamedTuple):
    """Chunks with all their frames in order, for losses of whole sequences."""

    logits: Float[Tensor, "chunks frames pdfs"]
    labels: Int[Tensor, "chunks frames"]
    """NO_LABEL where there is none, and in padding."""
    num_frames: Lengths


class FramePredictions(NamedTuple):
    """Log-probabilities of the labels of labelled frames, one after the other, and the labels."""

    log_probs: Float[Tensor, " frames"]
    labels: Int[Tensor, " frames"]
    sequences: Callable[[], FrameSequences]
    """Computes the logits of all states in all frames."""


class FrameScores(NamedTuple):
    """Scores of a batch for a search: logarithms of posteriors, of priors, and of the bigram of phones."""

    log_posteriors: Float[Tensor, "batch frames pdfs"]
    log_priors: Float[Tensor, " pdfs"]
    bigram: Float[Tensor, "vocab vocab"]

    def emissions(self, acoustic_scale: float, prior_scale: float) -> Float[Tensor, "batch frames pdfs"]:
        """Return acoustic_scale * (log p(s | x) - prior_scale * log p(s)) of every frame x and state s."""
        return acoustic_scale * (self.log_posteriors - prior_scale * self.log_priors)


class FrameModel(SpeechModel):
    """Base class of models of frames: targets are states of phones, and `search_inputs` returns `FrameScores`."""

    log_priors: Tensor
    bigram: Tensor
    ctc = None

    @property
    def num_pdfs(self) -> int:
        """Number of states of all phones."""
        return len(self.log_priors)

    @property
    def state_ms(self) -> float:
        return self.features.frame_shift_ms

    def num_states(self, num_samples: Lengths) -> Lengths:
        return self.features.num_frames(num_samples)


class AcousticModel(FrameModel):
    """Features, a listener, and a linear layer to the states of phones of the frames of each row.

    Training cuts utterances into chunks, after the features; decoding scores them whole. The priors and the bigram of
    phones are counted on the training part before the first update (`set_counts`) and kept in checkpoints.

    Args:
        sample_rate: of the waveforms, in Hz.
        vocab_size: phones, and the boundary (id 0): phone number i has the states of pdfs 3 (i - 1) to 3 i - 1.
        features: makes `Features` from sample_rate.
        listener: makes a `Listener` from the size of a feature row.
        chunk_size: frames of a chunk.
        chunk_step: frames from the beginning of a chunk to that of the next one.
        states_per_phone: pdfs of each phone.
        num_pdfs: pdfs of imported labels whose states are tied; None: those of the phones.
    """

    def __init__(
        self,
        sample_rate: int,
        vocab_size: int,
        *,
        features: Callable[[int], Features],
        listener: Callable[[int], Listener],
        chunk_size: int = 50,
        chunk_step: int = 25,
        states_per_phone: int = 3,
        num_pdfs: int | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("chunk_size", chunk_size), ("chunk_step", chunk_step)):
            require(name, value, 1)
        require("states_per_phone", states_per_phone, 1)
        if chunk_step > chunk_size:
            raise ArgumentError(
                f"chunk_step={chunk_step} is more than chunk_size={chunk_size}: frames would be left out"
            )
        self.features = made("features", features, sample_rate)
        self.listener = made("listener", listener, self.features.size)
        self.chunk_size, self.chunk_step = chunk_size, chunk_step
        num_pdfs = states_per_phone * (vocab_size - 1) if num_pdfs is None else num_pdfs
        self.num_frames_of_row = math.prod(self.listener.reductions)
        self.output = nn.Linear(self.listener.output_size, self.num_frames_of_row * num_pdfs)
        self.register_buffer("log_priors", torch.zeros(num_pdfs))
        self.register_buffer("bigram", torch.zeros(vocab_size, vocab_size))

    def explain(self) -> str:
        return self.listener.explain()

    def num_targets(self, batch: TrainingBatch) -> int:
        """Count the labelled frames of the chunks of a batch."""
        lengths, labels = self._labels(batch)
        cut = chunks_of(lengths, self.chunk_size, self.chunk_step).cut(labels + 1, self.chunk_size)
        return int((cut > 0).sum())

    def forward_batch(self, batch: TrainingBatch, augment: FeatureAugmentation) -> FramePredictions:
        """Log-probabilities of the labels of all chunks, in fp32.

        Those of all states are computed for some rows at a time, and computed again in the backward pass.
        """
        features, _ = self.augmented(batch, augment)
        lengths, labels = self._labels(batch)
        chunks = chunks_of(lengths, self.chunk_size, self.chunk_step)
        encoded, num_rows = self.listener(chunks.cut(features, self.chunk_size), chunks.lengths)
        frames = encoded.shape[1] * self.num_frames_of_row
        chosen = chunks.cut(labels + 1, self.chunk_size)[:, :frames]  # 0: none, or outside
        of_rows = functional.pad(chosen, (0, frames - chosen.shape[1])).unflatten(1, (encoded.shape[1], -1))
        rows = (of_rows > 0).any(-1)
        at_once, labels = max(1, AT_ONCE // self.output.out_features), of_rows[rows] - 1
        parts = zip(encoded[rows].split(at_once), labels.split(at_once), strict=True)
        (log_probs,) = recomputed(self._log_probs, parts)
        known = labels != NO_LABEL
        products = products_as_now(encoded.device)

        def sequences() -> FrameSequences:
            with products():  # those of this pass, wherever the loss asks
                logits = self._frames(self.output(encoded)).flatten(1, 2)
            num_frames = torch.minimum(chunks.lengths, num_rows.cpu() * self.num_frames_of_row)
            return FrameSequences(logits, of_rows.flatten(1) - 1, num_frames)

        return FramePredictions(log_probs[known], labels[known], sequences)

    def _log_probs(
        self, encoded: Float[Tensor, "rows size"], labels: Int[Tensor, "rows frames"]
    ) -> tuple[Float[Tensor, "rows frames"]]:
        """Log-probabilities of the labels of the frames of rows; those of NO_LABEL mean nothing."""
        log_probs = self._frames(self.output(encoded)).float().log_softmax(-1)
        return (log_probs.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1),)

    def forward(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[Float[Tensor, "batch frames pdfs"], Lengths]:
        """Logits of whole utterances, and their numbers of frames."""
        features, num_frames = self.features(waveforms, num_samples)
        encoded, _ = self.listener(features, num_frames)
        return self._utterances(encoded, num_frames), num_frames

    def search_inputs(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[FrameScores, Lengths]:
        """Scores of whole utterances for a search, and their numbers of frames."""
        encoded, _ = self.encode(waveforms, num_samples)
        num_frames = self.features.num_frames(num_samples)
        logits = self._utterances(encoded, num_frames)
        scores = FrameScores(torch.log_softmax(logits, dim=-1), self.log_priors, self.bigram)
        return scores, num_frames.to(logits.device, non_blocking=True)

    def _frames(self, outputs: Float[Tensor, "*rows outputs"]) -> Float[Tensor, "*rows frames pdfs"]:
        return outputs.unflatten(-1, (self.num_frames_of_row, -1))

    def _utterances(
        self, encoded: Float[Tensor, "batch rows size"], num_frames: Lengths
    ) -> Float[Tensor, "batch frames pdfs"]:
        """Logits of the frames of whole utterances, without those that complete the last row."""
        return self._frames(self.output(encoded)).flatten(1, 2)[:, : int(num_frames.max())]

    @torch.no_grad()
    def set_counts(self, frames: Float[Tensor, " pdfs"], bigram: Float[Tensor, "vocab vocab"]) -> None:
        """Set the priors from the number of frames of each pdf, one added, and the log-probabilities of phone pairs."""
        self.log_priors.copy_(((frames + 1.0) / (frames + 1.0).sum()).log())
        self.bigram.copy_(bigram)

    def _labels(self, batch: TrainingBatch) -> tuple[Lengths, Int[Tensor, "batch frames"]]:
        """Numbers of frames, and their labels, NO_LABEL in padding."""
        lengths = self.features.num_frames(batch.num_samples)
        return lengths, stretched(batch.targets, batch.num_tokens, lengths)


def stretched(
    labels: Int[Tensor, "batch labels"], num_labels: Lengths, num_frames: Lengths
) -> Int[Tensor, "batch frames"]:
    """Labels of utterances whose speed has changed; NO_LABEL in padding.

    Frame t of n has the label that frame floor((t + 1/2) m / n) of m had: its own where n = m.
    """
    width = int(num_frames.max())
    doubled = 2 * torch.arange(width) + 1
    places = doubled * num_labels.unsqueeze(1) // (2 * num_frames.clamp(min=1).unsqueeze(1))
    known = mask_of(num_frames, width) & (num_labels > 0).unsqueeze(1)
    # Lengths lie on the CPU: what is made of them is copied without waiting.
    places, known = (each.to(labels.device, non_blocking=True) for each in (places, known))
    return labels.gather(1, places.clamp(max=labels.shape[1] - 1)).masked_fill(~known, NO_LABEL)


class Chunks(NamedTuple):
    """Places of the chunks of a batch."""

    rows: Int[Tensor, " chunks"]
    """Row of the batch of each chunk."""
    starts: Int[Tensor, " chunks"]
    lengths: Int[Tensor, " chunks"]

    def cut(self, sequences: Tensor, size: int) -> Tensor:
        """Cut sequences [batch, frames, ...] into chunks [chunks, size, ...], 0 behind the length of each."""
        offsets = torch.arange(size)
        places = (self.starts.unsqueeze(1) + offsets).clamp(max=sequences.shape[1] - 1)
        outside = offsets >= self.lengths.unsqueeze(1)
        rows, places, outside = (
            each.to(sequences.device, non_blocking=True) for each in (self.rows.unsqueeze(1), places, outside)
        )
        cut = sequences[rows, places]
        return cut.masked_fill(outside.view(*outside.shape, *[1] * (cut.dim() - 2)), 0)


def chunks_of(lengths: Lengths, size: int, step: int) -> Chunks:
    """Chunks of up to `size` frames that begin every `step` frames, as long as there are frames.

    >>> import torch
    >>> from las.nn.acoustic_model import chunks_of
    >>> chunks_of(torch.tensor([60, 10]), 50, 25)
    Chunks(rows=tensor([0, 0, 0, 1]), starts=tensor([ 0, 25, 50,  0]), lengths=tensor([50, 35, 10, 10]))
    """
    counts = torch.div(lengths + step - 1, step, rounding_mode="floor")
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), counts)
    firsts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    starts = step * (torch.arange(len(rows), device=lengths.device) - firsts)
    return Chunks(rows, starts, torch.minimum(lengths[rows] - starts, torch.full_like(starts, size)))
