"""Stability of the inputs of nonlinearities from one update to the next (Santurkar et al. 2018, figures 2 and 8).

Mean and variance of every unit j of every layer's gates, over the unpadded steps of the same utterances, before and
after one update; reported are means over the units of |μ_j' − μ_j| and |σ²_j' − σ²_j|.
"""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from las.analysis import activations, plots
from las.analysis.probe import Probe, real_update


def measure(subject: Probe) -> dict[str, Any]:
    """The moments of every layer: gates after the norm, on the examples."""
    before = activations.of_model(subject.model, subject.examples)
    with subject.objective().at(real_update(subject).point):
        after = activations.of_model(subject.model, subject.examples)
    found: list[dict[str, Any]] = []
    for old, new in zip(before, after, strict=True):
        if old.refused:
            found.append({"layer": old.layer, "refused": old.refused})
            continue
        (was, spread), (now, wider) = ((each.after.mean(0), each.after.var(0, correction=0)) for each in (old, new))
        found.append(
            {
                "layer": old.layer,
                "mean": float(was.mean()),
                "variance": float(spread.mean()),
                "mean_change": float((now - was).abs().mean()),
                "variance_change": float((wider - spread).abs().mean()),
            }
        )
    return {"layers": found}


def table(results: dict[str, Any]) -> Table:
    """A table with a row for each layer."""
    shown = Table("gates of", title="moments of gate pre-activations, means over the units")
    for heading in ("mean", "variance", "|change of the mean|", "|change of the variance|"):
        shown.add_column(heading, justify="right")
    for row in results["layers"]:
        if "refused" in row:
            shown.add_row(row["layer"], row["refused"], "", "", "")
            continue
        keys = ("mean", "variance", "mean_change", "variance_change")
        shown.add_row(row["layer"], *(f"{row[key]:.3e}" for key in keys))
    return shown


def draw(history: Sequence[dict[str, Any]], place: plots.Place) -> None:
    """Draw both changes against the step."""
    steps = [point["step"] for point in history]
    panels = []
    for key, label in (("mean_change", "|change of the mean|"), ("variance_change", "|change of the variance|")):
        curves = {
            row["layer"]: [point["layers"][layer][key] for point in history]
            for layer, row in enumerate(history[0]["layers"])
            if "refused" not in row
        }
        panels.append(plots.Panel(label, "log", curves))
    place.lines("moments", steps, panels)
