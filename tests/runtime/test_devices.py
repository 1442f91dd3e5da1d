"""Devices by name."""

import pytest
import torch

from las.runtime import devices
from las.runtime.errors import ConfigError


def test_the_cpu_and_the_best_there_is() -> None:
    assert devices.pick("cpu") == torch.device("cpu")
    assert devices.pick("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_gpu_that_is_not_there_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"device=cuda:1: this machine has no GPU.*choose cpu or auto"):
        devices.pick("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.pick("auto") == torch.device("cuda")


def test_unknown_devices_name_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"device=gpu: there is no such device\. Did you mean cpu, cuda or auto\?"):
        devices.pick("gpu")


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
