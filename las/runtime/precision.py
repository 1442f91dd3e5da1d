"""Types of the operands of matrix products: fp32, or bfloat16 by torch's autocast."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from las.runtime.errors import require_known

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Types of the operands of matrix products by name."""

PRODUCTS = {functional.linear, functional.conv1d, functional.conv2d, torch.matmul, torch.bmm, torch.mm} | {
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.Tensor.__rmatmul__,
    torch.Tensor.bmm,
    torch.Tensor.mm,
}
"""Functions whose operands autocast rounds, of those that models take products by."""


def operand_type(name: str) -> torch.dtype:
    """Return the type of operands of a precision. Raises ArgumentError for a name that is none."""
    require_known("precision", name, PRECISIONS)
    return PRECISIONS[name]


def products_of(operands: torch.dtype, device: torch.device) -> AbstractContextManager[None]:
    """Take products in the block with operands of a type, by autocast; norms, softmax and loss stay in fp32.

    On a processor for which oneDNN has no bfloat16, torch multiplies it by loops that are slower than fp32. There
    operands are rounded to bfloat16 and multiplied in fp32, and the results are rounded, as autocast has them.
    """
    emulated = device.type == "cpu" and operands == torch.bfloat16 and not has_bfloat16()
    return _products(operands, device, emulated)


def products_as_now(device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that makes blocks whose products are taken as they are where this is called."""
    enabled, operands = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
    emulated = any(isinstance(mode, RoundedProducts) for mode in _get_current_function_mode_stack())
    return partial(_products, operands if enabled else torch.float32, device, emulated)


@contextmanager
def _products(operands: torch.dtype, device: torch.device, emulated: bool) -> Iterator[None]:
    autocast = torch.autocast(device.type, operands, enabled=operands != torch.float32)
    with autocast, RoundedProducts() if emulated else nullcontext():
        yield


@cache
def has_bfloat16() -> bool:
    """Return True if oneDNN multiplies matrices of bfloat16 on this processor: AVX512, or bf16 of ARM."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class RoundedProducts(TorchFunctionMode):
    """Multiplies in fp32 what autocast on the CPU would multiply in bfloat16: the operands and results are rounded."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func not in PRODUCTS or not _in_bfloat16([*args, *given.values()]):
            return func(*args, **given)
        with torch.autocast("cpu", enabled=False):
            product: Tensor = func(*map(_rounded, args), **{name: _rounded(each) for name, each in given.items()})
            return product.bfloat16()


def _in_bfloat16(operands: list[Any]) -> bool:
    """Return True if autocast takes a product of these in bfloat16; it leaves fp64 and other devices alone."""
    if not torch.is_autocast_enabled("cpu") or torch.get_autocast_dtype("cpu") != torch.bfloat16:
        return False
    tensors = [each for each in operands if isinstance(each, Tensor)]
    return all(each.device.type == "cpu" and each.dtype in (torch.float32, torch.bfloat16) for each in tensors)


def _rounded(operand: Any) -> Any:
    """Return a tensor of numbers of bfloat16 in fp32, and anything else as it is."""
    return operand.bfloat16().float() if isinstance(operand, Tensor) else operand
