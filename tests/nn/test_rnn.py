"""Properties that every cell of configs/cell/ has over time."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from cell_cases import every_cell, factory_of, state_of
from parameters import moved
from torch import Tensor

import las
from las.nn.cells.base import LSTMCell
from las.nn.kernels import choice
from las.nn.kernels.base import PLAIN, Kernel, PlainKernel
from las.nn.rnn import BidirectionalLayer, RecurrentLayer
from las.runtime.errors import ConfigError

INPUT, HIDDEN = 3, 4
LENGTHS = torch.tensor([5, 3, 1, 0])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


def layer_of(name: str) -> RecurrentLayer:
    return moved(RecurrentLayer(factory_of(name), INPUT, HIDDEN).double().eval(), 0.3)


def random_frames(batch: int = 4, frames: int = 5) -> Tensor:
    return torch.randn(batch, frames, INPUT, dtype=torch.float64)


def assert_same(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


@every_cell
@pytest.mark.parametrize("kernel", ["auto", "plain"])
def test_gradients_have_memory_of_their_own(name: str, kernel: str) -> None:
    """Else a clipped norm, which scales each in place, would scale some twice."""
    layer = layer_of(name).train()
    with las.use_kernel(kernel):
        layer(random_frames(), LENGTHS)[0].square().sum().backward()
    gradients = [parameter.grad for parameter in layer.parameters() if parameter.grad is not None]
    halves = [gradient / 2 for gradient in gradients]
    for gradient in gradients:
        gradient.mul_(0.5)
    assert len(gradients) > 1 and all(map(torch.equal, gradients, halves))


@every_cell
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
def test_padded_frames_reach_no_output_state_or_gradient(name: str, poison: float) -> None:
    layer = layer_of(name)
    state = state_of(layer.cell, 4)
    clean = random_frames()
    padding = torch.arange(5) >= LENGTHS.unsqueeze(1)
    results = []
    for value in (0.0, poison):
        frames = clean.masked_fill(padding.unsqueeze(-1), value).requires_grad_()
        outputs, last = layer(frames, LENGTHS, state)
        loss = outputs.square().sum() + sum(part.square().sum() for part in last)
        gradients = torch.autograd.grad(loss, [frames, *layer.parameters()])
        results.append([outputs, *last, *gradients])
    assert_same(results[1], results[0])
    outputs, last, gradient = results[1][0], results[1][1 : 1 + len(state)], results[1][1 + len(state)]
    assert not outputs[padding].any() and not gradient[padding].any()
    assert gradient[~padding].any(-1).all()
    assert all(torch.equal(part[3], before[3]) for part, before in zip(last, state, strict=True))  # without frames
    for row, length in enumerate(LENGTHS[:3].tolist()):
        assert torch.equal(last[0][row], outputs[row, length - 1])


@every_cell
def test_a_batch_equals_its_utterances_one_by_one(name: str) -> None:
    layer = moved(BidirectionalLayer(factory_of(name), INPUT, HIDDEN).double().eval(), 0.3)
    padding = torch.arange(5) >= LENGTHS.unsqueeze(1)
    frames = random_frames().masked_fill(padding.unsqueeze(-1), float("nan"))
    batch = layer(frames, LENGTHS)
    gradients = torch.autograd.grad(batch.square().sum(), list(layer.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = layer(frames[row : row + 1, :length], torch.tensor([length]))
        assert_same(batch[row, :length], alone[0])
        assert not batch[row, length:].any()


@every_cell
@pytest.mark.parametrize("split", [1, 2, 4])
def test_two_halves_with_the_state_carried_over_equal_the_whole(name: str, split: int) -> None:
    layer = layer_of(name)
    frames = random_frames()
    whole, last = layer(frames, LENGTHS)
    first, state = layer(frames[:, :split], LENGTHS.clamp(max=split))
    second, state = layer(frames[:, split:], (LENGTHS - split).clamp(min=0), state)
    assert_same(torch.cat([first, second], 1), whole)
    assert_same(tuple(state), tuple(last))
    forgotten, _ = layer(frames[:, split:], (LENGTHS - split).clamp(min=0))
    assert (forgotten - second).abs().max() > 1e-3


class Unable(Kernel):
    """A kernel that computes nothing."""

    def unsupported_reason(self, cell: LSTMCell, like: Tensor) -> str:
        return f"cannot on {like.device}"


def test_the_log_says_which_kernel_computes_and_why_nothing_faster_does(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, tensor = layer_of("lstm").cell, torch.empty(0)
    monkeypatch.setattr(choice, "KERNELS", {"plain": PLAIN})
    assert choice.explain(cell, tensor) == "recurrences: plain"
    monkeypatch.setattr(choice, "KERNELS", {"fast": Unable(), "slower": Unable(), "plain": PLAIN})
    assert choice.explain(cell, tensor) == "recurrences: plain (fast, slower: cannot on cpu)"
    with choice.use_kernel("plain"):
        assert choice.explain(cell, tensor) == "recurrences: plain (as asked)"
    with choice.use_kernel("slower"):
        for ask in (choice.select_kernel, choice.explain):
            with pytest.raises(ConfigError, match=r"kernel=slower .*cannot on cpu"):
                ask(cell, tensor)


def test_both_directions_of_a_stack_are_one_call_of_the_kernel() -> None:
    seen: list[int] = []

    class Counting(PlainKernel):
        def recurrence(self, cells: Sequence[LSTMCell], *rest: Any) -> Any:
            seen.append(len(cells))
            return super().recurrence(cells, *rest)

    lstm, state = las.LSTM(3, 4, 2, bidirectional=True), torch.zeros(4, 2, 4)
    with choice.use_kernel(Counting()):
        lstm(torch.randn(5, 2, 3), (state, state))
    assert seen == [2, 2]
