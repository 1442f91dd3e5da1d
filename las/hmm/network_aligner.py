"""Forced alignment of a corpus by a trained acoustic model: realignment with the network."""

from collections.abc import Iterator, Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from las.data.loader import read
from las.hmm import graph
from las.hmm.aligner import Alignment
from las.hmm.frame_times import FrameTimes
from las.hmm.graph import AlignmentGraph
from las.hmm.lexicon import Lexicon
from las.hmm.spoken import Spoken
from las.hmm.topology import StateNumbering
from las.hmm.viterbi import Path, viterbi
from las.nn.acoustic_model import AcousticModel
from las.runtime import progress

BATCH = 16
"""Utterances that the model hears at once."""


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

    @property
    def times(self) -> FrameTimes:
        """Times of the frames of the model's features."""
        return FrameTimes.of(self.model.features)

    def align(self, spoken: Sequence[Spoken]) -> Alignment:
        """Align utterances, in their order. Raises DataError for audio that cannot be read."""
        return Alignment.of_paths(spoken, self._paths(spoken), self.times)

    @torch.no_grad()
    def _paths(self, spoken: Sequence[Spoken]) -> Iterator[tuple[str, AlignmentGraph, Path | None]]:
        """Id, graph and best path of each utterance, in batches of like lengths."""
        by_length = sorted(spoken, key=lambda each: (each.utterance.duration_s, each.utterance.id))
        starts = range(0, len(by_length), BATCH)
        for start in progress.counted(iter(starts), len(starts), "batches aligned"):
            batch = by_length[start : start + BATCH]
            waveforms = [read(each.utterance, self.model.features.sample_rate) for each in batch]
            num_samples = torch.tensor([len(each) for each in waveforms])
            padded = pad_sequence(waveforms, batch_first=True).to(self.model.device)
            scores, num_frames = self.model.decoder(padded, num_samples)
            emissions = self.acoustic_scale * (scores.log_posteriors - self.prior_scale * scores.log_priors)
            graphs = [
                graph.alignment_graph(words, self.lexicon, self.states, f"utterance {utterance.id}")
                for utterance, words in batch
            ]
            names = [each.utterance.id for each in batch]
            yield from zip(names, graphs, viterbi(emissions, num_frames, graphs), strict=True)
