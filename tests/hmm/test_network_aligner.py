"""Alignment by a network: the states that its scores say, with the priors taken out of the posteriors."""

import functools
from pathlib import Path

import soundfile
import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.data.manifest import Utterance
from las.hmm import lexicon
from las.hmm.aligner import NetworkAligner
from las.hmm.spoken import Spoken
from las.hmm.topology import Topology
from las.nn.acoustic_model import AcousticModel, FrameScores
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.features import LogMel
from las.nn.listener import Listener

PHONES = ("a", "b")
FEATURES = functools.partial(LogMel, num_mels=8, normalisation="none")
LISTENER = functools.partial(Listener, cell=PlainLSTMCell, num_layers=1, hidden_size=4, time_reduction=[1])


class Planted(AcousticModel):
    """A model that says by its posteriors which state each frame has, whatever it hears."""

    def __init__(self, states: list[int], prior: list[float], likelihood: float) -> None:
        super().__init__(16000, 1 + len(PHONES), features=FEATURES, listener=LISTENER)
        self.log_priors.copy_(torch.tensor(prior).log())
        likelihoods = torch.ones(len(states), self.num_pdfs)
        likelihoods[torch.arange(len(states)), torch.tensor(states)] = likelihood
        posteriors = likelihoods * self.log_priors.exp()
        self.rows = (posteriors / posteriors.sum(-1, keepdim=True)).log()

    def search_inputs(
        self, waveforms: Float[Tensor, "batch samples"], num_samples: Int[Tensor, " batch"]
    ) -> tuple[FrameScores, Int[Tensor, " batch"]]:
        batch = len(waveforms)
        rows = self.rows.expand(batch, -1, -1)
        return FrameScores(rows, self.log_priors, self.bigram), torch.full((batch,), rows.shape[1])


def aligned(folder: Path, model: Planted, **scales: float) -> list[list[int]]:
    """States of the frames of two utterances `a b`."""
    spoken = []
    for name in ("one", "two"):
        num_samples = 160 * (model.rows.shape[0] - 1) + 400
        soundfile.write(folder / f"{name}.wav", 0.1 * torch.randn(num_samples).numpy(), 16000)
        where = str(folder / f"{name}.wav")
        spoken.append(Spoken(Utterance(name, where, 0, 0.0, num_samples / 16000, "a b", ""), ["a", "b"]))
    alignment = NetworkAligner(model, lexicon.of_phones(PHONES), Topology(PHONES), **scales).align(spoken)
    assert [each.id for each in alignment.aligned] == ["one", "two"] and not alignment.without_path
    return [alignment.labels[name].tolist() for name in ("one", "two")]


def test_priors_are_taken_out_of_posteriors(tmp_path: Path) -> None:
    """The posterior of a frequent state is the higher one even where the likelihood speaks for another."""
    states = [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 4
    model = Planted(states, [0.01, 0.01, 0.94, 0.01, 0.01, 0.02], likelihood=20.0)
    assert aligned(tmp_path, model, acoustic_scale=10.0) == [states, states]
    biased = aligned(tmp_path, model, acoustic_scale=10.0, prior_scale=0.0)[0]
    assert biased.count(2) > 10


def test_scores_of_frames_are_weighed_against_transitions(tmp_path: Path) -> None:
    """A loop costs 3, so that a path of weak scores leaves a state early only if they count for more."""
    states = [0, 0, 1, 1, 2, 3, 3, 3, 4, 5]
    model = Planted(states, [1 / 6] * 6, likelihood=1.2)
    weak, strong = (aligned(tmp_path, model, acoustic_scale=scale)[0] for scale in (1e-6, 1e3))
    assert strong == states and weak != states
