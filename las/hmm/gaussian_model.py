"""Gaussian mixtures of the states of phones as a model that a search hears by: likelihoods in the place of a network.

    p(s | x) = p(x | s) p(s) / sum_r p(x | r) p(r)

with the prior p(s) of a state by the frames that it was trained on. A search that divides by the priors (prior_scale 1)
is left with p(x | s), and a factor of the frame that all paths have.
"""

from collections.abc import Callable
from typing import NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.config.build import require
from las.hmm.gmm import Mixtures
from las.hmm.topology import NUM_STATES
from las.nn.acoustic_model import FrameScores
from las.nn.features import Features
from las.nn.trainable import FeatureAugmentation, SpeechModel, TrainingBatch
from las.runtime.errors import ConfigError


class GaussianModel(SpeechModel):
    """Features and Gaussian mixtures, which `las align` trains; nothing in it is trained by gradients.

    Args:
        sample_rate: of the waveforms, in Hz.
        vocab_size: phones, and the boundary (id 0), as those of `AcousticModel`.
        features: makes `Features` from sample_rate.
        num_components: Gaussians of the state that has most of them.
        num_pdfs: tied states of triphones; None: three for each phone.
    """

    predicts = "frames"
    log_priors: Tensor
    bigram: Tensor

    def __init__(
        self,
        sample_rate: int,
        vocab_size: int,
        *,
        features: Callable[[int], Features],
        num_components: int,
        num_pdfs: int | None = None,
    ) -> None:
        super().__init__()
        require("num_components", num_components, 1)
        self.features = features(sample_rate)
        self.ctc = None
        num_pdfs = NUM_STATES * (vocab_size - 1) if num_pdfs is None else num_pdfs
        shape = (num_pdfs, num_components)
        self.weights = nn.Parameter(torch.full(shape, 1.0 / num_components), requires_grad=False)
        self.means = nn.Parameter(torch.zeros(*shape, self.features.size), requires_grad=False)
        self.variances = nn.Parameter(torch.ones(*shape, self.features.size), requires_grad=False)
        self.register_buffer("log_priors", torch.full((num_pdfs,), 1.0 / num_pdfs).log())
        self.register_buffer("bigram", torch.zeros(vocab_size, vocab_size))

    @property
    def mixtures(self) -> Mixtures:
        """The mixtures of all states, for likelihoods; their floor is that of the least variance there is."""
        return Mixtures(self.weights, self.means, self.variances, self.variances.amin(dim=(0, 1)))

    @property
    def num_pdfs(self) -> int:
        """Number of states of all phones."""
        return len(self.log_priors)

    @property
    def state_ms(self) -> float:
        """Time from one frame to the next, in milliseconds."""
        return self.features.frame_shift_ms

    def explain(self) -> str:
        """A line for the log of a run: the number of Gaussians and of states."""
        return f"{self.mixtures.num_components:,} Gaussians of {self.num_pdfs:,} states"

    def num_states(self, num_samples: Int[Tensor, "batch"]) -> Int[Tensor, "batch"]:
        """Frames of utterances of `num_samples`."""
        return self.features.num_frames(num_samples)

    def num_targets(self, batch: TrainingBatch) -> NoReturn:
        """Raise ConfigError: mixtures are not trained by updates."""
        raise ConfigError(
            "las.GaussianModel is not trained by updates: las align corpus=... output=x.ctm gaussians=FOLDER trains it"
        )

    def forward_batch(self, batch: TrainingBatch, augment: FeatureAugmentation) -> NoReturn:
        """Raise ConfigError, as `num_targets`."""
        self.num_targets(batch)

    @torch.no_grad()
    def set_mixtures(self, mixtures: Mixtures, frames: Float[Tensor, "pdfs"]) -> None:
        """Take over trained mixtures, and the priors from the number of frames of each pdf, one added."""
        self.weights.copy_(mixtures.weights)
        self.means.copy_(mixtures.means)
        self.variances.copy_(mixtures.variances)
        self.log_priors.copy_(((frames + 1.0) / (frames + 1.0).sum()).log())

    def decoder(
        self, waveforms: Float[Tensor, "batch samples"], num_samples: Int[Tensor, "batch"]
    ) -> tuple[FrameScores, Int[Tensor, "batch"]]:
        """Scores of whole utterances for a search, and their numbers of frames."""
        rows, num_frames = self.features(waveforms, num_samples)
        mixtures = self.mixtures
        # One utterance at a time: the scores of all Gaussians of a batch would not fit into memory.
        likelihoods = torch.stack([mixtures.log_likelihoods(own) for own in rows])
        posteriors = torch.log_softmax(likelihoods + self.log_priors, dim=-1)
        return FrameScores(posteriors, self.log_priors, self.bigram), num_frames.to(rows.device, non_blocking=True)
