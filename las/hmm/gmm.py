"""Mixtures of Gaussians with diagonal covariance, one for each state, trained by expectation-maximisation.

    log p(x | s) = log sum_m w_sm N(x; mu_sm, var_sm)

Rabiner 1989, equations 49 and 52-54, with the states of frames given by the best path (Viterbi training).
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

VARIANCE_FLOOR = 0.01
"""Least variance of a component, as a share of that of all frames (HTK's HCompV -f 0.01)."""
MIN_OCCUPANCY = 10.0
"""Frames that a component needs, or it is dropped where another one is left; twice as many to be split."""
SPLIT_DEVIATIONS = 0.2
"""Distance that the halves of a split component move apart, in standard deviations (HTK's HHEd MU)."""


class Statistics(NamedTuple):
    """Sums over frames, weighted by how probable each component of their state is: of ones, values and squares."""

    occupancy: Float[Tensor, "pdfs components"]
    first: Float[Tensor, "pdfs components size"]
    second: Float[Tensor, "pdfs components size"]

    @classmethod
    def zeros(cls, like: Tensor) -> "Statistics":
        """Empty sums for means of the shape of `like`, [pdfs, components, size]."""
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in (like.shape[:2], like.shape, like.shape)))

    def add(self, frames: Float[Tensor, "frames size"], pdfs: Int[Tensor, "frames"], mixtures: "Mixtures") -> None:
        """Add frames whose states are known."""
        order = pdfs.argsort(stable=True)
        present, counts = pdfs.unique(return_counts=True)
        for pdf, own in zip(present.tolist(), frames[order].split(counts.tolist()), strict=True):
            shares = torch.softmax(mixtures.component_scores(own, pdf), dim=-1).double()
            values = own.double()
            self.occupancy[pdf] += shares.sum(0)
            self.first[pdf] += shares.T @ values
            self.second[pdf] += shares.T @ values.square()


class Mixtures:
    """Gaussian mixtures of all pdfs.

    Args:
        weights: 0 for a component that is not there.
        means, variances: of the components.
        floor: least variance of each feature.
    """

    def __init__(
        self,
        weights: Float[Tensor, "pdfs components"],
        means: Float[Tensor, "pdfs components size"],
        variances: Float[Tensor, "pdfs components size"],
        floor: Float[Tensor, "size"],
    ) -> None:
        self.weights, self.means, self.variances, self.floor = weights, means, variances, floor
        self.precisions = 1.0 / variances
        self.scaled_means = means * self.precisions
        exponents = (variances.log() + means * self.scaled_means).sum(-1) + means.shape[2] * math.log(2.0 * math.pi)
        self.constants = weights.log() - 0.5 * exponents

    @classmethod
    def single(cls, num_pdfs: int, mean: Float[Tensor, "size"], variance: Float[Tensor, "size"]) -> "Mixtures":
        """Equal Gaussians for all pdfs (flat start)."""
        means, variances = (each.expand(num_pdfs, 1, -1).clone() for each in (mean, variance))
        return cls(torch.ones(num_pdfs, 1), means, variances, VARIANCE_FLOOR * variance)

    @property
    def num_components(self) -> int:
        """Components of all pdfs together."""
        return int((self.weights > 0).sum())

    def log_likelihoods(self, frames: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch pdfs"]:
        """Log-likelihoods of frames under every pdf."""
        there = self.weights > 0  # pdfs may have very different numbers of components
        linear = frames @ self.scaled_means[there].T
        square = frames.square() @ self.precisions[there].T
        scores = linear - 0.5 * square + self.constants[there]
        parts = scores.split(there.sum(dim=1).tolist(), dim=-1)
        return torch.stack([torch.logsumexp(part, dim=-1) for part in parts], dim=-1)

    def component_scores(self, frames: Float[Tensor, "frames size"], pdf: int) -> Float[Tensor, "frames components"]:
        """Log-likelihoods of frames and each component of one pdf together."""
        linear = frames @ self.scaled_means[pdf].T
        return linear - 0.5 * (frames.square() @ self.precisions[pdf].T) + self.constants[pdf]

    def updated(self, statistics: Statistics) -> "Mixtures":
        """The mixtures with the greatest likelihood for given statistics; a pdf without frames stays as it is."""
        occupancy = statistics.occupancy
        kept = (occupancy >= MIN_OCCUPANCY) | (occupancy == occupancy.max(dim=1, keepdim=True).values)
        kept &= occupancy > 0
        seen = kept.any(dim=1)
        counts = occupancy.clamp(min=1e-10).unsqueeze(-1)
        means = statistics.first / counts
        variances = torch.maximum(statistics.second / counts - means.square(), self.floor.double())
        shares = torch.where(kept, occupancy, 0.0)
        weights = shares / shares.sum(dim=1, keepdim=True).clamp(min=1e-10)
        change = kept.unsqueeze(-1)
        return Mixtures(
            torch.where(seen.unsqueeze(-1), weights.to(self.weights), self.weights),
            torch.where(change, means.to(self.means), self.means),
            torch.where(change, variances.to(self.means), self.variances),
            self.floor,
        )

    def split(self, statistics: Statistics) -> "Mixtures":
        """Mixtures whose components with frames enough are two each, a little apart."""
        splits = statistics.occupancy >= 2.0 * MIN_OCCUPANCY
        offsets = torch.where(splits.unsqueeze(-1), SPLIT_DEVIATIONS * self.variances.sqrt(), 0.0)
        halves = self.weights * torch.where(splits, 0.5, 1.0)
        others = torch.where(splits, halves, torch.zeros_like(halves))
        return Mixtures(
            torch.cat([halves, others], dim=1),
            torch.cat([self.means - offsets, self.means + offsets], dim=1),
            torch.cat([self.variances, self.variances], dim=1),
            self.floor,
        )
