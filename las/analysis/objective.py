"""A loss as a function of the parameters alone, and the parameters grouped by layer from bottom to top.

All evaluations of one probe use the same batch and the same random draws, in full fp32.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Objective:
    """A loss whose parameters can be changed temporarily.

    Args:
        named: the parameters with their names; frozen ones are left out.
        value: computes the loss at the current values of the parameters, deterministically.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], value: Callable[[], Tensor]) -> None:
        trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        self.names = [name for name, _ in trained]
        self.parameters = [parameter for _, parameter in trained]
        self.value = value

    @property
    def matrices(self) -> list[int]:
        """Indices of the weight matrices: no gains, no biases."""
        return [index for index, name in enumerate(self.names) if name.endswith("weight")]

    def point(self) -> list[Tensor]:
        """Return a copy of the parameters' current values."""
        return [parameter.detach().clone() for parameter in self.parameters]

    @contextmanager
    def at(self, point: Sequence[Tensor]) -> Iterator[None]:
        """Set the parameters to other values within a `with` block, and restore them bit for bit afterwards."""
        original = self.point()
        try:
            self._set(point)
            yield
        finally:
            self._set(original)

    def loss(self) -> float:
        """Return the loss at the present values of the parameters."""
        with _full_precision(), torch.no_grad():
            return float(self.value())

    def gradient(self) -> tuple[float, list[Tensor]]:
        """Return the loss and its gradient, zero for parameters without influence; their `grad` is unchanged."""
        with _full_precision(), torch.enable_grad():
            loss = self.value()
            gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        pairs = zip(gradients, self.parameters, strict=True)
        return float(loss.detach()), [
            torch.zeros_like(parameter) if gradient is None else gradient.detach() for gradient, parameter in pairs
        ]

    @torch.no_grad()
    def _set(self, point: Sequence[Tensor]) -> None:
        for parameter, values in zip(self.parameters, point, strict=True):
            parameter.copy_(values)


def norm(tensors: Iterable[Tensor]) -> float:
    """Return the Euclidean norm of all tensors as one vector, summed in float64."""
    return sum(float(tensor.double().square().sum()) for tensor in tensors) ** 0.5


def inner(left: Iterable[Tensor], right: Iterable[Tensor]) -> float:
    """Return the inner product of two lists of tensors as vectors."""
    return sum(float((a.double() * b.double()).sum()) for a, b in zip(left, right, strict=True))


def minus(left: Iterable[Tensor], right: Iterable[Tensor]) -> list[Tensor]:
    """Return the difference of two lists of tensors."""
    return [a - b for a, b in zip(left, right, strict=True)]


@contextmanager
def _full_precision() -> Iterator[None]:
    """Switch off TF32 on a GPU and autocast."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions


def groups_of(names: Sequence[str]) -> dict[str, list[int]]:
    """Return indices of parameters by layer, bottom first.

    The groups of ListenAttendSpell: front end, listener's layers (both directions with the norm of their output),
    embedding, speller's LSTM layers, attention, output, CTC, which is the order of the model's parameters.
    """
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        groups.setdefault(_layer_of(name), []).append(index)
    return groups


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
