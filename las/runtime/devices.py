"""Device of a computation (CPU or GPU), and the number of CPU threads of one operation."""

import os

import torch

from las.runtime.errors import ConfigError, suggest

MAX_THREADS_PER_CORE = 4
"""Limit for the threads of one operation; many more make a machine hang."""


PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Types of the operands of matrix products by name."""


def precision(name: str) -> torch.dtype:
    """The type of operands of a precision. Raises ConfigError for a name that is none."""
    if name not in PRECISIONS:
        raise ConfigError(f"precision={name} does not exist.{suggest(name, PRECISIONS)}")
    return PRECISIONS[name]


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
    """Number of processors of this machine."""
    return os.cpu_count() or 1


def check_threads(key: str, wanted: int | None) -> None:
    """Raise ConfigError for so many threads that the machine would only switch between them."""
    maximum = MAX_THREADS_PER_CORE * cores()
    if wanted is not None and wanted > maximum:
        raise ConfigError(
            f"{key}={wanted} is too many for {cores()} cores, at most {maximum}: try {key}={cores()}, or null"
        )


def reading_workers(wanted: int | None) -> int:
    """Number of threads that read audio ahead: `wanted`, or by default one for every two cores, one to four."""
    return min(max(cores() // 2, 1), 4) if wanted is None else wanted


def threads(wanted: int | None) -> int:
    """Number of threads to use: `wanted`, or by default at most two, because more were never measured.

    torch's own default is the number of cores, or the environment variable OMP_NUM_THREADS.
    """
    return min(2, torch.get_num_threads()) if wanted is None else wanted
