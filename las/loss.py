"""What training minimises."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.errors import ConfigError
from las.masking import mask_of


class TokenLoss(NamedTuple):
    """Sums over the tokens of a batch, so that means over batches of any size are exact."""

    loss: Float[Tensor, ""]
    """Smoothed cross-entropy, summed, with gradient."""
    cross_entropy: Float[Tensor, ""]
    """Plain cross-entropy, summed, without gradient: comparable between runs that smooth differently."""
    correct: Int[Tensor, ""]
    tokens: Int[Tensor, ""]


class LabelSmoothedCrossEntropy(nn.Module):
    """-sum_k q_k log p_k with q = 1 - smoothing on the true token and smoothing / V on every token
    (Szegedy et al. 2016, section 7; the end of the sentence counts as a token).

    Args:
        smoothing: 0 gives plain cross-entropy.
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= smoothing < 1.0:
            raise ConfigError(f"loss.smoothing={smoothing} must be at least 0 and less than 1")
        self.smoothing = smoothing

    def forward(
        self,
        logits: Float[Tensor, "batch steps vocab"],
        targets: Int[Tensor, "batch tokens"],
        num_tokens: Int[Tensor, "batch"],
    ) -> TokenLoss:
        """`logits` has one step more than `targets` has tokens: the end of the sentence (id 0) is predicted too."""
        mask = mask_of(num_tokens + 1, logits.shape[1])
        # Padding of the targets is 0, the boundary, so the step after the last token already asks for the end.
        wanted = nn.functional.pad(targets, (0, 1)).masked_fill(~mask_of(num_tokens, logits.shape[1]), 0)
        log_probs = torch.log_softmax(logits, dim=-1)
        true = -log_probs.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)[mask].sum()
        uniform = -log_probs.mean(-1)[mask].sum()
        correct = (logits.argmax(-1) == wanted)[mask].sum()
        loss = (1.0 - self.smoothing) * true + self.smoothing * uniform
        return TokenLoss(loss, true.detach(), correct, mask.sum())
