"""Gaussian mixtures: densities as torch has them, a likelihood that never falls, planted times; a model of a search."""

import itertools

import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal
from toy_hmm import EVEN

from las.hmm import gmm, lexicon
from las.hmm.gmm import Example, GaussianModel, Mixtures, Round, Schedule, Statistics
from las.hmm.graph import alignment_graph, first_path
from las.hmm.topology import Topology
from las.nn.features import MFCC, PRIOR_FRAMES

PHONES = lexicon.of_phones("abc")
TOPOLOGY = Topology(PHONES.phones, speech=EVEN)


def mixtures(pdfs: int = 3, components: int = 2, size: int = 4) -> Mixtures:
    torch.manual_seed(1)
    weights = torch.softmax(torch.randn(pdfs, components), -1)
    means, variances = torch.randn(pdfs, components, size), torch.rand(pdfs, components, size) + 0.2
    return Mixtures(weights, means, variances, torch.full((size,), 1e-3))


def test_log_likelihoods_are_those_of_torch() -> None:
    ours, frames = mixtures(), torch.randn(10, 4)
    ours = Mixtures(torch.cat([torch.tensor([[1.0, 0.0]]), ours.weights[1:]]), ours.means, ours.variances, ours.floor)
    assert ours.num_components == 5, "one is not there"
    of_torch = MixtureSameFamily(Categorical(ours.weights), Independent(Normal(ours.means, ours.variances.sqrt()), 1))
    expected = of_torch.log_prob(frames.unsqueeze(-2).expand(10, 3, 4))
    torch.testing.assert_close(ours.log_likelihoods(frames), expected)
    chosen = torch.tensor([2, 0])
    torch.testing.assert_close(ours.log_likelihoods(frames, chosen), expected[:, chosen])
    for pdf in range(3):
        torch.testing.assert_close(ours.component_scores(frames, pdf).logsumexp(-1), expected[:, pdf])


def test_expectation_maximisation_never_lowers_the_likelihood() -> None:
    torch.manual_seed(2)
    frames = torch.cat([torch.randn(300, 2) * 0.3 + torch.tensor(centre) for centre in ([0.0, 0], [3, 1], [-2, 2])])
    pdfs = torch.zeros(len(frames), dtype=torch.long)
    found = Mixtures.single(1, frames.mean(0), frames.var(0, correction=0))
    scores: list[float] = []
    for _ in range(3):
        for _ in range(12):
            statistics = Statistics.zeros(found.means)
            statistics.add(frames, pdfs, found)
            before = float(found.log_likelihoods(frames).sum())
            found = found.updated(statistics)
            assert float(found.log_likelihoods(frames).sum()) >= before - 1e-2
        scores.append(float(found.log_likelihoods(frames).mean()))
        found = found.split(statistics)
    assert scores[2] > scores[1] > scores[0] + 0.3
    assert found.weights.sum() == pytest.approx(1.0)


def test_a_pdf_without_frames_stays_and_a_starved_component_goes() -> None:
    start = mixtures(pdfs=2)
    statistics = Statistics.zeros(start.means)
    statistics.add(torch.randn(40, 4) * 0.01 + start.means[0, 0], torch.zeros(40, dtype=torch.long), start)
    found = start.updated(statistics)
    assert torch.equal(found.weights[1], start.weights[1]) and torch.equal(found.means[1], start.means[1])
    assert found.weights[0].tolist() == pytest.approx([1.0, 0.0])
    assert (found.variances[0, 0] >= start.floor).all()
    assert torch.isfinite(found.log_likelihoods(torch.randn(3, 4))).all()


def planted(count: int) -> tuple[list[Example], list[list[int]]]:
    """Texts of random phones, each state of which has a mean of its own and lasts 2 to 6 frames; the true pdfs."""
    torch.manual_seed(3)
    centres = 4.0 * torch.randn(TOPOLOGY.num_pdfs, 6)
    examples, truth = [], []
    for number in range(count):
        words = [PHONES.phones[index] for index in torch.randint(3, (5,)).tolist()]
        path = first_path(words, PHONES, TOPOLOGY)
        pdfs = [pdf for pdf in path for _ in range(int(torch.randint(2, 7, ())))]
        features = centres[pdfs] + torch.randn(len(pdfs), 6)
        examples.append(Example(f"u{number:03d}", features, alignment_graph(words, PHONES, TOPOLOGY), path))
        truth.append(pdfs)
    return examples, truth


def test_a_flat_start_finds_planted_states_and_the_score_does_not_fall() -> None:
    examples, truth = planted(60)
    rounds: list[Round] = []
    found = gmm.train(examples, TOPOLOGY.num_pdfs, Schedule(first=10, doublings=1, after_each=3), rounds.append)
    by_id = {example.id: pdfs for example, pdfs in zip(examples, truth, strict=True)}
    right = total = 0
    for example, path in gmm.paths(examples, found):
        assert path is not None
        right += (torch.tensor(by_id[example.id]) == torch.from_numpy(example.graph.pdfs[path.states])).sum().item()
        total += len(path.states)
    assert right / total > 0.97
    for before, after in itertools.pairwise(rounds):
        assert after.num_components != before.num_components or after.score >= before.score - 1e-4
    assert rounds[-1].num_components == 2 * TOPOLOGY.num_pdfs


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
    difference = scores.log_posteriors - scores.log_priors - torch.stack([*map(own.mixtures.log_likelihoods, rows)])
    torch.testing.assert_close(difference, difference[..., :1].expand_as(difference), rtol=0, atol=1e-4)
    torch.testing.assert_close(scores.log_posteriors.exp().sum(-1), torch.ones(2, 18))
    torch.testing.assert_close(scores.log_priors.exp(), torch.arange(1.0, 7.0) / 21.0)


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
