"""Forced alignment of a corpus, by Gaussian mixtures trained from a flat start or by a trained network.

A training that goes on from an alignment, with other states of the same phones or other features, does not begin flat:
the states of all frames are known before its first realignment, and its first models are estimated on them.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from las.config.build import Config, build
from las.data import manifest
from las.data.corpora.base import Corpus
from las.data.loader import read
from las.data.manifest import Utterance
from las.hmm import decision_tree, gmm, labels, segments, spoken, tying
from las.hmm.decision_tree import Growth
from las.hmm.gmm import DEFAULT_SCHEDULE, VARIANCE_FLOOR, Example, Mixtures, Round, Schedule
from las.hmm.graph import AlignmentGraph, alignment_graph, first_path
from las.hmm.labels import INDEX, FrameLabels, LabelKind, Labels
from las.hmm.lexicon import Lexicon
from las.hmm.segments import AlignedUtterance, FrameTimes
from las.hmm.spoken import Spoken
from las.hmm.topology import StateNumbering, Topology, Triphone
from las.hmm.tying import TiedStates
from las.hmm.viterbi import BestPath, viterbi
from las.nn.acoustic_model import AcousticModel
from las.nn.features import Features
from las.runtime import progress
from las.runtime.errors import first_of

TRIPHONE_SCHEDULE = Schedule(first=4, doublings=2, after_each=3)
"""One doubling less than monophones have, of more states."""
STATIC_SCHEDULE = Schedule(first=2, doublings=2, after_each=2)

RECOGNITION_SCHEDULE = Schedule(first=2, doublings=5, after_each=3)
"""Words take more Gaussians than boundaries; `recognition_schedule` has fewer for fewer frames."""
FRAMES_PER_GAUSSIAN = 50
"""Frames for each Gaussian of models that find words, on average, at least."""

BATCH = 16
"""Batch size of the alignment by a network."""

# Part of the name of a folder of labels: raise it when the same corpus and dictionary begin to give other labels.
_FORMAT = 1


class Alignment(NamedTuple):
    """Alignment of some utterances: times, labels of frames by utterance id, and ids that no path fits."""

    aligned: list[AlignedUtterance]
    labels: Mapping[str, Labels]
    without_path: list[str]

    @classmethod
    def of_paths(
        cls, spoken: Sequence[Spoken], paths: Iterable[tuple[str, AlignmentGraph, BestPath | None]], times: FrameTimes
    ) -> "Alignment":
        """Return the alignment of `spoken` by the best paths through their graphs, which come by id in any order."""
        by_id = {each.utterance.id: each for each in spoken}
        aligned, labels, without_path = {}, {}, []
        for name, graph, path in paths:
            if path is None:
                without_path.append(name)
                continue
            utterance, words = by_id[name]
            labels[name] = graph.pdfs[path.states].astype("int16")
            aligned[name] = segments.aligned(name, utterance.duration_s, words, graph, path, times)
        return cls([aligned[name] for name in by_id if name in aligned], labels, sorted(without_path))

    def say_without_path(self) -> None:
        """Name the utterances that are too short for their words: there is no alignment of them."""
        if names := self.without_path:
            fault = "utterances have fewer frames than their words have states, not aligned"
            progress.say(f"{len(names)} {fault}: {first_of(names, 20)}")


class Aligner:
    """Trains monophones on utterances, then triphones if they are asked for, and aligns these or other ones.

    Args:
        features: of the models; normalised within the utterance, since nothing is fitted before.
        lexicon: has every word of every utterance.
        topology: has every phone of the lexicon.
        schedule: realignments of the training of monophones.
        growth: limits for the tying of triphones' states; None for monophones alone.

    The last models score the features without their time derivatives: regressions over five frames tell phones apart,
    and blur where one ends. `states` is the numbering of their states, the topology or the tied states of triphones,
    and `size` the number of features that they score.
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
        self.times = FrameTimes.of(features)

    def train(self, spoken: Sequence[Spoken]) -> None:
        """Train from a flat start; a line for each realignment. Raises DataError for audio that cannot be read."""
        examples = self._examples(spoken)
        words = {each.utterance.id: each.words for each in spoken}
        mixtures = gmm.train(examples, self.topology.num_pdfs, self.schedule, say_round)
        if self.growth is not None:
            self.states = tied(examples, mixtures, self.topology, self.growth)
            progress.say(f"{self.states.num_pdfs:,} tied states of triphones")
            examples = continued(examples, mixtures, words, self.lexicon, self.states)
            mixtures = gmm.train(examples, self.states.num_pdfs, TRIPHONE_SCHEDULE, say_round)
        if self.features.orders > 1:
            examples = continued(examples, mixtures, words, self.lexicon, self.states)
            self.size = self.features.size // self.features.orders
            examples = [example._replace(features=example.features[:, : self.size]) for example in examples]
            mixtures = gmm.train(examples, self.states.num_pdfs, STATIC_SCHEDULE, say_round)
        self.mixtures = mixtures

    def align(self, spoken: Sequence[Spoken]) -> Alignment:
        """Align utterances by the trained models, in their order. Raises DataError for audio that cannot be read."""
        assert self.mixtures is not None, "train first"
        found = gmm.paths(self._examples(spoken), self.mixtures)
        paths = ((example.id, example.graph, path) for example, path in found)
        return Alignment.of_paths(spoken, paths, self.times)

    def _examples(self, spoken: Sequence[Spoken]) -> list[Example]:
        return [
            Example(
                each.utterance.id,
                _rows(each.utterance, self.features)[:, : self.size],
                each.graph(self.lexicon, self.states),
                first_path(each.words, self.lexicon, self.topology),
            )
            for each in progress.counted(iter(spoken), len(spoken), "utterances read")
        ]


