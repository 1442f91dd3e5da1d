"""Teacher-forced passes in C++ against `Speller.decode_step` step by step."""

from typing import Any

import pytest
import torch
from kernel_cases import compiles
from speller_cases import ATTENTIONS, CELLS, NUM_STATES, TARGETS, VALUE, make, material, plain, results
from tiers import rest_slow
from torch import Tensor

from las.nn.attention.dot import DotAttention
from las.nn.dropout import BatchDropout
from las.nn.kernels import choice
from las.nn.kernels.cpp.speller import CppDecoderLoop
from las.nn.speller import STEPS
from las.runtime.errors import ConfigError

OPTIONS: tuple[dict[str, Any], ...] = (
    {"num_layers": 1},
    {"num_layers": 3, "dropout": 0.4},
    {"num_layers": 2, "dropout": 0.4, "dropout_mask": BatchDropout, "first_input": "zeros"},
    {
        **{"num_layers": 2, "dropout": 0.3, "scheduled_sampling": 0.5},
        **{"readout": "maxout", "readout_size": 6, "readout_reads": "state_and_token"},
    },
)
pytestmark = compiles
every_attention = pytest.mark.parametrize("attention", ATTENTIONS)


@every_attention
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("options", rest_slow(reversed(OPTIONS)), ids=str)
def test_values_and_gradients_are_those_of_the_plain_loop(attention: str, cell: str, options: dict[str, Any]) -> None:
    """Also with dropout and sampling: both loops draw the same numbers from torch's generator."""
    speller = make(attention, cell, **options).train()
    assert speller.explain(material()) == "speller: cpu"
    ours = results(speller, material())
    torch.testing.assert_close(ours, plain(speller, material()), rtol=1e-9, atol=1e-11)
    assert all(map(torch.equal, ours, results(speller, material())))
    other = results(speller, material(), seed=8)[0]
    assert torch.equal(other, ours[0]) != bool(options.keys() & {"dropout", "scheduled_sampling"})


@pytest.mark.parametrize("cell", CELLS)
def test_no_two_gradients_share_memory(cell: str) -> None:
    """Whoever scales them in place, as clipping does, would scale twice what is shared."""
    speller = make("location", cell, num_layers=2)
    speller(speller.attention.prepare(material(), NUM_STATES), TARGETS).logits.square().sum().backward()
    grads = [parameter.grad for parameter in speller.parameters() if parameter.grad is not None]
    before = [grad.clone() for grad in grads]
    for grad in grads:
        grad.mul_(0.5)
    assert all(torch.equal(grad, 0.5 * old) for grad, old in zip(grads, before, strict=True))


@every_attention
def test_without_gradients_the_same_and_twice_backwards_too(attention: str) -> None:
    speller = make(attention, "tf_contrib", num_layers=2)
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
    with pytest.raises(RuntimeError, match="inplace operation"):
        found.logits.sum().backward()


@every_attention
@pytest.mark.parametrize("cell", ["lstm", "ba2016"])
def test_half_precision_is_computed_in_fp32(attention: str, cell: str) -> None:
    speller = make(attention, cell).to(torch.bfloat16)
    encoded = material().to(torch.bfloat16)
    ours = results(speller, encoded)
    assert {part.dtype for part in ours} == {torch.bfloat16}
    wide = results(speller.float(), encoded.float())
    torch.testing.assert_close(ours[0].float(), wide[0], rtol=0.05, atol=0.05)
    torch.testing.assert_close(ours[1].float(), wide[1], rtol=0.02, atol=0.005)


@every_attention
def test_the_number_of_threads_changes_no_bit(attention: str) -> None:
    speller = make(attention, "zeineldeen2020_global_cell")
    generator = torch.Generator().manual_seed(5)
    encoded = torch.randn(21, 40, VALUE, generator=generator, dtype=torch.float64).requires_grad_()
    targets, lengths = torch.randint(0, 6, (21, 9), generator=generator), torch.arange(21, 42).clamp(max=40)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        logits = speller(speller.attention.prepare(encoded, lengths), targets).logits
        found.append([logits, *torch.autograd.grad(logits.square().sum(), [encoded])])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-12, atol=1e-12)


def test_an_error_while_drawing_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    speller = make(scheduled_sampling=1.0).train()

    def broken(tokens: Tensor, readout: Tensor) -> Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr(speller, "_sample", broken)
    with pytest.raises(KeyboardInterrupt):
        results(speller, material())


def test_tensors_of_several_types_never_reach_the_compiled_loop() -> None:
    speller = make("dot")
    speller.attention.float()
    memory = speller.attention.prepare(material().float(), NUM_STATES)
    with pytest.raises(TypeError, match="of one type"):
        speller(memory, TARGETS)


class Gentle(DotAttention):
    """An attention that nobody wrote a backward pass for."""

    def energy(self, query: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        return 0.5 * super().energy(query, keys, weights)


def test_an_unknown_attention_takes_the_plain_loop_and_says_why() -> None:
    speller = make("dot")
    before = results(speller, material())
    speller.attention.__class__ = Gentle
    reason = "Gentle is not among the compiled attentions"
    assert speller.explain(material()) == f"speller: plain ({reason})"
    after = results(speller, material())
    assert (after[1] - before[1]).abs().max() > 1e-3
    assert all(map(torch.equal, after, plain(speller, material())))


def test_the_kernel_that_is_asked_for_decides() -> None:
    speller = make("dot")
    with choice.use_kernel("plain"):
        assert speller.explain(material()) == "speller: plain"
    speller.cells[0].__class__ = type("Other", (type(speller.cells[0]),), {})
    assert speller.explain(material()) == "speller: plain"
    with choice.use_kernel("cpu"), pytest.raises(ConfigError, match="cannot compute Other"):
        speller.explain(material())


def test_a_compiled_pass_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are steps of a search, whose self-test is their own."""
    speller = make("location")
    monkeypatch.setattr(choice, "_failures", {})
    with monkeypatch.context() as patch:
        results = CppDecoderLoop.results
        patch.setattr(CppDecoderLoop, "results", lambda loop: tuple(1.01 * part for part in results(loop)))
        line = speller.explain(material())
    assert line.startswith("speller: plain (cpu: fails its self-test: LocationAttention differs by 0.01 of")
    with torch.no_grad():
        memory = speller.attention.prepare(material(), NUM_STATES)
        assert speller.select_step_fn(memory) is not None
        steps = STEPS[type(speller.attention)]
        patched = steps.trial
        monkeypatch.setattr(steps, "trial", lambda: [(name, 1.01 * ours, right) for name, ours, right in patched()])
        monkeypatch.setattr(choice, "_failures", {})
        assert speller.select_step_fn(memory) is None
