"""The models of the papers: as many parameters as arithmetic says, and a few steps of training at a small width."""

import math

import pytest
import torch
from tiers import rest_slow
from torch import nn

from las.config.build import build, compose

SYMBOLS = 1030  # Zeineldeen et al.'s 1k pieces
JOINED = [f"cell@model.{part}.cell=zeineldeen2020_joined" for part in ("listener", "speller")]
ZEINELDEEN = ["model=las_switchboard", "+scale=tiny"]
OTHMAN = ("baseline", "ln_encoder_only", "ln_decoder_only", "ln_both", "ln_encoder_instance", "ln_decoder_swapped")
TRAINED = {
    "zeineldeen baseline": ZEINELDEEN,
    "zeineldeen joined": [*ZEINELDEEN, *JOINED],
    "zeineldeen joined, 8 layers": ["model=las_switchboard_8", "+scale=tiny", *JOINED],
    "park": ["model=park2019_las_4_1024", "+scale=tiny"],
} | {name: [f"+experiment={name}", "model=las_timit", "+scale=tiny"] for name in OTHMAN}


def halves(overrides: list[str], features: int, symbols: int) -> tuple[nn.Module, nn.Module]:
    """Listener and speller without memory for their parameters."""
    config = compose("train", overrides)["model"]
    with torch.device("meta"):
        listener = build(config["listener"], where="listener")(features)
        return listener, build(config["speller"], where="speller")(symbols, listener.output_size)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def lstm(size: int, hidden: int) -> int:
    """W, U and b."""
    return 4 * hidden * (size + hidden) + 4 * hidden


def blstm(size: int, hidden: int, layers: int) -> int:
    """Both directions; layers above the first read both of the one below."""
    return 2 * lstm(size, hidden) + (layers - 1) * 2 * lstm(2 * hidden, hidden)


def zeineldeen_speller() -> int:
    attention = (2048 * 1024 + 1024) + 1000 * 1024 + 1024 + 1024 + 2048  # key, query, feedback, score, fertility
    readout = (1000 + 621 + 2048) * 1000 + 1000
    return SYMBOLS * 621 + lstm(621 + 2048, 1000) + attention + readout + 500 * SYMBOLS + SYMBOLS


@pytest.mark.parametrize(("name", "layers", "reduction"), [("", 6, 8), ("_7", 7, 6), ("_8", 8, 6)])
def test_zeineldeen_2020_has_as_many_parameters_as_their_configurations_say(
    name: str, layers: int, reduction: int
) -> None:
    listener, speller = halves([f"model=las_switchboard{name}"], 40, SYMBOLS)
    assert count(listener) == blstm(40, 1024, layers)
    assert count(speller) == zeineldeen_speller() == 22_631_932
    assert math.prod(listener.reductions) == reduction
    if layers == 6:
        assert count(listener) == 134_594_560 and count(listener) + count(speller) == 157_226_492


@pytest.mark.parametrize(("name", "layers", "width"), [("4_1024", 4, 1024), ("6_1280", 6, 1280)])
def test_park_2019_has_as_many_parameters_as_arithmetic_says(name: str, layers: int, width: int) -> None:
    pieces = 16_000
    listener, speller = halves([f"model=park2019_las_{name}"], 240, pieces)
    convolutions = (3 * 3 * 3 * 32 + 32) + (32 * 3 * 3 * 32 + 32)
    assert count(listener) == convolutions + blstm(32 * 20, width, layers)  # 80 mels halved twice
    states = 2 * width
    attention = (states * 128 + 128) + width * 128 + 128
    cells = lstm(96 + states, width) + lstm(width, width)
    readout = (width + states) * width + width
    assert count(speller) == pieces * 96 + cells + attention + readout + width * pieces + pieces
    assert count(listener) + count(speller) == {"4_1024": 132_021_024, "6_1280": 277_050_400}[name]
    assert math.prod(listener.reductions) == 4


@pytest.mark.parametrize("name", rest_slow(TRAINED, keep=4))
def test_a_small_width_is_as_deep_and_learns(name: str) -> None:
    """From the files of the full size; every parameter moves and the loss falls on the batch it learns from."""
    torch.manual_seed(1)
    model = build(compose("train", TRAINED[name])["model"], where="model")(16000, 12)
    full = compose("train", [each for each in TRAINED[name] if each != "+scale=tiny"])["model"]
    assert count(model) < 200_000 and model.listener.time_reduction == tuple(full["listener"]["time_reduction"])
    assert len(model.listener.layers) == full["listener"]["num_layers"]
    assert len(model.speller.cells) == full["speller"]["num_layers"]
    before = {key: parameter.detach().clone() for key, parameter in model.named_parameters()}
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    features, num_frames = torch.randn(3, 60, model.features.size), torch.tensor([60, 41, 29])
    targets = torch.randint(1, 12, (3, 5))
    losses = []
    for _ in range(3):
        encoded, num_states = model.listener.eval()(features, num_frames)
        logits = model.speller.eval()(model.speller.attention.prepare(encoded, num_states), targets).logits
        loss = nn.functional.cross_entropy(logits[:, :5].flatten(0, 1), targets.flatten())
        losses.append(float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[2] < losses[1] < losses[0]
    still = [key for key, parameter in model.named_parameters() if torch.equal(parameter, before[key])]
    assert still == []
