"""Forced alignment of a corpus by models of phones that are trained on it from a flat start."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch

from las.data.loader import read
from las.hmm import continuation, gmm_training, graph, segments
from las.hmm.continuation import STATIC_SCHEDULE, TRIPHONE_SCHEDULE
from las.hmm.decision_tree import Growth
from las.hmm.frame_times import FrameTimes
from las.hmm.gmm import Mixtures
from las.hmm.gmm_training import DEFAULT_SCHEDULE, Example, Round, Schedule
from las.hmm.graph import AlignmentGraph
from las.hmm.labels import Labels
from las.hmm.lexicon import Lexicon
from las.hmm.segments import AlignedUtterance
from las.hmm.spoken import Spoken
from las.hmm.topology import StateNumbering, Topology
from las.hmm.viterbi import Path
from las.nn.features import Features
from las.runtime import progress


class Alignment(NamedTuple):
    """Alignment of some utterances: times, labels of frames by utterance id, and ids that no path fits."""

    aligned: list[AlignedUtterance]
    labels: Mapping[str, Labels]
    without_path: list[str]

    @classmethod
    def of_paths(
        cls,
        spoken: Sequence[Spoken],
        paths: Iterable[tuple[str, AlignmentGraph, Path | None]],
        times: FrameTimes,
    ) -> "Alignment":
        """The alignment of `spoken` by the best paths through their graphs, which come by id in any order."""
        by_id = {each.utterance.id: each for each in spoken}
        aligned, labels, without_path = {}, {}, []
        for name, own, path in paths:
            if path is None:
                without_path.append(name)
                continue
            utterance, words = by_id[name]
            labels[name] = own.pdfs[path.states].astype("int16")
            aligned[name] = segments.aligned(name, utterance.duration_s, words, own, path, times)
        return cls([aligned[name] for name in by_id if name in aligned], labels, sorted(without_path))

    def say_without_path(self) -> None:
        """Name the utterances that are too short for their words: there is no alignment of them."""
        if names := self.without_path:
            listed = ", ".join(names[:20]) + (f" and {len(names) - 20} others" if len(names) > 20 else "")
            progress.say(
                f"{len(names)} utterances have fewer frames than their words have states, not aligned: {listed}"
            )


class Aligner:
    """Trains monophones on utterances, then triphones if they are asked for, and aligns these or other ones.

    Args:
        features: of the models; normalised within the utterance, since nothing is fitted before.
        lexicon: has every word of every utterance.
        topology: has every phone of the lexicon.
        schedule: realignments of the training of monophones.
        growth: limits for the tying of triphones' states; None for monophones alone.

    The last models hear the features without their time derivatives: regressions over five frames tell phones apart,
    and blur where one ends. `states` is the numbering of their states, the topology or the tied states of triphones,
    and `size` the number of features that they hear.
    """

    def __init__(
        self,
        features: Features,
        lexicon: Lexicon,
        topology: Topology,
        schedule: Schedule = DEFAULT_SCHEDULE,
        growth: Growth | None = None,
    ) -> None:
        self.features, self.lexicon, self.topology, self.schedule = features, lexicon, topology, schedule
        self.growth = growth
        self.states: StateNumbering = topology
        self.size = features.size
        self.mixtures: Mixtures | None = None

    @property
    def times(self) -> FrameTimes:
        """Times of the frames of the features."""
        return FrameTimes.of(self.features)

    def train(self, spoken: Sequence[Spoken]) -> None:
        """Train from a flat start; a line for each realignment. Raises DataError for audio that cannot be read."""
        examples = self._examples(spoken)
        self.mixtures = gmm_training.train(examples, self.topology.num_pdfs, self.schedule, say_round)
        if self.growth is not None:
            self.states = continuation.tied(examples, self.mixtures, self.topology, self.growth)
            progress.say(f"{self.states.num_pdfs:,} tied states of triphones")
            examples = self._continued(examples, spoken)
            self.mixtures = gmm_training.train(examples, self.states.num_pdfs, TRIPHONE_SCHEDULE, say_round)
        if self.features.orders > 1:
            examples = self._continued(examples, spoken)
            self.size = self.features.size // self.features.orders
            examples = [example._replace(features=example.features[:, : self.size]) for example in examples]
            self.mixtures = gmm_training.train(examples, self.states.num_pdfs, STATIC_SCHEDULE, say_round)

    def align(self, spoken: Sequence[Spoken]) -> Alignment:
        """Align utterances by the trained models, in their order. Raises DataError for audio that cannot be read."""
        assert self.mixtures is not None, "train first"
        found = gmm_training.paths(self._examples(spoken), self.mixtures)
        paths = ((example.id, example.graph, path) for example, path in found)
        return Alignment.of_paths(spoken, paths, self.times)

    def _continued(self, examples: Sequence[Example], spoken: Sequence[Spoken]) -> list[Example]:
        """The examples with the present states, and their paths under the present models."""
        assert self.mixtures is not None, "train first"
        words = {each.utterance.id: each.words for each in spoken}
        return continuation.continued(examples, self.mixtures, words, self.lexicon, self.states)

    def _examples(self, spoken: Sequence[Spoken]) -> list[Example]:
        """Features and graphs; utterances shorter than one frame have none."""
        examples = []
        for utterance, words in progress.counted(iter(spoken), len(spoken), "utterances read"):
            waveform = read(utterance, self.features.sample_rate).unsqueeze(0)
            rows, _ = self.features(waveform, torch.tensor([waveform.shape[1]]))
            first = graph.first_path(words, self.lexicon, self.topology)
            made = graph.alignment_graph(words, self.lexicon, self.states, f"utterance {utterance.id}")
            examples.append(Example(utterance.id, rows[0, :, : self.size], made, first))
        return examples


def say_round(realignment: Round) -> None:
    """Print a line for a realignment."""
    score, gaussians = realignment.score, realignment.num_components
    progress.say(f"realignment {realignment.number}: {gaussians:,} Gaussians, {score:.3f} per frame")
