"""Restoring the state of a training after a probe, bit for bit."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def unchanged(model: nn.Module, optimiser: torch.optim.Optimizer) -> Iterator[None]:
    """Restore everything after a `with` block, whatever happens within.

    That is: parameters, their gradients, buffers, training or evaluation mode of every module, the optimiser's state
    and its groups, and the random states of Python and torch on all devices.
    """
    parameters = [(each, each.detach().clone()) for each in model.parameters()]
    gradients = [(each, each.grad, None if each.grad is None else each.grad.clone()) for each in model.parameters()]
    buffers = [(each, each.clone()) for each in model.buffers()]
    states = {each: {key: _copy(value) for key, value in kept.items()} for each, kept in optimiser.state.items()}
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimiser.param_groups]
    drawn = random.getstate()
    try:
        with torch.random.fork_rng(), modes_kept(model):
            yield
    finally:
        random.setstate(drawn)
        with torch.no_grad():
            for tensor, before in (*parameters, *buffers):
                tensor.copy_(before)
            for parameter, gradient, values in gradients:
                parameter.grad = gradient
                if gradient is not None and values is not None:
                    gradient.copy_(values)
        _restore(optimiser, states)
        for group, kept in zip(optimiser.param_groups, groups, strict=True):
            group.update(kept)


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Restore training or evaluation mode of every module after a `with` block."""
    modes = [(each, each.training) for each in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Keep the model in evaluation mode within a `with` block."""
    with modes_kept(model):
        model.eval()
        yield


def _restore(optimiser: torch.optim.Optimizer, states: dict[Any, dict[str, Any]]) -> None:
    for parameter in [each for each in optimiser.state if each not in states]:
        del optimiser.state[parameter]
    for parameter, kept in states.items():
        now = optimiser.state[parameter]
        for key, value in kept.items():
            if isinstance(value, Tensor):
                now[key].copy_(value)
            else:
                now[key] = value


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
