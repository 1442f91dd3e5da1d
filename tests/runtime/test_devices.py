"""Devices by name, numbers of threads, random numbers by key, the garbage collector, and torchaudio."""

import gc
import importlib
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from las.runtime import devices
from las.runtime.errors import ConfigError


def test_devices_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.pick("cpu") == torch.device("cpu")
    for available, best in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda found=available: found)
        assert devices.pick("auto") == torch.device(best)
    with pytest.raises(ConfigError, match=r"device=gpu:.* cpu, cuda or auto\?"):
        devices.pick("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"device=cuda:1:.*no GPU.* cpu or auto"):
        devices.pick("cuda:1")


@pytest.mark.parametrize(("own", "wanted", "threads"), [(8, None, 2), (2, None, 2), (1, None, 1), (1, 4, 4), (8, 1, 1)])
def test_two_threads_where_there_are_two(
    own: int, wanted: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: own)
    assert devices.threads(wanted) == threads


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 1), (4, 2), (16, 4)])
def test_more_cores_read_with_more_workers(cores: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "cores", lambda: cores)
    assert devices.reading_workers(None) == workers and devices.reading_workers(0) == 0


def test_products_of_a_gpu_take_tf32_or_not() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        for allowed in (True, False):
            devices.allow_tf32(allowed)
            assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == allowed
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize(
    ("seed", "keys"),
    [
        (devices.seed, [(1,), (1,), (2,), (1, "stage", 2), (1, "stage", 3)]),
        (devices.seed_update, [(1, 2, 0), (1, 2, 0), (1, 3, 0), (2, 2, 0), (1, 2, 1), (12, 0, 0)]),
    ],
)
def test_draws_depend_on_the_key_and_on_nothing_drawn_before(seed: Callable[..., None], keys: list[Any]) -> None:
    drawn = []
    for key in keys:
        torch.rand(len(drawn))
        seed(*key)
        drawn.append((random.random(), float(torch.rand(()))))
    assert drawn[0] == drawn[1] and len(set(drawn)) == len(keys) - 1


@pytest.fixture
def thawed() -> Iterator[None]:
    """Without the objects that the test session has left out."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_a_paused_collector_collects_nothing_and_ends_as_it_began() -> None:
    with devices.garbage_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.usefixtures("thawed")
def test_the_collector_leaves_out_what_there_is_and_no_more() -> None:
    before = [object() for _ in range(10)]
    with pytest.raises(KeyError), devices.garbage_frozen():
        assert gc.get_freeze_count() > len(before)
        later: list[object] = []
        later.append(later)
        assert any(each is later for each in gc.get_objects())
        assert not any(each is before for each in gc.get_objects())
        raise KeyError
    assert gc.get_freeze_count() == 0 and any(each is before for each in gc.get_objects())


def test_an_extension_that_does_not_load_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As beside a CPU-only torch: the first import raises OSError, the second finds the stand-in."""
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "torchaudio"}
    calls = []

    def import_module(name: str) -> types.ModuleType:
        calls.append((name, "torchaudio._extension" in sys.modules))
        if len(calls) == 1:
            raise OSError("libcudart.so.13: cannot open shared object file")
        return types.ModuleType(name)

    monkeypatch.setattr(importlib, "import_module", import_module)
    try:
        devices.torchaudio.__wrapped__()
        extension = sys.modules["torchaudio._extension"]
        assert extension._IS_TORCHAUDIO_EXT_AVAILABLE is False
        for use in (extension.fail_if_no_align(len), extension.lazy_import_sox_ext):
            with pytest.raises(RuntimeError, match="extension"):
                use()
    finally:
        sys.modules.pop("torchaudio._extension", None)
        sys.modules.update(before)
    assert [name for name, _ in calls] == ["torchaudio", "torchaudio"]
    assert calls[1][1]
