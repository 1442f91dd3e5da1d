"""Training that goes on from an alignment: with other states of the same phones, or other features.

The states of all frames are known before the first realignment, so that nothing begins flat: the first models are
estimated on them, then split and realigned as those before were.
"""

from collections.abc import Mapping, Sequence

import torch

from las.data.loader import read
from las.hmm import gmm_training, triphones, tying
from las.hmm.decision_tree import Growth
from las.hmm.gmm import VARIANCE_FLOOR, Mixtures
from las.hmm.gmm_training import Example, Schedule
from las.hmm.graph import alignment_graph
from las.hmm.labels import Labels
from las.hmm.lexicon import Lexicon
from las.hmm.spoken import Spoken
from las.hmm.topology import StateNumbering, Topology, Triphone
from las.hmm.tying import TiedStates
from las.hmm.viterbi import Path
from las.nn.features import Features
from las.runtime import progress

TRIPHONE_SCHEDULE = Schedule(first=4, doublings=2, after_each=3)
"""One doubling less than monophones have, of more states."""
STATIC_SCHEDULE = Schedule(first=2, doublings=2, after_each=2)

RECOGNITION_SCHEDULE = Schedule(first=2, doublings=5, after_each=3)
"""Words take more Gaussians than boundaries; `recognition_schedule` has fewer for fewer frames."""
FRAMES_PER_GAUSSIAN = 50
"""Frames for each Gaussian of models that find words, on average, at least."""


def tied(examples: Sequence[Example], mixtures: Mixtures, topology: Topology, growth: Growth) -> TiedStates:
    """Tie the states of the triphones on the best paths of examples under monophone models."""
    found = ((example, path) for example, path in gmm_training.paths(examples, mixtures) if path is not None)
    frames = torch.cat([example.features for example in examples]).double()
    floor = VARIANCE_FLOOR * frames.var(0, correction=0).numpy()
    return tying.estimate(triphones.statistics(found, triphones.edge(topology)), topology, floor, growth)


def of_labels(
    spoken: Sequence[Spoken],
    labels: Mapping[str, Labels],
    features: Features,
    lexicon: Lexicon,
    states: StateNumbering,
) -> list[Example]:
    """Examples of the utterances that have labels, the pdf of every frame; others are left out.

    The features may be others than those that the labels were found by, of the same frames.
    Raises DataError for audio that cannot be read.
    """
    examples = []
    for utterance, words in progress.counted(iter(spoken), len(spoken), "utterances read"):
        if utterance.id in labels:
            waveform = read(utterance, features.sample_rate).unsqueeze(0)
            rows, _ = features(waveform, torch.tensor([waveform.shape[1]]))
            graph = alignment_graph(words, lexicon, states, f"utterance {utterance.id}")
            examples.append(Example(utterance.id, rows[0], graph, labels[utterance.id].tolist()))
    return examples


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
    """Examples of other states, whose first paths are the best ones under `mixtures`.

    Those that no path fits, which are too short for their words, have none under other states either and are left out.

    Args:
        examples: utterances with the graphs of `mixtures`.
        words: of each utterance, by its id.
    """
    return [
        example._replace(
            graph=alignment_graph(words[example.id], lexicon, states, f"utterance {example.id}"),
            first_path=renumbered(example, path, states),
        )
        for example, path in gmm_training.paths(examples, mixtures)
        if path is not None
    ]


def renumbered(example: Example, path: Path, states: StateNumbering) -> list[int]:
    """The pdfs of the frames of a path in another numbering."""
    pdfs: list[int] = []
    for (left, phone, right), own in triphones.visits(example.graph, path, None):
        seen = Triphone(states.neighbour(left), phone, states.neighbour(right))
        of_states = states.in_context(seen, f"utterance {example.id}")
        pdfs += [of_states[state] for state in own.tolist()]
    return pdfs
