"""Training objectives: label-smoothed cross-entropy of tokens, alone or with CTC, and focal loss of frames."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.config.build import require
from las.nn import ctc, transducer
from las.nn.acoustic_model import FramePredictions
from las.nn.model import Trainable, TrainingBatch
from las.nn.normalisation import Lengths, mask_of
from las.nn.scheduled import PiecewiseLinear, ScheduledModule
from las.runtime.errors import ArgumentError, ConfigError, require_known, suggest

REDUCTIONS = ("mean", "sum")
SMOOTHED = ("all", "others")


class TokenLoss(NamedTuple):
    """Sums over the tokens of a batch, so that means over batches of any size are exact."""

    loss: Float[Tensor, ""]
    """Smoothed cross-entropy, summed, with gradient."""
    cross_entropy: Float[Tensor, ""]
    """Plain cross-entropy, summed, without gradient: comparable between runs that smooth differently."""
    correct: Int[Tensor, ""]
    tokens: Int[Tensor, ""]


@runtime_checkable
class TranscribedCorpus(Protocol):
    """What a loss may read of a corpus: its tokens, which decode ids to a text, and the scored form of a text."""

    @property
    def tokens(self) -> Any: ...

    def normalise(self, text: str) -> list[str]: ...


def require_ctc(output: Any) -> ctc.CTCOutput:
    """Return the output of CTC. Raises ConfigError for a model without it."""
    found: ctc.CTCOutput | None = getattr(output, "ctc_output", None)
    if found is None:
        raise ConfigError("this loss needs a model with CTC: choose both with loss=joint_ctc or model=ctc_small")
    return found


class TrainingLoss(ScheduledModule):
    """Base class of losses: what an update minimises, and nothing else. A subclass defines `objective`.

    A training calls `bind` once and, for every update, `divisor` and `objective`.

    One of frames, in place of tokens, is a subclass of `FrameLoss`.

    Validation reports cross-entropies of its own, whatever the loss is.

    Args:
        reduction: an update minimises the `mean` per target of its batch or the `sum` over it.

    >>> import las, torch
    >>> class Confident(las.TrainingLoss):
    ...     "Cross-entropy and the entropy of every prediction."
    ...     def objective(self, model, output, batch):
    ...         cross_entropy = las.LabelSmoothedCrossEntropy()(output.logits, batch.targets, batch.num_tokens).loss
    ...         return cross_entropy + 0.1 * torch.distributions.Categorical(logits=output.logits).entropy().sum()
    ...
    >>> Confident().divisor(targets=12.0), Confident(reduction="sum").divisor(targets=12.0)
    (12.0, 1.0)
    """

    one_graph = False
    """True where a class, which says so itself, has an `objective` that starts the same kernels for all batches of the
    same shapes, with lengths on the device of the model and no other numbers that change, and reads only the targets of
    a batch and their numbers: see `Trainable.one_graph`."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in REDUCTIONS:
            raise ArgumentError(f"reduction={reduction} must be mean or sum.{suggest(reduction, REDUCTIONS)}")
        self.reduction = reduction

    def divisor(self, targets: float) -> float:
        """Return the divisor of the summed loss (or its gradient) of an update with this many targets."""
        return targets if self.reduction == "mean" else 1.0

    def bind(self, corpus: TranscribedCorpus) -> None:
        """Prepare for a corpus, before the first batch, for a loss of texts; tokens may be learned later."""

    def objective(self, model: Trainable, output: Any, batch: TrainingBatch) -> Float[Tensor, ""]:
        """Compute the loss to minimise, summed over the targets of a batch.

        Args:
            model: the model that is trained, for losses of its parameters.
            output: the return value of `model.forward_batch`.
            batch: the utterances, with their targets.

        Raises ConfigError for a model whose output lacks what the loss needs.
        """
        raise TypeError(f"{type(self).__name__} must define objective")


