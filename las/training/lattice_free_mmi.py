"""Lattice-free maximum mutual information (Povey et al. 2016) for acoustic models of a hybrid HMM.

The labels of a chunk of frames are one path through the graph of all sequences of phones (`las.hmm.phone_graph`). An
update raises the share of this path in the sum over all paths X of the graph, minimising

    log sum_X exp(F(X)) - F(labels),    F(X) = log n-gram(X) + [acoustic score(X) - transition costs(X)] / lm_scale

with acoustic scores acoustic_scale * (log p(s | x) - prior_scale * log p(s)) of each frame: the score of a path is that
of a search with these scales, divided by lm_scale. What the n-gram and the transitions give to the labels depends on no
parameter and is left out. To this is added frame_weight times the cross-entropy of the frames (Su et al. 2013).

The gradient with regard to an output is the occupancy of its state over all paths, less one for the label.
"""

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from las.config.build import require
from las.hmm.labels import NO_LABEL
from las.hmm.occupancies import log_totals
from las.hmm.phone_graph import PhoneGraph, phone_graph
from las.hmm.topology import StateNumbering
from las.nn.acoustic_model import FrameModel, FramePredictions
from las.nn.losses import FrameLoss
from las.nn.model import Trainable, TrainingBatch
from las.runtime.errors import ConfigError


class LatticeFreeMMI(FrameLoss):
    """The share of the labels in the sum over all sequences of phones, and the cross-entropy of frames.

    Args:
        acoustic_scale, prior_scale, lm_scale: those of the search that the model is for (`las.WordGraphSearch`).
        frame_weight: weight of the cross-entropy that is added.
        reduction: an update minimises the `mean` per frame or the `sum` over its frames.

    A chunk with a frame that has no label counts in the cross-entropy alone.
    """

    def __init__(
        self,
        acoustic_scale: float = 1.0,
        prior_scale: float = 0.0,
        lm_scale: float = 1.0,
        frame_weight: float = 0.1,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        require("acoustic_scale", acoustic_scale, 0.0)
        require("lm_scale", lm_scale, 0.01)
        require("prior_scale", prior_scale, 0.0)
        require("frame_weight", frame_weight, 0.0)
        self.acoustic_scale, self.prior_scale, self.lm_scale = acoustic_scale, prior_scale, lm_scale
        self.frame_weight = frame_weight
        self.graph: PhoneGraph | None = None

    def bind_phones(self, sentences: Iterable[Sequence[str]], states: StateNumbering) -> None:
        self.graph = phone_graph(sentences, states, self.lm_scale)

    def objective(self, model: Trainable, output: FramePredictions, batch: TrainingBatch) -> Float[Tensor, ""]:
        """Return the loss of a batch, summed over its frames. Raises ConfigError where `bind_phones` was not called."""
        if self.graph is None:
            raise ConfigError("this loss must be told the phones of the training part: call loss.bind_phones")
        log_priors = cast(FrameModel, model).log_priors
        sequences = output.sequences()
        labelled = sequences.labels != NO_LABEL
        num_frames = sequences.num_frames.masked_fill(labelled.sum(1).cpu() < sequences.num_frames, 0)
        scale = self.acoustic_scale / self.lm_scale
        emissions = torch.add(-scale * self.prior_scale * log_priors, sequences.logits.float(), alpha=scale)
        of_labels = emissions.gather(-1, sequences.labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        of_labels = of_labels.masked_fill(~labelled | (num_frames == 0).to(labelled.device).unsqueeze(1), 0.0)
        all_paths = log_totals(emissions, num_frames, self.graph).sum() - of_labels.sum()
        return all_paths - self.frame_weight * output.log_probs.sum()
