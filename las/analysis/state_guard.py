"""Restoring the state of a training after a probe, bit for bit."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def unchanged(model: nn.Module, optimiser: torch.optim.Optimizer) -> Iterator[None]:
    """Restore the state of a training after a `with` block, also after an exception.

    Restored are parameters, their gradients, buffers, training or evaluation mode of every module, the optimiser's
    state and its groups, and the random states of Python and torch on all devices.
    """
    parameters = [(tensor, tensor.detach().clone()) for tensor in model.parameters()]
    gradients = [
        (tensor, tensor.grad, None if tensor.grad is None else tensor.grad.clone()) for tensor in model.parameters()
    ]
    buffers = [(tensor, tensor.clone()) for tensor in model.buffers()]
    states = {tensor: {key: _copy(value) for key, value in saved.items()} for tensor, saved in optimiser.state.items()}
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimiser.param_groups]
    drawn = random.getstate()
    try:
        with torch.random.fork_rng(), modes_kept(model):
            yield
    finally:
        random.setstate(drawn)
        with torch.no_grad():
            for tensor, original in (*parameters, *buffers):
                tensor.copy_(original)
            for parameter, gradient, values in gradients:
                parameter.grad = gradient
                if gradient is not None and values is not None:
                    gradient.copy_(values)
        _restore(optimiser, states)
        for group, saved in zip(optimiser.param_groups, groups, strict=True):
            group.update(saved)


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Restore training or evaluation mode of every module after a `with` block."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode within a `with` block."""
    with modes_kept(model):
        model.eval()
        yield


def _restore(optimiser: torch.optim.Optimizer, states: dict[Any, dict[str, Any]]) -> None:
    for parameter in [parameter for parameter in optimiser.state if parameter not in states]:
        del optimiser.state[parameter]
    for parameter, saved in states.items():
        current = optimiser.state[parameter]
        for key, value in saved.items():
            if isinstance(value, Tensor):
                current[key].copy_(value)
            else:
                current[key] = value


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
