"""What arrives piece by piece gives what the whole gives, whatever the pieces are."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cell_cases import OPTIONS, factory_of
from hypothesis import given, settings
from hypothesis import strategies as st
from parameters import moved
from tiers import rest_slow
from torch import Tensor

import las
from las.nn.front_end import ConvolutionFrontEnd
from las.nn.latency_controlled import LatencyControlledListener
from las.nn.listener import REDUCTIONS, Listener
from las.nn.rnn import UnidirectionalLayer
from las.nn.streaming import RowConvolution
from las.runtime.errors import ConfigError

SIZE, HIDDEN = 6, 4
ONE_WAY = functools.partial(Listener, layer=UnidirectionalLayer)
CONTROLLED = functools.partial(LatencyControlledListener, chunk=8, right_context=4)
LISTENERS = {
    **{how: functools.partial(ONE_WAY, reduction=how, input_reduction=2) for how in REDUCTIONS},
    "lookahead": functools.partial(ONE_WAY, lookahead=3),
    "norms": functools.partial(ONE_WAY, output_norm=["layer", "batch", "none"]),
    "residual": functools.partial(ONE_WAY, reduction="mean", residual_from=1),
    "no layers": functools.partial(ONE_WAY, num_layers=0, time_reduction=(), lookahead=2),
    "convolutions": functools.partial(
        ONE_WAY, front_end=functools.partial(ConvolutionFrontEnd, channels=[2, 3], width=5, stride=(2, 1), pool=(2, 2))
    ),
    "controlled": CONTROLLED,
    "controlled, no context": functools.partial(CONTROLLED, right_context=0),
    "controlled, long context": functools.partial(CONTROLLED, right_context=20, lookahead=1),
    "controlled, one layer": functools.partial(CONTROLLED, num_layers=1, time_reduction=(4,), reduction="mean"),
    "controlled, two layers": functools.partial(CONTROLLED, num_layers=2, time_reduction=(1, 2)),
    "controlled, four layers": functools.partial(CONTROLLED, num_layers=4, time_reduction=(1, 2, 1, 2)),
    "controlled, residual": functools.partial(CONTROLLED, reduction="max_pool", residual_from=1, output_norm="layer"),
    "controlled, convolutions": functools.partial(
        CONTROLLED,
        right_context=8,
        time_reduction=(1, 2, 1),
        front_end=functools.partial(ConvolutionFrontEnd, stride=(2, 2)),
    ),
}


def made(kind: Callable[..., Listener], cell: Any = las.PlainLSTMCell) -> Listener:
    torch.manual_seed(1)
    return moved(kind(SIZE, cell=cell, hidden_size=HIDDEN).double().eval(), 0.2)


def frames_of(batch: int, frames: int, size: int = SIZE) -> Tensor:
    return torch.randn(batch, frames, size, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def in_pieces(stream: Callable[..., tuple[Tensor, Any]], whole: Tensor, sizes: list[int]) -> Tensor:
    """The outputs of pieces of these sizes and a rest, after which there is nothing more but the end."""
    outputs, state = [], None
    for piece in whole.split([*sizes, whole.shape[1] - sum(sizes)], dim=1):
        output, state = stream(piece, state)
        outputs.append(output)
    outputs.append(stream(whole[:, :0], state, is_last=True)[0])
    return torch.cat(outputs, dim=1)


@st.composite
def pieces(draw: st.DrawFn, longest: int, largest: int) -> tuple[int, list[int]]:
    """A length, and sizes of pieces within it, of nothing among them."""
    length = draw(st.integers(1, longest))
    sizes: list[int] = []
    for size in draw(st.lists(st.integers(0, largest), max_size=12)):
        if sum(sizes) + size <= length:
            sizes.append(size)
    return length, sizes


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", LISTENERS)
@given(cut=pieces(60, 20))
@settings(max_examples=8)
@torch.no_grad()
def test_a_listener_hears_pieces_as_the_whole(name: str, cut: tuple[int, list[int]]) -> None:
    length, sizes = cut
    listener, frames = made(LISTENERS[name]), frames_of(2, length)
    whole, num_states = listener(frames, torch.full((2,), length))
    assert num_states.tolist() == listener.num_states(torch.full((2,), length)).tolist()
    assert_same(in_pieces(listener.stream, frames, sizes), whole)


@pytest.mark.parametrize("name", rest_slow([each for each in OPTIONS if each != "bn_recurrent"], keep=6))
@pytest.mark.parametrize("kind", ["lookahead", "controlled"])
@torch.no_grad()
def test_every_cell_hears_pieces_as_the_whole(name: str, kind: str) -> None:
    listener, frames = made(LISTENERS[kind], factory_of(name)), frames_of(2, 45)
    assert_same(in_pieces(listener.stream, frames, [1, 0, 13, 2, 21]), listener(frames, torch.full((2,), 45))[0])


@pytest.mark.parametrize("name", [each for each in LISTENERS if "controlled" in each])
def test_chunks_of_a_padded_batch_equal_its_utterances_one_by_one_and_gradients_too(name: str) -> None:
    listener, lengths = made(LISTENERS[name]), torch.tensor([45, 8, 17, 1])
    poisoned = frames_of(4, 45).masked_fill((torch.arange(45) >= lengths.unsqueeze(1)).unsqueeze(-1), float("nan"))
    encoded, num_states = listener(poisoned if listener.front_end is None else poisoned.nan_to_num(), lengths)
    weights = torch.randn_like(encoded)
    together = torch.autograd.grad((encoded * weights).sum(), [*listener.parameters()])
    assert encoded.shape[1] == num_states.max() and all(gradient.isfinite().all() for gradient in together)
    total: Any = 0.0
    for row, length in enumerate(lengths.tolist()):
        alone = listener.stream(frames_of(4, 45)[row : row + 1, :length], is_last=True)[0]
        assert_same(encoded[row, : alone.shape[1]], alone[0])
        assert not encoded[row, alone.shape[1] :].any()
        total += (alone[0] * weights[row, : alone.shape[1]]).sum()
    for actual, expected in zip(together, torch.autograd.grad(total, [*listener.parameters()]), strict=True):
        assert_same(actual, expected)


@torch.no_grad()
def test_no_state_waits_longer_than_it_says() -> None:
    """Frames behind the chunk and its right context, or behind the look-ahead, change nothing before."""
    frames, ahead = frames_of(1, 64), {"lookahead": 4 * (1 + 3), "controlled": 8 + 4, "concat": 8}
    for name, latency in ahead.items():
        listener = made(LISTENERS[name])
        encoded, per_state = listener(frames, torch.tensor([64]))[0], 64 // int(listener.num_states(torch.tensor([64])))
        for until in range(16, 48, 8):
            changed = frames.clone()
            changed[:, until:] += 1
            same = (listener(changed, torch.tensor([64]))[0] - encoded).abs().amax((0, 2)) < 1e-12
            known, _ = listener.stream(frames[:, :until])
            assert same[: known.shape[1]].all() and not same[known.shape[1] + 1 :].any()
            assert until - latency <= known.shape[1] * per_state <= until


def test_a_look_ahead_starts_as_the_identity_and_is_a_weighted_sum() -> None:
    rows, convolution = frames_of(2, 9), RowConvolution(SIZE, 2).double()
    assert torch.equal(convolution(rows, torch.tensor([9, 9]))[0], rows)
    weight = moved(convolution, 1.0).convolution.weight[:, 0]
    by_hand = torch.stack([(weight[:, : 9 - t].T * rows[:, t : t + 3]).sum(1) for t in range(9)], dim=1)
    assert_same(convolution(rows, torch.tensor([9, 9]))[0], by_hand)


FEATURES = {
    "log-mels": functools.partial(las.LogMel, num_mels=5),
    "derivatives": functools.partial(las.LogMel, num_mels=5, energy=True, deltas=2, preemphasis=0.0),
    "cepstra": functools.partial(las.MFCC, num_coefficients=5, num_mels=8, deltas=1, normalisation="none"),
    "gammatone": functools.partial(las.Gammatone, num_filters=5, preemphasis=1.0),
    "gaps": functools.partial(las.LogMel, num_mels=5, frame_length_ms=10.0, frame_shift_ms=25.0),
}


@pytest.mark.parametrize("name", FEATURES)
@given(cut=pieces(6000, 1500))
@settings(max_examples=25)
@torch.no_grad()
def test_features_of_pieces_are_those_of_the_whole(name: str, cut: tuple[int, list[int]]) -> None:
    length, sizes = cut
    features = FEATURES[name](8000)
    features.mean += 1.0
    features.deviation *= 2.0
    waveforms = torch.randn(2, length, generator=torch.Generator().manual_seed(3))
    whole, num_frames = features(waveforms, torch.full((2,), length))
    streamed = in_pieces(features.stream, waveforms, sizes)
    assert streamed.shape[1] == int(num_frames[0])
    torch.testing.assert_close(streamed, whole[:, : streamed.shape[1]], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("normalisation", ["utterance", "smoothed"])
def test_a_normalisation_by_the_utterance_is_refused(normalisation: str) -> None:
    with pytest.raises(ConfigError, match="normalisation=global"):
        las.LogMel(8000, normalisation=normalisation).stream(torch.zeros(1, 800))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "layer=unidirectional"),
        ({"layer": UnidirectionalLayer, "output_norm": "instance"}, "output_norm=layer"),
        ({"layer": UnidirectionalLayer, "cell": las.BNRecurrentLSTMCell}, "num_steps=1"),
    ],
)
def test_what_waits_for_the_end_is_refused(options: dict[str, Any], says: str) -> None:
    listener = Listener(SIZE, **({"cell": las.PlainLSTMCell, "hidden_size": HIDDEN} | options)).eval()
    with pytest.raises(ConfigError, match=says):
        listener.stream(frames_of(1, 9).float())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"chunk": 6}, "chunk=6 .* 4 .* 8"),
        ({"right_context": 5}, "right_context=5 .* 4"),
        ({"chunk": 0}, "chunk=0"),
        ({"layer": UnidirectionalLayer}, "layer: "),
    ],
)
def test_impossible_chunks_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        made(functools.partial(CONTROLLED, **options))
