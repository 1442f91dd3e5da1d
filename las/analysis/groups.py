"""Parameters as the layers of a model, from the bottom to the top."""

from collections.abc import Sequence


def groups_of(names: Sequence[str]) -> dict[str, list[int]]:
    """Places of parameters by layer, bottom first.

    Of ListenAttendSpell: the front end, the listener's layers (both directions and the norm of their output are one),
    the embedding, the speller's LSTM layers, attention, output, CTC. A model's own order of parameters is that order.
    """
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(_layer_of(name), []).append(place)
    return found


def _layer_of(name: str) -> str:
    match name.split("."):
        case ["listener", "layers" | "norms", number, *_]:
            return f"listener {number}"
        case ["speller", "cells", number, *_]:
            return f"speller {number}"
        case ["speller", "readout" | "output", *_]:
            return "output"
        case ["listener" | "speller", part, *_]:
            return part.replace("_", " ")
        case [part, *_]:
            return part
    return name
