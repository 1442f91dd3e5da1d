"""The teacher-forced pass written by hand against the plain loop, `Speller.advance` step by step."""

import pytest
import torch
from test_speller import NUM_STATES, STATES, TARGETS, VALUE, make
from torch import Tensor

from las import recurrent
from las.attention.dot import DotAttention
from las.errors import ConfigError
from las.kernels import spelling
from las.speller import Speller, Spelling

ATTENTIONS = ("additive", "dot", "location")  # the others are refused: the plain loop computes them
CELLS = ("lstm", "ba2016", "zeineldeen2020_global", "zeineldeen2020_joined_cell", "tf_addons", "lingvo_simple", "haste")
OPTIONS: tuple[dict[str, float], ...] = (
    {"num_layers": 1},
    {"num_layers": 3, "dropout": 0.4},
    {"num_layers": 2, "dropout": 0.3, "scheduled_sampling": 0.5},
)
every_attention = pytest.mark.parametrize("attention", ATTENTIONS)


def material() -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(3, STATES, VALUE, generator=generator, dtype=torch.float64)


def results(kernel: str, speller: Speller, encoded: Tensor, seed: int = 7) -> list[Tensor]:
    """Logits, weights, and the gradients of a function of both towards the states and every parameter."""
    encoded = encoded.clone().requires_grad_()
    torch.manual_seed(seed)
    with recurrent.using(kernel):
        found = speller(speller.attention.prepare(encoded, NUM_STATES), TARGETS)
        wanted = found.logits.sin().sum() + (found.weights.square() * torch.arange(STATES)).sum()
        gradients = torch.autograd.grad(wanted, [encoded, *speller.parameters()])
    return [found.logits.detach(), found.weights.detach(), *gradients]


@every_attention
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_values_and_gradients_are_those_of_the_plain_loop(attention: str, cell: str, options: dict[str, float]) -> None:
    """Also with dropout and sampling: both loops draw the same numbers from torch's generator."""
    speller = make(attention, cell, **options).train()
    assert speller.why_plain(material()) == ""
    plain, ours = results("plain", speller, material()), results("autograd", speller, material())
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-11)
    assert torch.equal(ours[0], results("autograd", speller, material())[0])
    other = results("autograd", speller, material(), seed=8)[0]
    assert torch.equal(other, ours[0]) != bool(options.keys() & {"dropout", "scheduled_sampling"})


@every_attention
@pytest.mark.parametrize("cell", ["lstm", "zeineldeen2020_global_cell"])
def test_gradients_are_those_of_differences(attention: str, cell: str) -> None:
    speller = make(attention, cell, num_layers=2)
    names = [name for name, _ in speller.named_parameters()]

    def run(encoded: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        given = dict(zip(names, parameters, strict=True))
        found = torch.func.functional_call(Whole(speller), {f"speller.{name}": given[name] for name in names}, encoded)
        return found.logits, found.weights

    assert torch.autograd.gradcheck(run, (material().requires_grad_(), *speller.parameters()), fast_mode=True)


class Whole(torch.nn.Module):
    """Keys included."""

    def __init__(self, speller: Speller) -> None:
        super().__init__()
        self.speller = speller

    def forward(self, encoded: Tensor) -> Spelling:
        return self.speller(self.speller.attention.prepare(encoded, NUM_STATES), TARGETS)


@every_attention
def test_padded_states_reach_nothing(attention: str) -> None:
    speller = make(attention, "ba2016")
    padding = torch.arange(STATES) >= NUM_STATES.unsqueeze(1)
    poisoned = material().masked_fill(padding.unsqueeze(-1), float("nan"))
    clean = material().masked_fill(padding.unsqueeze(-1), 0.0)
    assert all(map(torch.equal, results("autograd", speller, poisoned), results("autograd", speller, clean)))


@every_attention
def test_an_utterance_without_states_poisons_nothing(attention: str) -> None:
    speller = make(attention)
    memory = speller.attention.prepare(material(), torch.tensor([8, 0, 1]))
    found = speller(memory, TARGETS)
    assert not found.weights[1].any() and found.weights[0].any()
    gradients = torch.autograd.grad(found.logits.sum(), list(speller.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)


@every_attention
def test_without_gradients_the_same_and_twice_backwards_too(attention: str) -> None:
    speller = make(attention, "tf_contrib", num_layers=1)
    memory = speller.attention.prepare(material(), NUM_STATES)
    found = speller(memory, TARGETS)
    with torch.no_grad():
        torch.testing.assert_close(speller(memory, TARGETS), found, rtol=1e-12, atol=1e-12)
    once, again = (
        torch.autograd.grad(found.logits.sum(), list(speller.parameters()), retain_graph=True) for _ in range(2)
    )
    assert all(map(torch.equal, once, again))


def test_a_parameter_changed_before_the_backward_pass_is_an_error() -> None:
    speller = make()
    found = speller(speller.attention.prepare(material(), NUM_STATES), TARGETS)
    with torch.no_grad():
        speller.get_parameter("attention.location.weight").add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.logits.sum().backward()


@every_attention
@pytest.mark.parametrize("cell", ["lstm", "ba2016"])
def test_half_precision_is_computed_in_fp32(attention: str, cell: str) -> None:
    speller = make(attention, cell).to(torch.bfloat16)
    encoded = material().to(torch.bfloat16)
    ours = results("autograd", speller, encoded)
    assert {part.dtype for part in ours} == {torch.bfloat16}
    wide = results("autograd", speller.float(), encoded.float())
    torch.testing.assert_close(ours[0].float(), wide[0], rtol=0.05, atol=0.05)
    torch.testing.assert_close(ours[1].float(), wide[1], rtol=0.02, atol=0.005)


class Gentle(DotAttention):
    """An attention that nobody wrote a backward pass for."""

    def energy(self, query: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        return 0.5 * super().energy(query, keys, weights)


def test_an_unknown_attention_takes_the_plain_loop_and_says_why() -> None:
    speller = make("dot")
    before = results("auto", speller, material())
    speller.attention.__class__ = Gentle
    assert speller.why_plain(material()) == "the equations of Gentle are not among those written by hand"
    assert spelling.refuses([], speller.attention)
    after = results("auto", speller, material())
    assert (after[1] - before[1]).abs().max() > 1e-3
    assert all(map(torch.equal, after, results("plain", speller, material())))


def test_the_kernel_that_is_asked_for_decides() -> None:
    speller = make("dot")
    with recurrent.using("plain"):
        assert speller.why_plain(material()) == "its cells do"
    speller.cells[0].__class__ = type("Other", (type(speller.cells[0]),), {})
    assert speller.why_plain(material())
    with recurrent.using("autograd"), pytest.raises(ConfigError, match="cannot compute Other"):
        speller.why_plain(material())
