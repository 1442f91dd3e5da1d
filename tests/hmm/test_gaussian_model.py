"""Gaussian mixtures as a model: likelihoods up to a factor of the frame, states that come back, features of its own."""

import itertools

import pytest
import torch

from las.data.loader import Batch
from las.hmm.gmm import GaussianModel, Mixtures
from las.nn.features import MFCC, PRIOR_FRAMES
from las.runtime.errors import ArgumentError, ConfigError

RATE = 8000


def features(sample_rate: int) -> MFCC:
    return MFCC(sample_rate, num_coefficients=3, num_mels=8, normalisation="smoothed")


def model(num_components: int = 2, **more: int) -> GaussianModel:
    """Two phones, with two Gaussians in the first state and one in the others."""
    torch.manual_seed(1)
    made = GaussianModel(RATE, 3, features=features, num_components=num_components, **more)
    shape = made.means.shape
    weights = torch.zeros(shape[:2])
    weights[:, 0] = 1.0
    weights[0] = 1.0 / num_components
    floor = torch.full((3,), 1e-3)
    made.set_mixtures(
        Mixtures(weights, torch.randn(shape), torch.rand(shape) + 0.2, floor), torch.arange(float(shape[0]))
    )
    return made


def noise(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    return torch.randn(len(lengths), max(lengths)), torch.tensor(lengths)


def test_scores_less_priors_are_log_likelihoods_but_for_what_all_states_of_a_frame_share() -> None:
    own = model()
    waveforms, num_samples = noise(1600, 900)
    scores, num_frames = own.search_inputs(waveforms, num_samples)
    assert num_frames.tolist() == [18, 9]
    rows, _ = own.features(waveforms, num_samples)
    difference = scores.log_posteriors - scores.log_priors - own.mixtures.log_likelihoods(rows)
    torch.testing.assert_close(difference, difference[..., :1].expand_as(difference), rtol=0, atol=1e-4)
    torch.testing.assert_close(scores.log_posteriors.exp().sum(-1), torch.ones(2, 18))
    torch.testing.assert_close(scores.log_priors.exp(), torch.arange(1.0, 7.0) / 21.0)


def test_likelihoods_are_sums_over_the_gaussians_that_are_there() -> None:
    own, rows = model().mixtures, torch.randn(5, 3)
    for pdf, frame in itertools.product(range(6), range(5)):
        density = torch.distributions.Normal(own.means[pdf], own.variances[pdf].sqrt())
        each = own.weights[pdf] * density.log_prob(rows[frame]).sum(-1).exp()
        assert float(own.log_likelihoods(rows)[frame, pdf].exp()) == pytest.approx(float(each.sum()), rel=1e-4)
    assert own.num_components == 7


def test_a_model_of_the_same_sizes_takes_over_everything() -> None:
    first, second = model(), GaussianModel(RATE, 3, features=features, num_components=2)
    first.features.fit([noise(1600, 900)])
    waveforms, num_samples = noise(1200)
    assert not torch.allclose(
        first.search_inputs(waveforms, num_samples)[0][0], second.search_inputs(waveforms, num_samples)[0][0]
    )
    second.load_state_dict(first.state_dict())
    assert torch.equal(
        first.search_inputs(waveforms, num_samples)[0][0], second.search_inputs(waveforms, num_samples)[0][0]
    )
    assert str(first.device) == "cpu" and not any(each.requires_grad for each in first.parameters())


def test_tied_states_have_a_number_of_their_own() -> None:
    assert model(num_pdfs=11).search_inputs(*noise(800))[0].log_posteriors.shape == (1, 8, 11)


def test_it_is_not_trained_by_updates_and_has_gaussians() -> None:
    waveforms, num_samples = noise(800)
    batch = Batch(["a"], waveforms, num_samples, torch.zeros(1, 1, dtype=torch.long), torch.tensor([1]))
    with pytest.raises(ConfigError, match=r"las align corpus=... output=x.ctm gaussians=FOLDER"):
        model().num_targets(batch)
    with pytest.raises(ArgumentError, match="num_components=0 must be at least 1"):
        model(num_components=0)


def test_smoothed_normalisation_lies_between_the_utterance_and_the_training_set() -> None:
    """By hand: the training set's moments weigh as PRIOR_FRAMES frames do beside those of the utterance."""
    own = features(RATE)
    own.fit([noise(8000, 5000)])
    waveforms, num_samples = noise(1600, 900)
    waveforms = 0.1 * waveforms
    raw, num_frames = own.raw(waveforms, num_samples)
    rows, _ = own(waveforms, num_samples)
    for row, count in enumerate(num_frames.tolist()):
        each, share = raw[row, :count], count / (count + PRIOR_FRAMES)
        mean = share * each.mean(0) + (1 - share) * own.mean
        variance = share * each.var(0, correction=0) + (1 - share) * own.deviation.square()
        torch.testing.assert_close(rows[row, :count], (each - mean) / variance.sqrt(), rtol=1e-4, atol=1e-4)