class LabelSmoothedCrossEntropy(TrainingLoss):
    """Label-smoothed cross-entropy (Szegedy et al. 2016, section 7): -sum_k q_k log p_k.

    q is 1 - smoothing on the true token plus smoothing / V on every token, or 1 - smoothing on the true one and
    smoothing / (V - 1) on each other. The end of the sentence counts as a token.

    Args:
        smoothing: 0 gives plain cross-entropy; or a `PiecewiseLinear`.
        reduction: an update minimises the `mean` per token of its batch or the `sum` over it. With the sum, the
            gradient is larger by the number of tokens in the batch, and so are its norm, which clipping compares, and
            the steps of plain SGD; the ε of an optimiser, L2 and gradient noise weigh less in the same proportion.
            RETURNN sums (Zeineldeen et al. 2020), most others take means.
        smoothed: tokens that share the smoothing: `all`, or the `others` than the true one (RETURNN).
    """

    one_graph = True
    smoothing: float

    def __init__(
        self, smoothing: float | PiecewiseLinear = 0.0, reduction: str = "mean", *, smoothed: str = "all"
    ) -> None:
        super().__init__(reduction)
        require_known("smoothed", smoothed, SMOOTHED)
        self.smoothed = smoothed
        self.schedule("smoothing", smoothing, largest=1.0)

    def forward(
        self, logits: Float[Tensor, "batch steps vocab"], targets: Int[Tensor, "batch tokens"], num_tokens: Lengths
    ) -> TokenLoss:
        """Return sums over a batch. `logits` has one step more than `targets`, for the end of the sentence (id 0)."""
        steps, device = logits.shape[1], logits.device
        mask = mask_of(num_tokens + 1, steps, device)
        # Padding of the targets is 0, the boundary, so the step after the last token already asks for the end.
        is_token = mask_of(num_tokens, steps, device)
        expected = nn.functional.pad(targets, (0, 1)).masked_fill(~is_token, 0)
        log_probs = torch.log_softmax(logits, dim=-1)
        true = -log_probs.gather(-1, expected.unsqueeze(-1)).squeeze(-1).masked_fill(~mask, 0.0).sum()
        uniform = -log_probs.mean(-1).masked_fill(~mask, 0.0).sum()
        correct = ((logits.argmax(-1) == expected) & mask).sum()
        smoothing, vocab_size = self.smoothing, logits.shape[-1]
        if self.smoothed == "others":  # the share of the true token in what all get is added
            smoothing *= vocab_size / (vocab_size - 1)
        loss = (1.0 - smoothing) * true + smoothing * uniform
        return TokenLoss(loss, true.detach(), correct, (num_tokens + 1).sum())

    def objective(self, model: Trainable, output: Any, batch: TrainingBatch) -> Float[Tensor, ""]:
        """Return the loss to minimise, summed over the tokens of a batch and the ends of its sentences.

        Raises ConfigError for a model of CTC alone.
        """
        if not hasattr(output, "logits"):
            raise ConfigError(
                f"loss: a {type(model).__name__} has no speller, whose tokens this loss is of: its own is loss=ctc or "
                "loss=transducer"
            )
        sums: TokenLoss = self(output.logits, batch.targets, batch.num_tokens)
        return sums.loss


class JointCTCLoss(LabelSmoothedCrossEntropy):
    """The joint loss (1 - w) label-smoothed cross-entropy + w CTC (`las.nn.ctc`; Kim et al. 2017, equation 10).

    Both terms are sums over the tokens of a batch, so their relative weight does not depend on its size.

    Args:
        ctc_weight: w, from 0 to 1.
    """

    one_graph = True

    def __init__(
        self,
        smoothing: float | PiecewiseLinear = 0.0,
        reduction: str = "mean",
        ctc_weight: float = 0.3,
        *,
        smoothed: str = "all",
    ) -> None:
        super().__init__(smoothing, reduction, smoothed=smoothed)
        require("ctc_weight", ctc_weight, 0.0, 1.0)
        self.ctc_weight = ctc_weight

    def objective(self, model: Trainable, output: Any, batch: TrainingBatch) -> Float[Tensor, ""]:
        ctc_output, cross_entropy = require_ctc(output), super().objective(model, output, batch)
        by_ctc = ctc.loss(ctc_output, batch.targets, batch.num_tokens)
        return (1.0 - self.ctc_weight) * cross_entropy + self.ctc_weight * by_ctc


