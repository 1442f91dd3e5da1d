"""Products of a recurrence's steps whose weights get their gradients after the loop, from one product over all steps.

A step of few rows writes a weight's gradient, and adds it up, for little arithmetic:

    y_t = x_t W^T + b        dW = sum over t of dy_t^T x_t,    db = sum over t of dy_t

x_t and dy_t are kept instead where they are smaller than W, and dW is one product. A tensor of each utterance, such as
the encoded states of an attention, is another W for each (`torch.matmul`).
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class Product(NamedTuple):
    """A product of a step: names of W and b, shapes of x and y, and their type."""

    weight: str
    bias: str | None
    x: torch.Size
    y: torch.Size
    dtype: torch.dtype
    batched: bool
    """True for x W, [batch, rows, in] by [batch, in, out]; False for x W^T."""

    @property
    def waits(self) -> bool:
        """True if x and dy are kept until all steps are done."""
        size = self.x[-1] * self.y[-1] * (self.x[0] if self.batched else 1)
        return self.x.numel() + self.y.numel() <= size

    def factors(self, room: int, device: torch.device) -> Iterator[Tensor]:
        """Yield room for x and dy of all steps, [room, ...]."""
        for shape in (self.x, self.y):
            yield torch.zeros(room, *shape, dtype=self.dtype, device=device)

    def add_gradients(self, totals: MutableMapping[str, Tensor], x: Tensor, d_y: Tensor) -> None:
        """Add dW and db of all steps, x and dy [steps, ...], to what is known of them."""
        if self.batched:
            x, d_y = (part.transpose(0, 1).flatten(1, 2) for part in (x, d_y))
            totals[self.weight].add_(x.transpose(1, 2) @ d_y)
            return
        x, d_y = x.flatten(0, -2), d_y.flatten(0, -2)
        totals[self.weight].add_(d_y.t() @ x)
        if self.bias is not None:
            totals[self.bias].add_(d_y.sum(0, dtype=totals[self.bias].dtype))


class Products(TorchFunctionMode):
    """Context of a few steps of a recurrence, in which it finds their products.

    Args:
        parameters: tensors that all steps read, by name.
        operands: the same ones as they are multiplied, without gradients; none where they are multiplied as they are.
        waiting: products of a step that have no gradients of weights now.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], operands: Sequence[Tensor], waiting: Sequence[Product] = ()
    ) -> None:
        super().__init__()
        self.parameters, self.waiting = parameters, waiting
        self.names = {id(tensor): name for name, tensor in parameters.items()}
        self.operands = dict(zip(parameters, operands, strict=False))
        self.leaves: dict[str, Tensor] = {}
        """Operands that have gradients now."""
        self.found: list[Product] = []
        self.factors: list[tuple[Tensor, Tensor]] = []
        """x and y of the products that wait, step by step."""

    def of_a_step(self, steps: int) -> list[Product]:
        """Return the products of a step that may wait; none if steps differ."""
        one = self.found[: len(self.found) // steps]
        return [each for each in one if each.waits] if one * steps == self.found else []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is functional.linear and not kwargs:
            x, weight, bias = (*args, None)[:3]
            of_weight, of_bias = self.names.get(id(weight)), self.names.get(id(bias))
            if of_weight is not None and (bias is None or of_bias is not None):
                shape = torch.Size((*x.shape[:-1], len(weight)))
                return self._product(func, x, of_weight, of_bias, shape)
        if func is torch.matmul and not kwargs:
            x, weight = args
            of_weight = self.names.get(id(weight))
            if of_weight is not None and x.dim() == weight.dim() == 3:
                return self._product(func, x, of_weight, None, torch.Size((*x.shape[:-1], weight.shape[-1])))
        return func(*args, **(kwargs or {}))

    def _product(self, multiply: Any, x: Tensor, weight: str, bias: str | None, shape: torch.Size) -> Tensor:
        names = [weight] if bias is None else [weight, bias]
        operand, *offset = (self.operands.get(name, self.parameters[name]) for name in names)
        product = Product(weight, bias, x.shape, shape, operand.dtype, multiply is torch.matmul)
        self.found.append(product)
        if product not in self.waiting:
            y: Tensor = multiply(x, *map(self._leaf, names))
            return y
        y = multiply(x, operand.detach(), *(part.detach() for part in offset))
        self.factors.append((x.detach().to(operand.dtype), y if y.requires_grad else y.requires_grad_()))
        return y

    def _leaf(self, name: str) -> Tensor:
        """Return a parameter as it is multiplied, with a gradient if the parameter has one."""
        parameter = self.parameters[name]
        if name not in self.operands or not (torch.is_grad_enabled() and parameter.requires_grad):
            return self.operands.get(name, parameter)
        if name not in self.leaves:
            self.leaves[name] = self.operands[name].detach().requires_grad_()
        return self.leaves[name]
