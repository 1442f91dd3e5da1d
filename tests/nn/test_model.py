"""From waveforms to logits; the parts have their own tests."""

import functools
from typing import Any

import pytest
import torch
from options import names, part
from tiers import rest_slow
from torch import Tensor

from las.config.build import build, compose
from las.nn.ctc import CTC
from las.nn.features import LogMel
from las.nn.listener import Listener
from las.nn.losses import LabelSmoothedCrossEntropy
from las.nn.model import ListenAttendSpell
from las.nn.speller import Speller

ATTENTIONS = names("attention")
MODELS = [name for name in names("model") if not name.startswith("hybrid_")]
"""Models that spell; acoustic models are tests/nn/test_acoustic_model.py's."""
RATE, VOCAB = 8000, 6
NUM_SAMPLES = torch.tensor([2400, 1500, 1111, 200])
TARGETS, NUM_TOKENS = torch.tensor([[3, 1, 5], [4, 0, 0], [1, 2, 0], [2, 0, 0]]), torch.tensor([3, 1, 2, 1])
variants = pytest.mark.parametrize(
    ("attention", "cell"),
    [(attention, "lstm") for attention in ATTENTIONS] + [("additive", "ba2016"), ("location", "tf_contrib")],
)


def make(attention: str = "additive", cell: str = "lstm", **listener: Any) -> ListenAttendSpell:
    """Small, in float64, in evaluation mode, features standardised on what `speech` gives."""
    torch.manual_seed(1)
    cells = part("cell", cell)
    model = ListenAttendSpell(
        RATE,
        VOCAB,
        features=functools.partial(LogMel, num_mels=8),
        listener=functools.partial(Listener, cell=cells, hidden_size=6, **listener),
        speller=functools.partial(
            Speller, cell=cells, attention=part("attention", attention), num_layers=2, hidden_size=9, embedding_size=4
        ),
        ctc=CTC if attention == "ctc_triggered" else None,
    )
    model.double().eval()
    model.features.fit([(speech(), NUM_SAMPLES)])
    return model


def speech() -> Tensor:
    waveforms = 0.1 * torch.randn(4, 2400, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return waveforms.masked_fill(torch.arange(2400) >= NUM_SAMPLES.unsqueeze(1), 0.0)


@variants
@pytest.mark.parametrize("poison", [0.0, float("nan")])
def test_padding_of_the_batch_changes_no_utterance(attention: str, cell: str, poison: float) -> None:
    model = make(attention, cell)
    waveforms = speech().masked_fill(torch.arange(2400) >= NUM_SAMPLES.unsqueeze(1), poison)
    together = model(waveforms, NUM_SAMPLES, TARGETS)
    for row, (samples, tokens) in enumerate(zip(NUM_SAMPLES.tolist(), NUM_TOKENS.tolist(), strict=True)):
        one = slice(row, row + 1)
        alone = model(waveforms[one, :samples], NUM_SAMPLES[one], TARGETS[one, :tokens])
        torch.testing.assert_close(together.logits[row, : tokens + 1], alone.logits[0], rtol=1e-8, atol=1e-10)
        states = alone.weights.shape[-1]
        torch.testing.assert_close(together.weights[row, : tokens + 1, :states], alone.weights[0])


@variants
def test_search_sees_the_probabilities_of_training(attention: str, cell: str) -> None:
    model = make(attention, cell)
    expected = torch.log_softmax(model(speech(), NUM_SAMPLES, TARGETS).logits, -1)
    decoder, num_states = model.search_inputs(speech(), NUM_SAMPLES)
    assert num_states.tolist() == model.num_states(NUM_SAMPLES).tolist()
    state, tokens = decoder.start(), torch.full((4, 1), Speller.boundary)
    for step in range(4):
        log_probs, state = decoder.step(tokens, state)
        torch.testing.assert_close(log_probs[:, 0], expected[:, step], rtol=1e-9, atol=1e-12)
        tokens = TARGETS[:, step : step + 1]


@variants
def test_gradient_reaches_every_parameter(attention: str, cell: str) -> None:
    model = make(attention, cell).train()
    spelling = model(speech(), NUM_SAMPLES, TARGETS)
    LabelSmoothedCrossEntropy(0.1)(spelling.logits, TARGETS, NUM_TOKENS).loss.backward()
    for key, parameter in [*model.listener.named_parameters(), *model.speller.named_parameters()]:
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any(), key


def test_an_utterance_too_short_for_a_state_leaves_the_others_alone() -> None:
    """Shorter than a window: no frames, no states, attention to nothing, finite numbers."""
    model = make("location")
    num_samples = torch.tensor([2400, 1500, 1111, 150])
    assert model.num_states(num_samples).tolist() == [7, 5, 3, 0]
    spelling = model(speech(), num_samples, TARGETS)
    assert spelling.logits.isfinite().all() and not spelling.weights[3].any()
    torch.testing.assert_close(spelling.logits[:3], model(speech()[:3], num_samples[:3], TARGETS[:3]).logits)
    LabelSmoothedCrossEntropy()(spelling.logits, TARGETS, NUM_TOKENS).loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("time_reduction", [(2, 2, 1), (1, 3, 2)])
def test_states_and_their_time(time_reduction: tuple[int, ...]) -> None:
    model = make(time_reduction=time_reduction)
    memory, num_states = model.listen(speech(), NUM_SAMPLES)
    assert num_states.tolist() == model.num_states(NUM_SAMPLES).tolist() == memory.mask.sum(1).tolist()
    assert model.state_ms == 10.0 * time_reduction[0] * time_reduction[1] * time_reduction[2]
    assert model.device == torch.device("cpu")


@pytest.mark.parametrize("name", rest_slow(MODELS, keep=3))
def test_every_model_builds_and_runs(name: str) -> None:
    config = compose("train", [f"model={name}"])["model"]
    model = build(config, 16000, 40)()
    # Long enough that CTC has a state for every token, of 60 ms in some models.
    waveforms = 0.1 * torch.randn(2, 9600, generator=torch.Generator().manual_seed(3))
    inputs, _ = model.search_inputs(waveforms, torch.tensor([9600, 8000]))
    spelling = model.spell(inputs, TARGETS[:2], NUM_TOKENS[:2].tolist())
    assert spelling.logits.shape == (2, 4, 40) and spelling.logits.isfinite().all()
