"""Every random state of a training: seeded, written down as plain values, and restored bit for bit."""

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
