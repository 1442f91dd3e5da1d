"""Restoring the state of a training after a probe, bit for bit."""

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


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
    optimisation = copy.deepcopy(optimiser.state_dict())
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
        optimiser.load_state_dict(optimisation)


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
