"""Gaussian mixtures of states: Viterbi training, and as the acoustic model of a search.

    log p(x | s) = log sum_m w_sm N(x; mu_sm, var_sm)

Covariances are diagonal; Rabiner 1989, equations 49 and 52-54, with the states of frames given by the best path. From
a flat start, all states begin as one Gaussian of all frames, and the first statistics come from words cut into equal
parts. Then the best path of every utterance gives new statistics, and from time to time every component is split (HTK
book, chapter 3; Kaldi's train_mono.sh). In a search the mixtures give

    p(s | x) = p(x | s) p(s) / sum_r p(x | r) p(r)

with the prior p(s) of a state by the frames that it was trained on. A search that divides by the priors (prior_scale 1)
is left with p(x | s), and a factor of the frame that all paths have.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.config.build import require
from las.hmm.graph import AlignmentGraph
from las.hmm.topology import NUM_STATES
from las.hmm.viterbi import BestPath, viterbi
from las.nn.acoustic_model import FrameModel, FrameScores
from las.nn.features import Features
from las.nn.model import FeatureAugmentation, TrainingBatch
from las.runtime.errors import ConfigError

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

    def add(self, frames: Float[Tensor, "frames size"], pdfs: Int[Tensor, " frames"], mixtures: "Mixtures") -> None:
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
        floor: Float[Tensor, " size"],
    ) -> None:
        self.weights, self.means, self.variances, self.floor = weights, means, variances, floor
        self.precisions = 1.0 / variances
        self.scaled_means = means * self.precisions
        exponents = (variances.log() + means * self.scaled_means).sum(-1) + means.shape[2] * math.log(2.0 * math.pi)
        self.constants = weights.log() - 0.5 * exponents

    @classmethod
    def single(cls, num_pdfs: int, mean: Float[Tensor, " size"], variance: Float[Tensor, " size"]) -> "Mixtures":
        """Equal Gaussians for all pdfs (flat start)."""
        means, variances = (each.expand(num_pdfs, 1, -1).clone() for each in (mean, variance))
        return cls(torch.ones(num_pdfs, 1), means, variances, VARIANCE_FLOOR * variance)

    @property
    def num_components(self) -> int:
        return int((self.weights > 0).sum())

    def log_likelihoods(
        self, frames: Float[Tensor, "frames size"], pdfs: Int[Tensor, " chosen"] | None = None
    ) -> Float[Tensor, "frames chosen"]:
        """Log-likelihoods of frames under some pdfs, by default under every one."""
        counts = (self.weights > 0).sum(dim=1)  # of components, which differ a lot between pdfs
        pdfs = torch.arange(len(counts), device=counts.device) if pdfs is None else pdfs
        order = counts[pdfs].argsort(stable=True)
        groups, sizes = counts[pdfs[order]].unique_consecutive(return_counts=True)
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order), device=order.device)
        square = frames.square()
        scores = []
        for count, own in zip(groups.tolist(), pdfs[order].split(sizes.tolist()), strict=True):
            there = self.weights[own] > 0
            linear = frames @ self.scaled_means[own][there].T
            every = linear - 0.5 * (square @ self.precisions[own][there].T) + self.constants[own][there]
            scores.append(torch.logsumexp(every.unflatten(-1, (len(own), count)), dim=-1))
        return torch.cat(scores, dim=-1)[:, places]

    def component_scores(self, frames: Float[Tensor, "frames size"], pdf: int) -> Float[Tensor, "frames components"]:
        """Log-likelihoods of frames and each component of one pdf together."""
        linear = frames @ self.scaled_means[pdf].T
        return linear - 0.5 * (frames.square() @ self.precisions[pdf].T) + self.constants[pdf]

    def updated(self, statistics: Statistics) -> "Mixtures":
        """Return the mixtures with the greatest likelihood for given statistics; pdfs without frames stay as they
        are.
        """
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


STATISTICS_FRAMES = 100_000
"""Frames that are sorted by their pdfs and added together."""


class Example(NamedTuple):
    """An utterance to train on: its features, its graph, and the pdfs of a first guess of its path."""

    id: str
    features: Float[Tensor, "frames size"]
    graph: AlignmentGraph
    first_path: Sequence[int]


class Round(NamedTuple):
    """One realignment: its Gaussians and the mean score of a frame."""

    number: int
    num_components: int
    score: float


class Schedule(NamedTuple):
    """Realignments with one Gaussian for each state, and after each doubling of the components."""

    first: int = 12
    doublings: int = 3
    after_each: int = 4

    @property
    def realignments(self) -> int:
        return self.first + self.doublings * self.after_each


DEFAULT_SCHEDULE = Schedule()


def train(
    examples: Sequence[Example],
    num_pdfs: int,
    schedule: Schedule = DEFAULT_SCHEDULE,
    report: Callable[[Round], None] = lambda each: None,
) -> Mixtures:
    """Train mixtures; `report` is called after every realignment.

    Within a number of components the score does not fall: a new path is at least as good as the one before, and so
    are new parameters, but for variances at their floor and components that are dropped.
    """
    frames = torch.cat([example.features for example in examples])
    mixtures = Mixtures.single(num_pdfs, frames.mean(0), frames.var(0, correction=0))
    mixtures = mixtures.updated(_equal_parts(examples, mixtures))
    number = 0
    for doubling in range(schedule.doublings + 1):
        for _ in range(schedule.after_each if doubling else schedule.first):
            number += 1
            statistics = Statistics.zeros(mixtures.means)
            score, count = 0.0, 0
            features, pdfs = list[Tensor](), list[Tensor]()
            for example, path in paths(examples, mixtures):
                if path is None:  # too short for its words
                    continue
                features.append(example.features)
                pdfs.append(torch.from_numpy(example.graph.pdfs[path.states]))
                score, count = score + path.score, count + len(path.states)
                if sum(map(len, pdfs)) >= STATISTICS_FRAMES:
                    statistics.add(torch.cat(features), torch.cat(pdfs), mixtures)
                    features, pdfs = [], []
            if pdfs:
                statistics.add(torch.cat(features), torch.cat(pdfs), mixtures)
            report(Round(number, mixtures.num_components, score / max(count, 1)))
            mixtures = mixtures.updated(statistics)
        if doubling < schedule.doublings:
            mixtures = mixtures.split(statistics)
    return mixtures


def paths(examples: Sequence[Example], mixtures: Mixtures) -> Iterator[tuple[Example, BestPath | None]]:
    """Yield the best path of each utterance; None for one that is too short for its words."""
    for example in examples:
        # Of the pdfs of its own words alone: of tied triphones they are a small part.
        pdfs, of_states = np.unique(example.graph.pdfs, return_inverse=True)
        emissions = mixtures.log_likelihoods(example.features, torch.from_numpy(pdfs)).unsqueeze(0)
        (path,) = viterbi(emissions, torch.tensor([len(example.features)]), [example.graph._replace(pdfs=of_states)])
        yield example, path


def _equal_parts(examples: Sequence[Example], mixtures: Mixtures) -> Statistics:
    """Statistics of first paths whose states are equally long."""
    statistics = Statistics.zeros(mixtures.means)
    for example in examples:
        path, count = torch.tensor(example.first_path), len(example.features)
        statistics.add(example.features, path[torch.arange(count) * len(path) // count], mixtures)
    return statistics


class GaussianModel(FrameModel):
    """Features and Gaussian mixtures, which `las align` trains; nothing in it is trained by gradients.

    Args:
        sample_rate: of the waveforms, in Hz.
        vocab_size: phones, and the boundary (id 0), as those of `AcousticModel`.
        features: makes `Features` from sample_rate.
        num_components: Gaussians of the state that has most of them.
        num_pdfs: tied states of triphones; None: three for each phone.
    """

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

    def explain(self) -> str:
        return f"{self.mixtures.num_components:,} Gaussians of {self.num_pdfs:,} states"

    def num_targets(self, batch: TrainingBatch) -> NoReturn:
        """Raise ConfigError: mixtures are not trained by updates."""
        raise ConfigError(
            "las.GaussianModel is not trained by updates: las align corpus=... output=x.ctm gaussians=FOLDER trains it"
        )

    def forward_batch(self, batch: TrainingBatch, augment: FeatureAugmentation) -> NoReturn:
        self.num_targets(batch)

    @torch.no_grad()
    def set_mixtures(self, mixtures: Mixtures, frames: Float[Tensor, " pdfs"]) -> None:
        """Take over trained mixtures, and the priors from the number of frames of each pdf, one added."""
        self.weights.copy_(mixtures.weights)
        self.means.copy_(mixtures.means)
        self.variances.copy_(mixtures.variances)
        self.log_priors.copy_(((frames + 1.0) / (frames + 1.0).sum()).log())

    def search_inputs(
        self, waveforms: Float[Tensor, "batch samples"], num_samples: Int[Tensor, " batch"]
    ) -> tuple[FrameScores, Int[Tensor, " batch"]]:
        """Scores of whole utterances for a search, and their numbers of frames."""
        rows, num_frames = self.features(waveforms, num_samples)
        mixtures = self.mixtures
        # One utterance at a time: the scores of all Gaussians of a batch would not fit into memory.
        likelihoods = torch.stack([mixtures.log_likelihoods(own) for own in rows])
        posteriors = torch.log_softmax(likelihoods + self.log_priors, dim=-1)
        return FrameScores(posteriors, self.log_priors, self.bigram), num_frames.to(rows.device, non_blocking=True)
