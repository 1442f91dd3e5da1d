"""The lattice of a transducer against the enumeration of its paths, and the model that is made of it."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from update_cases import STILL, batch

from las.config.build import build, compose
from las.data.loader import Batch
from las.decoding.search import BeamSearch
from las.nn import transducer, transducer_model
from las.nn.losses import LabelSmoothedCrossEntropy, TransducerLoss
from las.nn.model import ListenAttendSpell
from las.nn.transducer import Arcs, lattice
from las.nn.transducer_model import TransducerModel
from las.runtime.errors import ConfigError

COUNT, STATES, TOKENS, VOCAB = 1000, 5, 3, 4
SMALL = ["model=transducer_small", "model.features.num_mels=8", "++model.features.normalisation=utterance"]
SMALL += [f"model.{part}.hidden_size=8" for part in ("listener", "prediction")]
SMALL += ["model.prediction.embedding_size=4", "model.joint.size=8", "model.listener.dropout=0.0"]
SMALL += ["model.listener.input_noise=0.0", "model.prediction.dropout=0.0"]


def lattices() -> tuple[Arcs, Tensor, Tensor]:
    """Random lattices with one to five states and up to three tokens, with random numbers in their padding."""
    generator = torch.Generator().manual_seed(1)
    arcs = 2 * torch.randn(2, COUNT, STATES, TOKENS + 1, generator=generator, dtype=torch.float64)
    num_states = torch.randint(1, STATES + 1, (COUNT,), generator=generator)
    return Arcs(*arcs), num_states, torch.randint(0, TOKENS + 1, (COUNT,), generator=generator)


def enumerated(arcs: Arcs, num_states: int, num_tokens: int) -> Tensor:
    """Log-likelihoods of lattices of one size, path by path."""
    paths = []
    for written in itertools.combinations(range(num_states - 1 + num_tokens), num_tokens):
        state = token = 0
        score = torch.zeros(len(arcs.blank), dtype=torch.float64)
        for move in range(num_states - 1 + num_tokens):
            if move in written:
                score, token = score + arcs.token[:, state, token], token + 1
            else:
                score, state = score + arcs.blank[:, state, token], state + 1
        paths.append(score + arcs.blank[:, state, token])
    return torch.stack(paths).logsumexp(0)


def test_likelihood_and_gradient_are_those_of_all_paths() -> None:
    arcs, num_states, num_tokens = lattices()
    by_lattice, *_ = lattice(arcs, num_states, num_tokens)
    arcs, expected = Arcs(*(arc.requires_grad_() for arc in arcs)), []
    for states, tokens in itertools.product(range(1, STATES + 1), range(TOKENS + 1)):
        rows = ((num_states == states) & (num_tokens == tokens)).nonzero().squeeze(1)
        right = enumerated(Arcs(*(arc[rows] for arc in arcs)), states, tokens)
        torch.testing.assert_close(by_lattice[rows], right.detach())
        expected.append(right.sum())
    total = -torch.stack(expected).sum()
    found = transducer.loss(arcs, num_states, num_tokens)
    torch.testing.assert_close(found, total)
    for ours, right in zip(*(torch.autograd.grad(each, arcs) for each in (found, total)), strict=True):
        torch.testing.assert_close(ours, right)


def test_the_gradient_is_that_of_finite_differences() -> None:
    arcs, num_states, num_tokens = lattices()
    _, *taken = lattice(arcs, num_states, num_tokens)
    direction = torch.randn(2, COUNT, STATES, TOKENS + 1, dtype=torch.float64)
    moved = (Arcs(*(torch.stack(list(arcs)) + step * direction)) for step in (1e-5, -1e-5))
    ahead, behind = (lattice(each, num_states, num_tokens)[0] for each in moved)
    slopes = sum((part * along).sum((1, 2)) for part, along in zip(taken, direction, strict=True))
    torch.testing.assert_close(slopes, (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-8)


def test_padding_changes_nothing_whatever_it_holds() -> None:
    arcs, num_states, num_tokens = lattices()
    filled = zip(arcs, (math.nan, 9.0), strict=True)
    padded = [torch.nn.functional.pad(arc, (0, 2, 0, 3), value=value) for arc, value in filled]
    wide, tight = (lattice(Arcs(*each), num_states, num_tokens) for each in (padded, arcs))
    torch.testing.assert_close(wide[0], tight[0])
    for ours, right in zip(wide[1:], tight[1:], strict=True):
        torch.testing.assert_close(ours[:, :STATES, : TOKENS + 1], right)
        assert float(ours.sum()) == pytest.approx(float(right.sum()))


def test_an_utterance_without_states_adds_nothing() -> None:
    arcs, num_states, num_tokens = lattices()
    num_states[:2] = 0
    arcs = Arcs(*(arc.requires_grad_() for arc in arcs))
    rest = transducer.loss(Arcs(*(arc[2:] for arc in arcs)), num_states[2:], num_tokens[2:])
    found = transducer.loss(arcs, num_states, num_tokens)
    torch.testing.assert_close(found, rest)
    assert float(torch.autograd.grad(found, arcs)[0][:2].abs().sum()) == 0.0


def model(*overrides: str) -> TransducerModel:
    torch.manual_seed(1)
    made: TransducerModel = build(compose("train", [*SMALL, *overrides])["model"], where="model")(16000, VOCAB)
    return made


def spoken() -> Batch:
    given = batch(slice(0, 3))
    targets = (given.targets % (VOCAB - 1) + 1) * (given.targets > 0)
    return Batch(given.ids, given.waveforms, given.num_samples, targets, given.num_tokens)


def losses(of: TransducerModel) -> list[Tensor]:
    """The loss of a batch, and its gradients."""
    output = of.forward_batch(spoken(), lambda features, num_frames, keys, orders: features)
    loss = TransducerLoss().objective(of, output, spoken())
    return [loss, *torch.autograd.grad(loss, list(of.parameters()))]


def test_states_by_turns_give_the_same_loss_and_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    of = model()
    together = losses(of)
    monkeypatch.setattr(transducer_model, "AT_ONCE", 100)
    for ours, right in zip(losses(of), together, strict=True):
        torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("cell", ["lstm", "ln_global", "bn_recurrent"])
def test_fed_tokens_have_the_likelihood_of_the_lattice(cell: str) -> None:
    of, given = model(f"cell@model.prediction.cell={cell}").eval(), spoken()
    output, _, num_states = of.output_and_search_inputs(given)
    assert output.logits.shape == (3, 5, VOCAB)
    torch.testing.assert_close(output.logits.exp().sum(-1), torch.ones(3, 5, dtype=output.logits.dtype))
    by_tokens = LabelSmoothedCrossEntropy()(output.logits, given.targets, given.num_tokens).loss
    by_lattice = transducer.loss(output.arcs, num_states, given.num_tokens)
    torch.testing.assert_close(by_tokens.float(), by_lattice, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_hypotheses_have_the_likelihoods_of_their_lattices() -> None:
    of, given = model().eval(), spoken()
    decoder, num_states = of.search_inputs(given.waveforms, given.num_samples)
    search = BeamSearch(6, length_normalisation=0.0, nbest=6, max_length=3)
    for row, nbest in enumerate(search(decoder, num_states)):
        assert len({tuple(each.tokens) for each in nbest}) == 6
        for each in nbest:
            tokens = torch.tensor([each.tokens], dtype=torch.long)
            alone = decoder.select_utterances(torch.tensor([row]))
            expected = transducer.loss(alone.arcs(tokens), alone.num_states, torch.tensor([len(each.tokens)]))
            assert each.score == pytest.approx(-float(expected), rel=1e-4)


@torch.no_grad()
def test_weights_of_tokens_are_probabilities_and_times_go_on() -> None:
    of, given = model().eval(), spoken()
    decoder, num_states = of.search_inputs(given.waveforms, given.num_samples)
    weights = of.spell(decoder, given.targets, given.num_tokens.tolist()).weights
    for row, count, states in zip(weights, given.num_tokens.tolist(), num_states.tolist(), strict=True):
        torch.testing.assert_close(row[:count, :states].sum(1), torch.ones(count))
        times = [time for span in of.token_times(row[: count + 1, :states], 9.0) for time in span]
        assert times == sorted(times)


def test_other_losses_and_models_are_refused() -> None:
    of, given = model(), spoken()
    output = of.forward_batch(given, lambda features, num_frames, keys, orders: features)
    for loss in ("cross_entropy", "ctc"):
        with pytest.raises(ConfigError, match="loss"):
            build(compose("train", [f"loss={loss}"])["loss"], where="loss").objective(of, output, given)
    speller: ListenAttendSpell = build(compose("train", STILL)["model"], where="model")(16000, VOCAB)
    with pytest.raises(ConfigError, match="transducer_small"):
        TransducerLoss().objective(speller, speller(given.waveforms, given.num_samples, given.targets), given)
