"""Every random state of a training: seeded, written down as plain values, and restored bit for bit."""

import hashlib
import random
from typing import Any

import torch


def seed(number: int) -> None:
    """Seed every generator the model's parameters and training noise come from."""
    random.seed(number)
    torch.manual_seed(number)


def states() -> dict[str, Any]:
    """Every random state as plain JSON values."""
    version, internal, gauss = random.getstate()
    found: dict[str, Any] = {
        "python": [version, list(internal), gauss],
        "torch": bytes(torch.get_rng_state().tolist()).hex(),
    }
    if torch.cuda.is_available():
        found["cuda"] = [bytes(state.tolist()).hex() for state in torch.cuda.get_rng_state_all()]
    return found


def restore(found: dict[str, Any]) -> None:
    """The inverse of `states`."""
    version, internal, gauss = found["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(torch.tensor(list(bytes.fromhex(found["torch"])), dtype=torch.uint8))
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(
            [torch.tensor(list(bytes.fromhex(state)), dtype=torch.uint8) for state in found["cuda"]]
        )


def generator(device: torch.device | str, *key: int | str) -> torch.Generator:
    """A generator of its own for whatever the key names, e.g. ("gradient noise", seed, step).

    The same key gives the same draws on every process and after any restart, and leaves all other draws as they are.
    Devices of different kinds draw differently.
    """
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)
