"""Convolutions in front of the layers: against loops in NumPy, and deaf to padding."""

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from options import names, part
from parameters import moved
from torch import Tensor

from las.nn.cells.lstm import PlainLSTMCell
from las.nn.front_end import ConvolutionFrontEnd
from las.nn.listener import Listener

FEATURES = 12  # three planes of four
LENGTHS = torch.tensor([9, 6, 5, 1, 0])
MASK = torch.arange(9) < LENGTHS.unsqueeze(1)
every_front_end = pytest.mark.parametrize("name", names("front_end"))


def make(name: str, **options: Any) -> ConvolutionFrontEnd:
    """The front end of an option with few channels, in float64, every parameter moved."""
    torch.manual_seed(1)
    return moved(part("front_end", name, channels=[2, 3], **options)(FEATURES).double(), 0.2)


def rows_of(batch: int = 5, rows: int = 9) -> Tensor:
    return torch.randn(batch, rows, FEATURES, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def convolved(image: np.ndarray, kernel: np.ndarray, bias: np.ndarray, stride: tuple[int, int]) -> np.ndarray:
    """[channels, rows, features], the middle of each filter on every stride-th place, zeros around."""
    out = np.zeros((len(kernel), *(math.ceil(n / s) for n, s in zip(image.shape[1:], stride, strict=True))))
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    for c, t, f in np.ndindex(*out.shape):
        place = padded[:, t * stride[0] : t * stride[0] + 3, f * stride[1] : f * stride[1] + 3]
        out[c, t, f] = (place * kernel[c]).sum() + bias[c]
    return out


def pooled(image: np.ndarray, pool: tuple[int, int]) -> np.ndarray:
    out = np.zeros((len(image), *(math.ceil(n / s) for n, s in zip(image.shape[1:], pool, strict=True))))
    for c, t, f in np.ndindex(*out.shape):
        out[c, t, f] = image[c, t * pool[0] : (t + 1) * pool[0], f * pool[1] : (f + 1) * pool[1]].max()
    return out


STRIDES = {"lingvo": (2, 2), "park2019": (1, 1), "returnn": (1, 1)}
POOLS = {"lingvo": (1, 1), "park2019": (2, 2), "returnn": (1, 2)}


@every_front_end
@pytest.mark.parametrize("planes", [1, 3])
def test_each_utterance_equals_loops_over_its_own_rows(name: str, planes: int) -> None:
    front_end = make(name, input_channels=planes).eval()
    p = {key: value.detach().numpy() for key, value in front_end.state_dict().items()}
    outputs, num_rows = front_end(rows_of(), LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()[:4]):
        image = rows_of()[row, :length].numpy().reshape(length, planes, -1).transpose(1, 0, 2)
        for layer in range(2):
            kernel, bias = p[f"convolutions.{layer}.weight"], p[f"convolutions.{layer}.bias"]
            image = convolved(image, kernel, bias, STRIDES[name])
            if name == "lingvo":  # in evaluation, with averages that have not moved from 0 and 1
                gain, bias = p[f"norms.{layer}.gain"], p[f"norms.{layer}.bias"]
                image = gain[:, None, None] * image / np.sqrt(1 + 1e-5) + bias[:, None, None]
            image = pooled(image if name == "returnn" else np.maximum(image, 0), POOLS[name])
        expected = image.transpose(1, 0, 2).reshape(image.shape[1], -1)
        assert int(num_rows[row]) == len(expected) and outputs.shape[-1] == front_end.output_size == expected.shape[1]
        np.testing.assert_allclose(outputs[row, : len(expected)].detach().numpy(), expected, rtol=1e-9, atol=1e-12)
        assert not outputs[row, len(expected) :].any()


@every_front_end
@pytest.mark.parametrize("poison", [float("nan"), 1e30])
def test_padding_reaches_no_row_no_gradient_and_no_statistics(name: str, poison: float) -> None:
    results = []
    for value in (0.0, poison):
        front_end = make(name).train()
        rows = rows_of().masked_fill(~MASK.unsqueeze(-1), value).requires_grad_()
        outputs, _ = front_end(rows, LENGTHS)
        gradients = torch.autograd.grad(outputs.square().sum(), [rows, *front_end.parameters()])
        results.append([outputs, *gradients, *front_end.buffers()])
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    assert not results[1][1][~MASK].any()


def test_batch_norm_of_a_channel_is_over_the_true_rows() -> None:
    """Against `torch.nn.BatchNorm2d` on one utterance, which has no padding; then padded, with the same result."""
    front_end = make("lingvo").train()
    oracle = torch.nn.BatchNorm2d(2, dtype=torch.float64)
    norm = front_end.norms[0]
    with torch.no_grad():
        oracle.weight.copy_(norm.gain)
        oracle.bias.copy_(norm.bias)
    planes = torch.randn(2, 2, 5, 4, dtype=torch.float64)
    expected = oracle(planes)
    torch.testing.assert_close(norm(planes, torch.tensor([5, 5])), expected)
    torch.testing.assert_close(norm.moments.mean[0], oracle.running_mean)
    torch.testing.assert_close(norm.moments.variance[0], oracle.running_var)
    padded = torch.nn.functional.pad(planes, (0, 0, 0, 3), value=1e9)
    torch.testing.assert_close(norm(padded, torch.tensor([5, 5]))[:, :, :5], expected)


@every_front_end
@pytest.mark.parametrize("frames", [0, 1, 2, 3, 7, 8])
def test_a_listener_counts_the_reductions_of_its_front_end(name: str, frames: int) -> None:
    make_front_end = functools.partial(
        ConvolutionFrontEnd, channels=(2, 2), stride=STRIDES[name], pool=POOLS[name], norm="none"
    )
    listener = Listener(
        FEATURES, cell=PlainLSTMCell, hidden_size=2, num_layers=1, time_reduction=[2], front_end=make_front_end
    )
    factors = {"lingvo": (2, 2, 2), "park2019": (2, 2, 2), "returnn": (2,)}[name]
    expected = functools.reduce(lambda n, factor: math.ceil(n / factor), factors, frames)
    encoded, num_states = listener(rows_of(1, frames).float(), torch.tensor([frames]))
    assert num_states.tolist() == listener.num_states(torch.tensor([frames])).tolist() == [expected]
    assert encoded.isfinite().all() and math.prod(listener.reductions) == math.prod(factors)
