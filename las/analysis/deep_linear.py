"""Sanity check of the measurements: deep linear networks (Santurkar et al. 2018, section 2.2 and appendix B.1).

Inputs x of 10 standard normal values, targets y = A x with A of standard normal entries; 25 linear layers of 10 units
(Glorot), with batch norm after each or without; all 1000 cases at once; gradient descent with learning rate 1e-6. The
paper does not say whether the squared error is summed or averaged: it is summed here, because with an average the
update is too small to shift anything (all cosines are above 0.999).
"""

from collections.abc import Sequence
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from las.analysis import covariate_shift
from las.analysis.objective import Objective
from las.nn.normalisation import moment_norm, moments

LAYERS, WIDTH, CASES, LEARNING_RATE = 25, 10, 1000, 1e-6
SHOWN = (13, 24)
"""Layers that are measured, counted from 1: one in the middle, one near the output."""
REFERENCE = {"without a norm": (0.99, 0.93), "batch norm": (0.07, 0.10)}
"""cos(G, G') of those layers at step 0 for one draw of the network, from the plan of this package."""


class DeepLinear(nn.Module):
    """A deep linear network: W_25 ... W_1 x, in float64.

    Args:
        normalise: a function from a layer's outputs [cases, 10] to the inputs of the next layer.
    """

    def __init__(self, normalise: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.float64) for _ in range(LAYERS))
        for layer in self.layers:
            nn.init.xavier_uniform_(layer.get_parameter("weight"))
        self.normalise = normalise

    def forward(self, values: Tensor) -> Tensor:
        for layer in self.layers:
            values = self.normalise(layer(values))
        return values


def identity(values: Tensor) -> Tensor:
    """Return the values unchanged: no norm."""
    return values


def batch_norm(values: Tensor) -> Tensor:
    """Normalise every unit to mean 0 and variance 1 over the cases."""
    all_cases = torch.ones(len(values), dtype=torch.bool)
    return moment_norm(values, moments(values, all_cases, (0,))[0], values.new_ones(WIDTH), None, 1e-5)


NORMS = {"without a norm": identity, "batch norm": batch_norm}


def objective(normalise: Any, seed: int) -> Objective:
    """Return the summed squared error of a network on a problem, both drawn from a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = DeepLinear(normalise)
        inputs, mixing = (torch.randn(size, WIDTH, dtype=torch.float64) for size in (CASES, WIDTH))
    targets = functional.linear(inputs, mixing)
    return Objective(network.named_parameters(), lambda: (network(inputs) - targets).square().sum())


def first_shifts(normalise: Any, seed: int, layers: Sequence[int] = SHOWN) -> list[dict[str, Any]]:
    """Return the internal covariate shift of some layers at the first step of gradient descent."""
    loss_function = objective(normalise, seed)
    _, gradient = loss_function.gradient()
    updated = [value - LEARNING_RATE * slope for value, slope in zip(loss_function.point(), gradient, strict=True)]
    groups = {str(index + 1): [index] for index in range(LAYERS)}
    return covariate_shift.shifts(loss_function, groups, updated, [str(layer) for layer in layers])


def measure(seeds: int = 40) -> dict[str, Any]:
    """cos(G, G') of the layers `SHOWN` for each norm and each of `seeds` seeds."""
    results: dict[str, Any] = {"layers": list(SHOWN), "cosines": {}}
    for name, normalise in NORMS.items():
        rows = [[row["all"]["cosine"] for row in first_shifts(normalise, seed)] for seed in range(seeds)]
        results["cosines"][name] = [list(layer) for layer in zip(*rows, strict=True)]
    return results


def quantiles(cosines: Sequence[float]) -> tuple[float, float, float]:
    """Return the 5 % quantile, the median and the 95 % quantile over seeds."""
    low, middle, high = torch.tensor(cosines, dtype=torch.float64).quantile(
        torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    )
    return float(low), float(middle), float(high)


def table(results: dict[str, Any]) -> Table:
    """Return a table of our numbers over the seeds next to the published ones."""
    seeds = len(results["cosines"]["batch norm"][0])
    table = Table("deep linear network", title=f"cos(G, G') at step 0, median [5 %, 95 %] of {seeds} seeds (reference)")
    for layer in results["layers"]:
        table.add_column(f"layer {layer} of {LAYERS}", justify="right")
    for name, layers in results["cosines"].items():
        cells = []
        for cosines, reference in zip(layers, REFERENCE[name], strict=True):
            low, middle, high = quantiles(cosines)
            cells.append(f"{middle:.2f} [{low:.2f}, {high:.2f}] ({reference:.2f})")
        table.add_row(name, *cells)
    return table
