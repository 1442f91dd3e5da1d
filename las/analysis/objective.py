"""A loss as a function of the parameters alone, and the parameters grouped by layer from bottom to top.

All evaluations of one probe use the same batch and the same random draws, in full fp32.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Objective:
    """A loss whose parameters can be moved and put back.

    Args:
        named: the parameters with their names; those that are not trained are left out.
        value: computes the loss at the present values of the parameters, the same each time.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], value: Callable[[], Tensor]) -> None:
        trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        self.names = [name for name, _ in trained]
        self.parameters = [parameter for _, parameter in trained]
        self.value = value

    @property
    def matrices(self) -> list[int]:
        """Indices of the weight matrices: no gains, no biases."""
        return [place for place, name in enumerate(self.names) if name.endswith("weight")]

    def point(self) -> list[Tensor]:
        """A copy of the parameters' present values."""
        return [parameter.detach().clone() for parameter in self.parameters]

    @contextmanager
    def at(self, point: Sequence[Tensor]) -> Iterator[None]:
        """Give the parameters other values within a `with` block; afterwards exactly their own."""
        before = self.point()
        try:
            self._set(point)
            yield
        finally:
            self._set(before)

    def loss(self) -> float:
        """The loss at the present values of the parameters."""
        with _full_precision(), torch.no_grad():
            return float(self.value())

    def gradient(self) -> tuple[float, list[Tensor]]:
        """The loss and its gradient, zero for parameters that it does not depend on. Their `grad` stays as it is."""
        with _full_precision(), torch.enable_grad():
            loss = self.value()
            found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        pairs = zip(found, self.parameters, strict=True)
        return float(loss.detach()), [torch.zeros_like(own) if part is None else part.detach() for part, own in pairs]

    @torch.no_grad()
    def _set(self, point: Sequence[Tensor]) -> None:
        for parameter, values in zip(self.parameters, point, strict=True):
            parameter.copy_(values)


def norm(tensors: Iterable[Tensor]) -> float:
    """The Euclidean norm of all tensors as one vector, summed in float64."""
    return sum(float(each.double().square().sum()) for each in tensors) ** 0.5


def inner(one: Iterable[Tensor], other: Iterable[Tensor]) -> float:
    """The inner product of two lists of tensors as vectors."""
    return sum(float((a.double() * b.double()).sum()) for a, b in zip(one, other, strict=True))


def minus(one: Iterable[Tensor], other: Iterable[Tensor]) -> list[Tensor]:
    """The difference of two lists of tensors."""
    return [a - b for a, b in zip(one, other, strict=True)]


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
    """Indices of parameters by layer, bottom first.

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
