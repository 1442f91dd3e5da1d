"""How much memory the benchmark says something takes."""

from pathlib import Path

import pytest
import torch

from las.nn.kernels.cpp.tensors import allocator
from las.training import memory

CPU = torch.device("cpu")


def test_the_peak_is_of_what_is_held_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    size = 4_000_000

    def one_after_the_other() -> None:
        for _ in range(3):
            torch.ones(size)

    def both() -> None:
        first = torch.ones(size)
        del first
        second = torch.ones(size)
        torch.ones(size).add_(second)

    assert memory.allocated(one_after_the_other, CPU) == 4 * size
    assert memory.allocated(both, CPU) == 8 * size
    assert capfd.readouterr() == ("", "")


def test_memory_that_kernels_keep_is_counted_again() -> None:
    size = 2 * allocator.SMALL
    like = torch.empty(0, dtype=torch.uint8)
    assert [memory.allocated(lambda: allocator.empty(like, size), CPU) for _ in range(2)] == [size] * 2


def test_resident_memory_grows_by_what_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if memory.PEAK_RESET.exists():
        grown = memory.resident(lambda: torch.ones(10_000_000), CPU)
        assert grown is not None and 39e6 < grown < 60e6
    monkeypatch.setattr(memory, "PEAK_RESET", tmp_path / "missing")
    assert memory.resident(lambda: None, CPU) is None
