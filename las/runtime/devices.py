"""Where tensors live, the CPU or a GPU, and how many threads of the CPU compute one operation."""

import os

import torch

from las.runtime.errors import ConfigError, suggest

MOST_PER_CORE = 4
"""Threads of one operation; many more of them hang a machine."""


def pick(name: str) -> torch.device:
    """`auto` is a GPU where there is one. Raises ConfigError for a device that does not exist here."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"device={name}: there is no such device.{suggest(kind, ('auto', 'cpu', 'cuda'))}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name}: this machine has no GPU that torch can use: choose cpu or auto")
    return torch.device(name)


def cores() -> int:
    """Processors of this machine."""
    return os.cpu_count() or 1


def check_threads(key: str, wanted: int | None) -> None:
    """Raise ConfigError for so many threads that the machine would do nothing but change from one to the next."""
    most = MOST_PER_CORE * cores()
    if wanted is not None and wanted > most:
        raise ConfigError(
            f"{key}={wanted} is too many for {cores()} cores, at most {most}: try {key}={cores()}, or null"
        )


def threads(wanted: int | None) -> int:
    """What was wanted, or two where torch would use so many by itself; more of them were never measured.

    torch's own number is that of the cores, or of the environment variable OMP_NUM_THREADS.
    """
    return min(2, torch.get_num_threads()) if wanted is None else wanted
