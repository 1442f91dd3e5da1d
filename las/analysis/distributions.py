"""Distributions of parameters and of gate pre-activations (Ben Othman 2018, figures 4 to 6).

A summary holds mean, deviation, the quantiles of a ridge plot, and a histogram whose density integrates to one.
"""

from collections.abc import Sequence
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from las.analysis import activations, plots
from las.analysis.probe import Probe, not_finite

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
BINS = 60
MAX_VALUES = 1_000_000
"""The largest number of values in a summary; larger tensors are sampled at even spacing."""


def summary(values: Tensor) -> dict[str, Any]:
    """Statistics and histogram of the values of a tensor, one at least. Raises NumericalError unless all are finite."""
    flat = values.detach().flatten()
    flat = flat[:: -(-flat.numel() // MAX_VALUES)].double().cpu()
    if not flat.isfinite().all():
        raise not_finite("distributions")
    quantiles = torch.quantile(flat, torch.tensor(QUANTILES, dtype=flat.dtype)).tolist()
    low, high = quantiles[0], quantiles[-1]
    if low == high:  # all values are equal
        low, high = low - 0.5, high + 0.5
    density, edges = torch.histogram(flat, BINS, range=(low, high), density=True)
    return {
        "mean": float(flat.mean()),
        "std": float(flat.std(correction=0)),
        "norm": float(values.detach().double().norm()),
        "quantiles": quantiles,
        "density": density.tolist(),
        "edges": edges.tolist(),
    }


def measure(subject: Probe) -> dict[str, Any]:
    """Measure every parameter, and the gates of every cell on the examples, before and after the norm."""
    gates: dict[str, Any] = {}
    for activation in activations.of_model(subject.model, subject.examples):
        if activation.refused:
            gates[activation.layer] = {"refused": activation.refused}
            continue
        parts = {
            "input": activation.input,
            "hidden": activation.hidden,
            "before": activation.before,
            "after": activation.after,
        }
        gates[activation.layer] = {name: summary(values) for name, values in parts.items()}
    return {
        "parameters": {name: summary(parameter) for name, parameter in subject.model.named_parameters()},
        "gates": gates,
    }


def table(results: dict[str, Any]) -> Table:
    """Return a table with mean, standard deviation, and the 5 % and 95 % quantiles of each."""
    table = Table(title="distributions")
    table.add_column("values", overflow="fold")
    for heading in ("mean", "deviation", "5 %", "95 %"):
        table.add_column(heading, justify="right")
    named = dict(results["parameters"])
    for layer, parts in results["gates"].items():
        if "refused" in parts:
            table.add_row(f"gates of {layer}", parts["refused"], "", "", "")
            continue
        named |= {f"gates of {layer}, {part} the norm": parts[part] for part in ("before", "after")}
    for name, statistics in named.items():
        low, high = statistics["quantiles"][QUANTILES.index(0.05)], statistics["quantiles"][QUANTILES.index(0.95)]
        table.add_row(name, *(f"{value:.4f}" for value in (statistics["mean"], statistics["std"], low, high)))
    return table


def draw(history: Sequence[dict[str, Any]], pictures: plots.PictureFolder) -> None:
    """Draw histograms of the last point; over a training also quantiles against the step."""
    last = history[-1]
    measured = {layer: parts for layer, parts in last["gates"].items() if "refused" not in parts}
    if measured:
        rows = {layer: {part: parts[part] for part in ("before", "after")} for layer, parts in measured.items()}
        pictures.histograms("gates", rows)
    weights = {
        name: {"values": statistics}
        for name, statistics in last["parameters"].items()
        if name.endswith(("weight", "gain"))
    }
    pictures.histograms("weights", weights)
    if len(history) > 1:
        over = {name: [point["parameters"][name]["quantiles"] for point in history] for name in weights}
        for layer in measured:
            over[f"gates, {layer}"] = [point["gates"][layer]["after"]["quantiles"] for point in history]
        pictures.ridges("distributions", [point["step"] for point in history], over)