class NetworkAligner:
    """Aligns utterances by the posteriors of a network over the priors of its states (Bourlard & Morgan 1994).

    A frame x in state s has the score acoustic_scale * (log p(s | x) - prior_scale * log p(s)); transitions cost what
    the topology says.

    Args:
        model: trained, in evaluation mode.
        lexicon: has every word of every utterance.
        states: those of phones or of triphones, the outputs of the model.
        acoustic_scale: weight of the scores of frames against the costs of transitions.
        prior_scale: weight of the priors; 0 for posteriors alone.
    """

    def __init__(
        self,
        model: AcousticModel,
        lexicon: Lexicon,
        states: StateNumbering,
        acoustic_scale: float = 1.0,
        prior_scale: float = 1.0,
    ) -> None:
        self.model, self.lexicon, self.states = model, lexicon, states
        self.acoustic_scale, self.prior_scale = acoustic_scale, prior_scale
        self.times = FrameTimes.of(model.features)

    def align(self, spoken: Sequence[Spoken]) -> Alignment:
        """Align utterances, in their order. Raises DataError for audio that cannot be read."""
        return Alignment.of_paths(spoken, self._paths(spoken), self.times)

    @torch.no_grad()
    def _paths(self, spoken: Sequence[Spoken]) -> Iterator[tuple[str, AlignmentGraph, BestPath | None]]:
        """Id, graph and best path of each utterance, in batches of like lengths."""
        by_length = sorted(spoken, key=lambda each: (each.utterance.duration_s, each.utterance.id))
        starts = range(0, len(by_length), BATCH)
        for start in progress.counted(iter(starts), len(starts), "batches aligned"):
            batch = by_length[start : start + BATCH]
            waveforms = [read(each.utterance, self.model.features.sample_rate) for each in batch]
            num_samples = torch.tensor([len(each) for each in waveforms])
            padded = pad_sequence(waveforms, batch_first=True).to(self.model.device)
            scores, num_frames = self.model.search_inputs(padded, num_samples)
            emissions = scores.emissions(self.acoustic_scale, self.prior_scale)
            graphs = [each.graph(self.lexicon, self.states) for each in batch]
            names = [each.utterance.id for each in batch]
            yield from zip(names, graphs, viterbi(emissions, num_frames, graphs), strict=True)


def corpus_labels(
    corpus: Corpus,
    splits: Mapping[str, Sequence[Utterance]],
    dictionary: Lexicon,
    features: Config,
    data_dir: Path,
    growth: Growth | None = None,
) -> FrameLabels:
    """Labels of some splits: read from `<data_dir>/labels/<corpus>-<hash of all they depend on>`, or made first.

    The models are trained on the first of the splits. An utterance that no path fits has no labels, and is named.

    Args:
        corpus: tells the words and, for a corpus of phones, their numbering.
        splits: utterances by split.
        dictionary: of all their words.
        features: section of a config, of the Gaussian mixtures.
        data_dir: folder of prepared data.
        growth: limits for the tying of triphones, whose states the labels have then; None for those of phones.

    Raises DataError for words that the dictionary lacks and for audio that cannot be read.
    """
    everything = {split: spoken.spoken(corpus, utterances) for split, utterances in splits.items()}
    spoken.require_known(
        everything,
        dictionary,
        "leave these utterances out: las align with partial=true labels=FOLDER, then las train with labels=FOLDER",
    )
    topology = spoken.topology(corpus, dictionary)
    described = {
        "format": _FORMAT,
        "utterances": {split: manifest.content_hash(utterances) for split, utterances in splits.items()},
        "lexicon": dictionary.content_hash,
        "topology": [topology.content_hash, *topology.speech, *topology.pause],
        "features": features,
        "schedule": DEFAULT_SCHEDULE,
        **({} if growth is None else {"tying": growth}),
    }
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    folder = data_dir / "labels" / f"{corpus.name}-{digest[:12]}"
    if (folder / INDEX).is_file():
        return FrameLabels(folder)
    total = sum(map(len, everything.values()))
    progress.say(f"labels of frames: {corpus.name} has none yet, so {total:,} utterances are aligned (las align)")
    aligner = Aligner(build(features, where="features")(corpus.sample_rate), dictionary, topology, growth=growth)
    aligner.train(next(iter(everything.values())))
    found = aligner.align([each for listed in everything.values() for each in listed])
    found.say_without_path()
    stored = write_labels(folder, found, aligner.states, aligner.times)
    progress.say(f"labels of {stored.counts().sum():,} frames written to {folder}, for other seeds and models too")
    return stored


