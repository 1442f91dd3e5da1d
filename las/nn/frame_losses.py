"""Losses of single frames: cross-entropy, and focal loss (Lin et al. 2017, equation 4)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.config.build import require
from las.nn.acoustic_model import FramePredictions
from las.nn.losses import TrainingLoss
from las.nn.trainable import Trainable, TrainingBatch


class FrameCrossEntropy(TrainingLoss):
    """Focal cross-entropy of frames: -(1 - p)^focus log p of the label; well-known frames weigh less.

    The factor is differentiated, as RETURNN does (Zeineldeen et al. 2020, focus 2).

    Args:
        focus: the exponent, gamma; 0 gives cross-entropy.
        reduction: an update minimises the `mean` per frame or the `sum` over its frames.
    """

    predicts = "frames"

    def __init__(self, focus: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        require("focus", focus, 0.0)
        self.focus = focus

    def forward(self, logits: Float[Tensor, "frames pdfs"], labels: Int[Tensor, "frames"]) -> Float[Tensor, ""]:
        """Sum over frames."""
        log_probs = torch.log_softmax(logits, dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        if not self.focus:
            return -log_probs.sum()
        # 1 - p without cancellation; above 0, where the power has no gradient.
        missed = (-torch.expm1(log_probs)).clamp(min=torch.finfo(log_probs.dtype).tiny)
        return -(missed**self.focus * log_probs).sum()

    def objective(self, model: Trainable, output: FramePredictions, batch: TrainingBatch) -> Float[Tensor, ""]:
        loss: Tensor = self(output.logits, output.labels)
        return loss
