"""Parameters that are not where they start, where many of them are ones and zeros."""

from typing import TypeVar

import torch
from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def moved(module: Module, by: float) -> Module:
    """The module, a normal number of this standard deviation added to every value of its parameters."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return module