def write_labels(folder: str | Path, found: Alignment, states: StateNumbering, times: FrameTimes) -> FrameLabels:
    """Write the labels of aligned utterances, and before them the tying of their states where these are tied."""
    if isinstance(states, TiedStates):
        states.write(Path(folder) / tying.TYING)
    labelled = ((each.id, found.labels[each.id]) for each in found.aligned)
    return labels.write(folder, labelled, LabelKind.of(states, times))


def tied(examples: Sequence[Example], mixtures: Mixtures, topology: Topology, growth: Growth) -> TiedStates:
    """Tie the states of the triphones on the best paths of examples under monophone models."""
    found = ((example, path) for example, path in gmm.paths(examples, mixtures) if path is not None)
    frames = torch.cat([example.features for example in examples]).double()
    floor = VARIANCE_FLOOR * frames.var(0, correction=0).numpy()
    statistics = decision_tree.statistics(found, decision_tree.edge(topology))
    return tying.estimate(statistics, topology, floor, growth)


def labelled_examples(
    spoken: Sequence[Spoken], labels: Mapping[str, Labels], features: Features, lexicon: Lexicon, states: StateNumbering
) -> list[Example]:
    """Examples of the utterances that have labels, the pdf of every frame; others are left out.

    The features may be others than those that the labels were found by, of the same frames.
    Raises DataError for audio that cannot be read.
    """
    return [
        Example(name, _rows(each.utterance, features), each.graph(lexicon, states), labels[name].tolist())
        for each in progress.counted(iter(spoken), len(spoken), "utterances read")
        if (name := each.utterance.id) in labels
    ]


def _rows(utterance: Utterance, features: Features) -> Float[Tensor, "frames size"]:
    waveform = read(utterance, features.sample_rate).unsqueeze(0)
    rows, _ = features(waveform, torch.tensor([waveform.shape[1]]))
    return rows[0]


def recognition_schedule(num_frames: int, num_pdfs: int) -> Schedule:
    """Realignments of models that find words: as many doublings as the training frames allow, five at most."""
    doublings = (num_frames // (FRAMES_PER_GAUSSIAN * num_pdfs)).bit_length() - 1
    return RECOGNITION_SCHEDULE._replace(doublings=min(max(doublings, 0), RECOGNITION_SCHEDULE.doublings))


def continued(
    examples: Sequence[Example],
    mixtures: Mixtures,
    words: Mapping[str, Sequence[str]],
    lexicon: Lexicon,
    states: StateNumbering,
) -> list[Example]:
    """Examples of other states, whose first paths are the best ones under `mixtures`, in the other numbering.

    Those that no path fits, which are too short for their words, have none under other states either and are left out.

    Args:
        examples: utterances with the graphs of `mixtures`.
        words: of each utterance, by its id.
    """
    found = []
    for example, path in gmm.paths(examples, mixtures):
        if path is not None:
            where, pdfs = f"utterance {example.id}", list[int]()
            for (left, phone, right), visited in decision_tree.visits(example.graph, path, None):
                seen = Triphone(states.neighbour(left), phone, states.neighbour(right))
                of_states = states.in_context(seen, where)
                pdfs += [of_states[state] for state in visited.tolist()]
            graph = alignment_graph(words[example.id], lexicon, states, where)
            found.append(example._replace(graph=graph, first_path=pdfs))
    return found


def say_round(realignment: Round) -> None:
    """Print a line for a realignment."""
    score, gaussians = realignment.score, realignment.num_components
    progress.say(f"realignment {realignment.number}: {gaussians:,} Gaussians, {score:.3f} per frame")
