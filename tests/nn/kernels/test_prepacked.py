"""Weights that are kept in the layout of the compiled loops: the same bits, until they change."""

import copy
import gc
import threading
from typing import Any

import pytest
import torch
from kernel_cases import CELLS, compiles
from torch import Tensor, nn

import las
from las.nn.kernels.cpp import build
from las.nn.kernels.cpp.prepacked import PrepackedWeights

pytestmark = compiles


def layer(generator: torch.Generator, **options: Any) -> tuple[las.LSTM, Tensor]:
    """A layer and frames, of sizes drawn at random."""

    def drawn(most: int) -> int:
        return int(torch.randint(1, most + 1, (), generator=generator))

    size, names = drawn(70), sorted(CELLS)
    lstm = las.LSTM(size, drawn(70), bidirectional=True, batch_first=True, cell=CELLS[names[drawn(len(names)) - 1]])
    return lstm.eval(), torch.randn(drawn(20), drawn(40), size, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_the_bits_of_copied_weights_and_follow_a_change(threads: int) -> None:
    generator, before = torch.Generator().manual_seed(threads), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for trial in range(40):
            lstm, frames = layer(generator)
            dtype = (torch.float32, torch.float64, torch.float16)[trial % 3]
            lstm, frames, rounding = lstm.to(dtype), frames.to(dtype), trial % 5 == 0 and dtype == torch.float32
            weights = PrepackedWeights(lstm)
            for _ in range(3):
                with torch.autocast("cpu", torch.bfloat16, enabled=rounding):
                    copied = lstm(frames)[0]
                    for _ in range(2):
                        with weights.used():
                            assert torch.equal(lstm(frames)[0], copied)
                for parameter in lstm.parameters():
                    parameter.mul_(0.7)
    finally:
        torch.set_num_threads(before)


def reads_kept(lstm: nn.Module, frames: Tensor, weights: PrepackedWeights) -> bool:
    """Whether a second call reads what the first one kept: then it is blind to a change that torch does not count."""
    with weights.used():
        first = lstm(frames)[0]
        for parameter in lstm.parameters():
            if parameter.dim() == 2:
                parameter.data.mul_(0.5)
        return torch.equal(lstm(frames)[0], first)


@torch.no_grad()
def test_only_the_thread_in_the_block_reads_them_and_only_of_its_model() -> None:
    generator = torch.Generator().manual_seed(0)
    lstm, other = (las.LSTM(16, 32, batch_first=True, bidirectional=True).eval() for _ in range(2))
    frames = torch.randn(1, 9, 16, generator=generator)
    weights, none, found = PrepackedWeights(lstm), PrepackedWeights(other), []
    assert reads_kept(lstm, frames, weights)
    assert not reads_kept(other, frames, weights)
    with weights.used():
        thread = threading.Thread(target=lambda: found.append(torch.no_grad()(reads_kept)(lstm, frames, none)))
        thread.start()
        thread.join()
        assert not reads_kept(lstm, frames, none)  # an inner block has its own
        assert reads_kept(lstm, frames, weights)
        with pytest.raises(KeyError), weights.used():
            raise KeyError
        before = lstm(frames)[0]
    for parameter in lstm.parameters():
        parameter.data.mul_(2)
    assert found == [False]
    assert not torch.equal(lstm(frames)[0], before)  # no block is left


@torch.no_grad()
def test_a_copy_keeps_the_weights_of_the_copied_model() -> None:
    lstm, frames = layer(torch.Generator().manual_seed(5))
    weights = PrepackedWeights(lstm)
    assert reads_kept(lstm, frames, weights)
    other, own = copy.deepcopy((lstm, weights))
    assert reads_kept(other, frames, own) and reads_kept(lstm, frames, weights)
    assert not reads_kept(lstm, frames, own)


@torch.no_grad()
def test_kept_weights_end_with_their_owner() -> None:
    lstm, frames = layer(torch.Generator().manual_seed(2))
    weights = PrepackedWeights(lstm)
    with weights.used():
        lstm(frames)
    ends = weights._close
    assert ends is not None and ends.alive
    del weights
    gc.collect()
    assert not ends.alive


@torch.no_grad()
def test_without_a_compiler_a_block_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lstm, frames = layer(torch.Generator().manual_seed(3))
    expected = lstm(frames)[0]
    monkeypatch.setattr(build, "unavailable", lambda: "there is no compiler")
    with PrepackedWeights(lstm).used():
        torch.testing.assert_close(lstm(frames)[0], expected)


def test_for_a_model_elsewhere_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(build, "unavailable", lambda: asked.append("compiled") or "")
    with PrepackedWeights(las.LSTM(8, 16).to("meta")).used():
        pass
    assert asked == []


def test_a_step_of_an_optimiser_is_seen() -> None:
    lstm, frames = layer(torch.Generator().manual_seed(4))
    weights, optimiser = PrepackedWeights(lstm), torch.optim.Adam(lstm.parameters(), foreach=True)
    for _ in range(3):
        with torch.no_grad(), weights.used():
            kept = lstm(frames)[0]
        loss = lstm(frames)[0].square().sum()
        assert torch.equal(kept.square().sum(), loss.detach())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
