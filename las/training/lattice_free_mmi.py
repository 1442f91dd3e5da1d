"""Lattice-free maximum mutual information (Povey et al. 2016) for acoustic models of a hybrid HMM.

In the graph of all sequences of phones (`las.hmm.phone_graph`), the paths R of a chunk have in each frame one of the
states that its labels have within `tolerance` frames. An update raises their share in the sum over all paths X,
minimising

    log sum_X exp(F(X)) - log sum_R exp(F(R)),    F(X) = log n-gram(X) + [acoustic score(X) - transitions(X)] / lm_scale

with acoustic scores acoustic_scale * (log p(s | x) - prior_scale * log p(s)) of each frame and the costs of its
transitions: the score of a path is that of a search with these scales, divided by lm_scale. To this is added
frame_weight times the cross-entropy of the frames (Su et al. 2013). The gradient with regard to an output is the
occupancy of its state over all paths, less that over the paths of the labels.
"""

import math
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from las.config.build import require
from las.hmm.labels import NO_LABEL
from las.hmm.occupancies import log_totals
from las.hmm.phone_graph import PhoneGraph, phone_graph, restricted
from las.hmm.topology import StateNumbering
from las.nn.acoustic_model import FrameModel, FramePredictions
from las.nn.losses import FrameLoss
from las.nn.model import Trainable, TrainingBatch
from las.runtime.errors import ConfigError


class LatticeFreeMMI(FrameLoss):
    """The share of the labels in the sum over all sequences of phones, and the cross-entropy of frames.

    Args:
        acoustic_scale, prior_scale, lm_scale: those of the search that the model is for (`las.WordGraphSearch`).
        tolerance: frames by which the states of the labels may come earlier or later.
        frame_weight: weight of the cross-entropy that is added.
        reduction: an update minimises the `mean` per frame or the `sum` over its frames.

    A chunk with a frame that has no label, or whose labels are no path, counts in the cross-entropy alone.
    """

    def __init__(
        self,
        acoustic_scale: float = 1.0,
        prior_scale: float = 0.0,
        lm_scale: float = 1.0,
        tolerance: int = 5,
        frame_weight: float = 0.1,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        require("acoustic_scale", acoustic_scale, 0.0)
        require("lm_scale", lm_scale, 0.01)
        require("prior_scale", prior_scale, 0.0)
        require("tolerance", tolerance, 0)
        require("frame_weight", frame_weight, 0.0)
        self.acoustic_scale, self.prior_scale, self.lm_scale = acoustic_scale, prior_scale, lm_scale
        self.tolerance, self.frame_weight = tolerance, frame_weight
        self.graph: PhoneGraph | None = None

    def bind_phones(self, sentences: Iterable[Sequence[str]], states: StateNumbering) -> None:
        self.graph = phone_graph(sentences, states, self.lm_scale)

    def objective(self, model: Trainable, output: FramePredictions, batch: TrainingBatch) -> Float[Tensor, ""]:
        """Return the loss of a batch, summed over its frames. Raises ConfigError where `bind_phones` was not called."""
        if self.graph is None:
            raise ConfigError("this loss must be told the phones of the training part: call loss.bind_phones")
        logits, labels, num_frames = output.sequences()
        log_priors, scale = cast(FrameModel, model).log_priors, self.acoustic_scale / self.lm_scale
        emissions = torch.add(-scale * self.prior_scale * log_priors, logits.float(), alpha=scale)
        labels = labels.cpu()
        labelled = (labels != NO_LABEL).sum(1) == num_frames
        chunks = zip(emissions.unbind(), labels.unbind(), num_frames.where(labelled, 0).tolist(), strict=True)
        of_labels = torch.stack([self._of_labels(self.graph, *chunk) for chunk in chunks])
        possible = of_labels.detach().cpu() > -math.inf
        of_all = log_totals(emissions, num_frames.where(labelled & possible, 0), self.graph)
        of_sequences = (of_all - of_labels.where(possible.to(of_labels.device), 0.0)).sum()
        return of_sequences - self.frame_weight * output.log_probs.sum()

    def _of_labels(
        self,
        graph: PhoneGraph,
        emissions: Float[Tensor, "frames pdfs"],
        labels: Int[Tensor, " frames"],
        num_frames: int,
    ) -> Float[Tensor, ""]:
        """Return the logarithm of the sum over the paths of a chunk's labels; -inf without any, 0 without frames."""
        pdfs, places = labels[:num_frames].unique(return_inverse=True)
        if not num_frames:
            return emissions.new_zeros(())
        allowed = near(places, len(pdfs), self.tolerance).to(emissions.device)
        chosen = emissions[:num_frames].index_select(1, pdfs.to(emissions.device))
        part = restricted(graph, pdfs.numpy())
        return log_totals(chosen.unsqueeze(0), torch.tensor([num_frames]), part, allowed.unsqueeze(0))[0]


def near(labels: Int[Tensor, " frames"], num_pdfs: int, tolerance: int) -> Bool[Tensor, "frames pdfs"]:
    """Return which pdfs are labels of a frame that is at most `tolerance` frames away.

    >>> import torch
    >>> from las.training.lattice_free_mmi import near
    >>> near(torch.tensor([2, 2, 0, 1]), 3, tolerance=1).int().tolist()
    [[0, 0, 1], [1, 0, 1], [1, 1, 1], [1, 1, 0]]
    """
    allowed = torch.zeros(len(labels), num_pdfs, dtype=torch.bool)
    frames = torch.arange(len(labels))
    for distance in range(-tolerance, tolerance + 1):
        moved = (frames + distance).clamp(0, len(labels) - 1)
        allowed[frames, labels[moved]] = True
    return allowed