class CTCLoss(TrainingLoss):
    """The loss of CTC alone, -log p(tokens | states) (`las.nn.ctc`; Graves et al. 2006), summed or per token."""

    one_graph = True

    def objective(self, model: Trainable, output: Any, batch: TrainingBatch) -> Float[Tensor, ""]:
        return ctc.loss(require_ctc(output), batch.targets, batch.num_tokens)


class IntermediateCTCLoss(TrainingLoss):
    """(1 - w) loss + w CTC on a lower layer of the listener (Lee and Watanabe 2021), for `model.intermediate_ctc`.

    Args:
        upper: the loss of what stands above all layers; it says whether the sum or the mean is minimised.
        weight: w, from 0 to 1.
    """

    one_graph = True

    def __init__(self, upper: TrainingLoss, weight: float = 0.3) -> None:
        super().__init__(upper.reduction)
        require("weight", weight, 0.0, 1.0)
        self.upper, self.weight = upper, weight

    def bind(self, corpus: TranscribedCorpus) -> None:
        self.upper.bind(corpus)

    def objective(self, model: Trainable, output: Any, batch: TrainingBatch) -> Float[Tensor, ""]:
        lower: ctc.CTCOutput | None = getattr(output, "intermediate", None)
        if lower is None:
            raise ConfigError(
                "this loss needs a model with CTC on a lower layer: choose both with loss=ctc_intermediate or "
                "loss=joint_ctc_intermediate"
            )
        by_ctc = ctc.loss(lower, batch.targets, batch.num_tokens)
        return (1.0 - self.weight) * self.upper.objective(model, output, batch) + self.weight * by_ctc


class TransducerLoss(TrainingLoss):
    """The loss of a transducer, -log p(tokens | states) (`las.nn.transducer`; Graves 2012), summed or per token."""

    one_graph = True

    def objective(self, model: Trainable, output: Any, batch: TrainingBatch) -> Float[Tensor, ""]:
        """Return the loss to minimise, summed over a batch. Raises ConfigError for a model that is no transducer."""
        if not hasattr(output, "arcs"):
            raise ConfigError(f"loss: a {type(model).__name__} is no transducer: choose model=transducer_small")
        return transducer.loss(output.arcs, output.num_states, batch.num_tokens)


class FrameLoss(TrainingLoss):
    """Base class of losses of frames: `output` is the `FramePredictions` of a `las.nn.acoustic_model.FrameModel`."""

    def bind_phones(self, sentences: Iterable[Sequence[str]], states: Any) -> None:
        """Prepare for the phones of the training utterances and their states, before the first batch.

        Args:
            sentences: the phones, which may be read once.
            states: the numbering of their states (`las.hmm.topology.StateNumbering`).
        """


class FrameCrossEntropy(FrameLoss):
    """Focal loss of frames (Lin et al. 2017, equation 4): -(1 - p)^focus log p of the label.

    Well-known frames weigh less. The factor is differentiated, as RETURNN does (Zeineldeen et al. 2020, focus 2).

    Args:
        focus: the exponent, gamma; 0 gives cross-entropy.
        reduction: an update minimises the `mean` per frame or the `sum` over its frames.
    """

    def __init__(self, focus: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        require("focus", focus, 0.0)
        self.focus = focus

    def forward(self, logits: Float[Tensor, "frames pdfs"], labels: Int[Tensor, " frames"]) -> Float[Tensor, ""]:
        """Sum over frames."""
        return self.of(torch.log_softmax(logits, dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1))

    def of(self, log_probs: Float[Tensor, " frames"]) -> Float[Tensor, ""]:
        """Sum over frames, from the log-probabilities of their labels."""
        if not self.focus:
            return -log_probs.sum()
        # 1 - p without cancellation; above 0, where the power has no gradient.
        missed = (-torch.expm1(log_probs)).clamp(min=torch.finfo(log_probs.dtype).tiny)
        return -(missed**self.focus * log_probs).sum()

    def objective(self, model: Trainable, output: FramePredictions, batch: TrainingBatch) -> Float[Tensor, ""]:
        return self.of(output.log_probs)
