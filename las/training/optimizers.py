"""Nadam in the form of TensorFlow 1 (used for the hybrid models of Zeineldeen et al. 2020), and checks of settings."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from las.config import build
from las.runtime.errors import ArgumentError, ConfigError

FRACTIONS = ("betas", "momentum", "dampening", "rho", "alpha", "lr_decay")
"""Settings of optimisers that lie between 0 and 1."""
NOT_NEGATIVE = ("eps", "weight_decay", "lambd")


class Nadam(torch.optim.Optimizer):
    """`tf.contrib.opt.NadamOptimizer`. For the gradient g of step t, counted from 1:

        m = β1 m + (1 - β1) g
        v = β2 v + (1 - β2) g²
        w = w - lr √(1 - β2^t) / (1 - β1^t) · (β1 m + (1 - β1) g) / (√v + ε)

    ε is added to the √v that is not yet corrected for its start at zero (the ε̂ of Kingma & Ba 2015, section 2), and
    β1 is the same at every step. `torch.optim.NAdam` (Dozat 2016) differs in both, so its results differ clearly for an
    ε as large as the 0.1 of those models.

    ε is relative to the size of the gradients: 0.1 goes with `loss.reduction: sum`.

    Args:
        parameters: tensors, or groups of them with options of their own.
        lr: the learning rate.
        betas: β1 and β2.
        eps: ε.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
            raise ArgumentError(f"betas={list(betas)} must be two numbers, at least 0 and less than 1")
        if lr < 0.0 or eps < 0.0:
            raise ArgumentError(f"lr={lr} and eps={eps} must not be negative")
        super().__init__(parameters, {"lr": lr, "betas": tuple(betas), "eps": eps})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns the loss of `closure`, which computes the gradients."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        with torch.no_grad():
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
                for fused in _fused_updates(parameters):
                    self._update(fused, group["lr"], beta1, beta2, group["eps"])
        return loss

    def _update(self, parameters: list[Tensor], lr: float, beta1: float, beta2: float, eps: float) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        states = [self._state(parameter) for parameter in parameters]
        means = [state["mean"] for state in states]
        squares = [state["square"] for state in states]
        rates = []
        for state in states:
            state["step"] += 1
            step = int(state["step"])
            rates.append(-lr * math.sqrt(1.0 - beta2**step) / (1.0 - beta1**step))
        torch._foreach_lerp_(means, gradients, 1.0 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - beta2)
        ahead = torch._foreach_lerp(means, gradients, 1.0 - beta1)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(parameters, ahead, roots, rates)

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        """The state of a parameter. Its step is a tensor on the CPU, as in torch's own optimisers."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = torch.zeros_like(parameter)
        return state


def _fused_updates(parameters: list[Tensor]) -> list[list[Tensor]]:
    """Lists of parameters that are updated together.

    All parameters on a GPU, where launching a kernel costs more than it computes. On a CPU each alone, so that it stays
    in the cache: half the time for a model of a million parameters.
    """
    on_gpu = [parameter for parameter in parameters if parameter.is_cuda]
    one_by_one = [[parameter] for parameter in parameters if not parameter.is_cuda]
    return [on_gpu, *one_by_one] if on_gpu else one_by_one


def check_settings(section: dict[str, Any]) -> None:
    """Raise ConfigError for an unusable setting of `optim`, such as a learning rate of 0, which torch accepts."""
    try:
        for key in FRACTIONS:
            build.require(key, section.get(key), 0.0, 1.0)
        for key in NOT_NEGATIVE:
            build.require(key, section.get(key), 0.0)
    except ArgumentError as error:
        raise ConfigError(f"optim.{error}") from error
    rate = section.get("lr")
    if isinstance(rate, int | float) and rate <= 0:
        raise ConfigError(f"optim.lr={rate} trains nothing: it must be above 0, for example optim.lr=0.001")
