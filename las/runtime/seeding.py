"""Seeds and random generators derived from keys, never from earlier draws."""

import hashlib
import random

import torch


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
