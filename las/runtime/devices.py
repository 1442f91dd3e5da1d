"""Device, threads, random seeds and garbage collector of a process, and torchaudio beside any build of torch."""

import contextlib
import functools
import gc
import hashlib
import importlib
import os
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

from las.runtime.errors import ConfigError, suggest

MAX_THREADS_PER_CORE = 4
"""Limit for the threads of one operation; many more make a machine hang."""


def pick(name: str) -> torch.device:
    """Resolve a device name; `auto` is a GPU where there is one. Raises ConfigError for an unavailable device."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"device={name}: there is no such device.{suggest(kind, ('auto', 'cpu', 'cuda'))}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name}: this machine has no GPU that torch can use: choose cpu or auto")
    return torch.device(name)


def allow_tf32(allowed: bool) -> None:
    """Let products and convolutions of fp32 on a GPU take operands of TF32 (10 bits of mantissa), or forbid it."""
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def cores() -> int:
    """Return the number of processors of this machine."""
    return os.cpu_count() or 1


def check_threads(key: str, wanted: int | None) -> None:
    """Raise ConfigError for so many threads that the machine would only switch between them."""
    maximum = MAX_THREADS_PER_CORE * cores()
    if wanted is not None and wanted > maximum:
        raise ConfigError(
            f"{key}={wanted} is too many for {cores()} cores, at most {maximum}: try {key}={cores()}, or null"
        )


def reading_workers(wanted: int | None) -> int:
    """Return the number of threads that read audio ahead: `wanted`, by default one for every two cores, one to four."""
    return min(max(cores() // 2, 1), 4) if wanted is None else wanted


def threads(wanted: int | None) -> int:
    """Return the number of threads to use: `wanted`, or by default at most two, because more were never measured.

    torch's own default is the number of cores, or the environment variable OMP_NUM_THREADS.
    """
    return min(2, torch.get_num_threads()) if wanted is None else wanted


def seed(number: int, *place: int | str) -> None:
    """Seed every generator, for the initial parameters of a model; `place` tells several models of a training apart."""
    number = _number("parameters", number, *place) if place else number
    random.seed(number)
    torch.manual_seed(number)


def seed_update(number: int, step: int, process: int) -> None:
    """Seed every generator for update number `step` in one process of a training.

    Draws depend on these three numbers only, so an update is repeated bit for bit after any restart.
    """
    seed(_number("update", number, step, process))


def generator(device: torch.device | str, *key: int | str) -> torch.Generator:
    """Create a generator seeded by a key, e.g. ("gradient noise", seed, step).

    Equal keys give equal draws in every process and after any restart, without changing other draws. Devices of
    different kinds draw differently.
    """
    return torch.Generator(device).manual_seed(_number(*key))


def _number(*key: int | str) -> int:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def read_later(values: torch.Tensor) -> Callable[[], list[float]]:
    """Start to copy a few numbers to the host; the function that is returned waits for them."""
    if values.device.type != "cuda":
        return values.tolist
    copy = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(values.device))

    def read() -> list[float]:
        copied.synchronize()
        numbers: list[float] = copy.tolist()
        return numbers

    return read


@contextlib.contextmanager
def garbage_paused() -> Iterator[None]:
    """Pause the collection of reference cycles; also a decorator.

    The collector looks through all objects again each time their number has grown by a quarter: a quarter of the time
    in which a manifest of 281,241 lines is read. Memory without cycles is freed as always.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def garbage_frozen() -> Iterator[None]:
    """Leave all objects that there are now out of later collections.

    A training keeps its modules, manifests and models to its end. Without this the collector looks through all of
    them every few updates: 3 % of the time of a training with bfloat16 on two threads. Where the caller has left out
    objects already, nothing is changed.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@functools.cache
def torchaudio() -> types.ModuleType:
    """Import torchaudio, with or without its compiled extension: the only import of it in the package.

    Its wheel links the extension against CUDA, so that a plain import raises OSError beside a CPU-only torch. Its
    Python part (transforms, functional) needs none: a stand-in module for the extension makes it importable. Raises
    ImportError when torchaudio is not installed.
    """
    try:
        return importlib.import_module("torchaudio")
    except OSError:
        for name in [name for name in sys.modules if name == "torchaudio" or name.startswith("torchaudio.")]:
            del sys.modules[name]
    extension: Any = types.ModuleType("torchaudio._extension")
    extension._IS_TORCHAUDIO_EXT_AVAILABLE = False
    extension._IS_ALIGN_AVAILABLE = False
    extension.fail_if_no_align = lambda function: _unavailable
    extension.lazy_import_sox_ext = _unavailable
    sys.modules["torchaudio._extension"] = extension
    return importlib.import_module("torchaudio")


def _unavailable(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("torchaudio's compiled extension is not available beside this torch")
