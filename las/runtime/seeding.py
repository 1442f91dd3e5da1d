"""Where a training's random numbers come from: always from a seed and a place, never from what was drawn before."""

import hashlib
import random

import torch


def seed(number: int, *place: int | str) -> None:
    """Seed every generator: for the parameters a model begins with, those of some place if it has several models."""
    number = _number("parameters", number, *place) if place else number
    random.seed(number)
    torch.manual_seed(number)


def seed_update(number: int, step: int, process: int) -> None:
    """Seed everything that update number `step` of a training draws in one of its processes.

    A function of these three and nothing else: an update is repeated bit for bit after any restart.
    """
    seed(_number("update", number, step, process))


def generator(device: torch.device | str, *key: int | str) -> torch.Generator:
    """A generator of its own for whatever the key names, e.g. ("gradient noise", seed, step).

    The same key gives the same draws on every process and after any restart, and leaves all other draws as they are.
    Devices of different kinds draw differently.
    """
    return torch.Generator(device).manual_seed(_number(*key))


def _number(*key: int | str) -> int:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
