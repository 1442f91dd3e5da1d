from typing import NamedTuple

import pytest
import torch
from speller_cases import HIDDEN, NUM_STATES, TARGETS, VALUE, VOCAB, make, material
from torch import Tensor, nn

from las.decoding.search import BeamSearch
from las.nn.attention.base import AttentionMemory
from las.nn.attention.location import LocationAttention
from las.nn.kernels import choice
from las.nn.model import Decoder
from las.nn.speller import Speller


def memory_of(speller: Speller) -> AttentionMemory:
    return speller.attention.prepare(material(), NUM_STATES)


@pytest.mark.parametrize("kernel", ["plain", "auto"])
def test_zeros_may_take_the_place_of_the_first_token(kernel: str) -> None:
    """In teacher forcing and in searches, whatever values the embedding of the boundary has."""
    outputs = []
    for moved in (0.0, 1.0):
        zeros, embedding = (
            make(first_input=first, readout_reads="state_and_token") for first in ("zeros", "embedding")
        )
        embedding.load_state_dict(zeros.state_dict())
        memory = memory_of(zeros)
        with torch.no_grad(), choice.use_kernel(kernel):
            zeros.embedding.weight[Speller.boundary] += moved
            embedding.embedding.weight[Speller.boundary] = 0.0
            tokens, step_fn = torch.zeros(3, 1, dtype=torch.long), zeros.select_step_fn(memory)
            first, _ = zeros.step(tokens, memory, zeros.start(memory), step_fn)
            whole = zeros(memory, TARGETS).logits
            torch.testing.assert_close(whole, embedding(memory, TARGETS).logits)
            torch.testing.assert_close(first[:, 0], whole[:, 0].log_softmax(-1))
            assert (step_fn is None) == (kernel == "plain")
        outputs.append(whole)
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("kernel", ["plain", "auto"])
def test_speller_equals_its_three_equations(kernel: str) -> None:
    """With the LSTM cells of torch and matrices written out; attention is tested on its own."""
    speller = make("additive")
    memory = memory_of(speller)
    oracles = []
    for cell in speller.cells:
        oracle = nn.LSTMCell(cell.input_size, HIDDEN, dtype=torch.float64)
        weights = (cell.input_weight, cell.recurrent_weight, cell.bias, torch.zeros_like(cell.bias))
        for parameter, weight in zip(oracle.parameters(), weights, strict=True):
            parameter.data.copy_(weight)
        oracles.append(oracle)
    states = [(torch.zeros(3, HIDDEN).double(),) * 2 for _ in oracles]
    context, remembered = torch.zeros(3, VALUE).double(), speller.attention.initial_state(memory)
    logits = []
    for tokens in [torch.zeros(3, dtype=torch.long), *TARGETS.unbind(1)]:
        inputs = torch.cat([speller.embedding.weight[tokens], context], -1)
        for layer, oracle in enumerate(oracles):
            states[layer] = oracle(inputs, states[layer])
            inputs = states[layer][0]
        attended, _, remembered = speller.attention.attend(inputs.unsqueeze(1), memory, remembered)
        context = attended.squeeze(1)
        hidden = torch.cat([inputs, context], -1) @ speller.readout.weight.T + speller.readout.bias
        logits.append(torch.tanh(hidden) @ speller.output.weight.T + speller.output.bias)
    with choice.use_kernel(kernel):
        torch.testing.assert_close(speller(memory, TARGETS).logits, torch.stack(logits, 1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("readout", ["tanh", "maxout"])
@pytest.mark.parametrize("reads", ["state", "state_and_token"])
def test_readouts_equal_their_equations(readout: str, reads: str) -> None:
    """From the state after each step: hidden, context and the embedding of the token before it."""
    speller = make("additive", readout=readout, readout_size=10, readout_reads=reads)
    memory, state = memory_of(speller), speller.start(memory_of(speller))
    p = {key: parameter.detach() for key, parameter in speller.named_parameters()}
    logits = speller(memory, TARGETS).logits
    for step, tokens in enumerate([torch.zeros(3, dtype=torch.long), *TARGETS.unbind(1)]):
        _, state = speller.step(tokens.unsqueeze(1), memory, state)
        parts = [state.layers[-1].hidden, p["embedding.weight"][tokens].unsqueeze(1), state.context]
        read = torch.cat(parts if reads == "state_and_token" else parts[::2], -1)[:, 0]
        wide = read @ p["readout.weight"].T + p["readout.bias"]
        if readout == "maxout":
            below = torch.stack([torch.maximum(wide[:, 2 * i], wide[:, 2 * i + 1]) for i in range(5)], 1)
        else:
            below = wide.tanh()
        torch.testing.assert_close(logits[:, step], below @ p["output.weight"].T + p["output.bias"])


class Counted(NamedTuple):
    weights: Tensor
    tokens: Tensor  # [batch, beam], before the token


class CountingAttention(LocationAttention):
    """Location-aware attention that also counts tokens, and looks nowhere at the third."""

    def initial_state(self, memory: AttentionMemory) -> Counted:
        weights = super().initial_state(memory)
        return Counted(weights, weights.new_zeros(weights.shape[:2]))

    def attend(self, query: Tensor, memory: AttentionMemory, state: Counted) -> tuple[Tensor, Tensor, Counted]:
        context, weights, _ = super().attend(query, memory, state.weights)
        seen = (state.tokens != 2).unsqueeze(-1)
        return context * seen, weights * seen, Counted(weights, state.tokens + 1)


def test_the_state_of_an_attention_may_be_any_tuple_of_tensors() -> None:
    """Teacher forcing and a beam search, which reorders it, agree on it."""
    speller = make("location")
    speller.attention.__class__ = CountingAttention
    memory = memory_of(speller)
    weights = speller(memory, TARGETS).weights
    assert not weights[:, 2].any() and weights[:, 3].any()
    for row, found in enumerate(BeamSearch(4, 0.0, 2, max_length=3)(Decoder(speller, memory), NUM_STATES)):
        alone = AttentionMemory(*(part[row : row + 1] for part in memory))
        for each in found:
            tokens = torch.tensor([each.tokens], dtype=torch.long)
            told = speller(alone, tokens).logits.log_softmax(-1)[0].gather(1, torch.tensor([[*each.tokens, 0]]).T)
            assert each.score == pytest.approx(float(told.detach().sum()))


def test_dropout_of_the_output_alone_leaves_states_and_weights_as_they_are() -> None:
    quiet, dropped = make(), make(dropout=0.5, dropout_at="output").train()
    ours, expected = dropped(memory_of(dropped), TARGETS), quiet(memory_of(quiet), TARGETS)
    assert torch.equal(ours.weights, expected.weights)
    assert (ours.logits - expected.logits).abs().max() > 1e-3
    assert torch.equal(dropped.eval()(memory_of(dropped), TARGETS).logits, expected.logits)
    everywhere = make(dropout=0.5).train()
    assert not torch.equal(everywhere(memory_of(everywhere), TARGETS).weights, expected.weights)


def test_scheduled_sampling_of_zero_is_teacher_forcing_and_of_one_is_not() -> None:
    expected = make()(memory_of(make()), TARGETS).logits
    never, always = make(scheduled_sampling=0.0).train(), make(scheduled_sampling=1.0).train()
    assert torch.equal(never(memory_of(never), TARGETS).logits, expected)
    sampled = always(memory_of(always), TARGETS).logits
    assert torch.equal(sampled[:, 0], expected[:, 0])  # the start of a sentence is never replaced
    assert (sampled[:, 1:] - expected[:, 1:]).abs().max() > 1e-3
    other_targets = (TARGETS + 1) % VOCAB
    torch.manual_seed(5)
    one = always(memory_of(always), TARGETS).logits
    torch.manual_seed(5)
    assert torch.equal(always(memory_of(always), other_targets).logits, one)  # nothing of the truth is left
    assert torch.equal(always.eval()(memory_of(always), TARGETS).logits, expected)


def test_scheduled_sampling_draws_from_the_softmax_as_often_as_asked() -> None:
    """With an output layer that says the same everywhere, and a true token it never chooses."""
    speller = make("dot", num_layers=1, hidden_size=2, scheduled_sampling=0.3).train()
    probabilities = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.0, 0.0], dtype=torch.float64)
    with torch.no_grad():
        speller.output.weight.zero_()
        speller.output.bias.copy_(probabilities.clamp(min=1e-30).log())
    tokens = torch.full((40000, 1), 5)
    fed = speller._sample(tokens, torch.zeros(40000, 1, 2 + VALUE, dtype=torch.float64))
    expected = 0.3 * probabilities
    expected[5] = 0.7
    torch.testing.assert_close(fed.flatten().bincount(minlength=VOCAB) / 40000, expected.float(), rtol=0, atol=0.01)


def test_logits_that_are_not_finite_reach_the_loss() -> None:
    """The trainer says what to do about them; sampling from them must not raise before it can."""
    speller = make(scheduled_sampling=1.0).train()
    with torch.no_grad():
        speller.output.bias.fill_(float("nan"))
    assert speller(memory_of(speller), TARGETS).logits.isnan().all()
