"""Stability of the inputs of nonlinearities from one update to the next (Santurkar et al. 2018, figures 2 and 8).

Mean and variance of every unit j of every layer's gates, over the unpadded steps of the same utterances, before and
after one update; reported are means over the units of |μ_j' − μ_j| and |σ²_j' − σ²_j|.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from rich.table import Table

from las.analysis import activations, plots
from las.analysis.probe import Probe, real_update


def measure(subject: Probe) -> dict[str, Any]:
    """Return the moments of every layer: gates after the norm, on the examples."""
    old_gates = activations.of_model(subject.model, subject.examples)
    with subject.objective().at(real_update(subject).point):
        new_gates = activations.of_model(subject.model, subject.examples)
    changes: list[dict[str, Any]] = []
    for old, new in zip(old_gates, new_gates, strict=True):
        if old.refused:
            changes.append({"layer": old.layer, "refused": old.refused})
            continue
        (old_mean, old_variance), (new_mean, new_variance) = (
            (gates.after.mean(0), gates.after.var(0, correction=0)) for gates in (old, new)
        )
        changes.append(
            {
                "layer": old.layer,
                "mean": float(old_mean.mean()),
                "variance": float(old_variance.mean()),
                "mean_change": float((new_mean - old_mean).abs().mean()),
                "variance_change": float((new_variance - old_variance).abs().mean()),
            }
        )
    return {"layers": changes}


def table(results: dict[str, Any]) -> Table:
    """Return a table with a row for each layer."""
    table = Table("gates of", title="moments of gate pre-activations, means over the units")
    for heading in ("mean", "variance", "|change of the mean|", "|change of the variance|"):
        table.add_column(heading, justify="right")
    for row in results["layers"]:
        if "refused" in row:
            table.add_row(row["layer"], row["refused"], "", "", "")
            continue
        keys = ("mean", "variance", "mean_change", "variance_change")
        table.add_row(row["layer"], *(f"{row[key]:.3e}" for key in keys))
    return table


def draw(history: Sequence[dict[str, Any]], pictures: plots.PictureFolder) -> None:
    """Draw both changes against the step."""
    panels = [
        plots.Panel(label, "log", plots.curves(history, "layers", "layer", itemgetter(key)))
        for key, label in (("mean_change", "|change of the mean|"), ("variance_change", "|change of the variance|"))
    ]
    pictures.lines("moments", [point["step"] for point in history], panels)
