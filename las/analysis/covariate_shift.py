"""Internal covariate shift (Santurkar et al. 2018, definition 2.1).

G_i  = ∇_{W_i} L(W_1, ..., W_k) at step t,
G'_i = ∇_{W_i} L(W_1', ..., W_{i-1}', W_i, ..., W_k)    on the same batch,

where W' are the parameters after the optimiser's own update. The shift of layer i is the change of its gradient by the
update of the layers below: ‖G_i - G'_i‖ (0 without a shift), cos(G_i, G'_i) (1 without).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.table import Table
from torch import Tensor

from las.analysis import objective, plots
from las.analysis.objective import Objective, groups_of
from las.analysis.probe import Probe, real_update


def shifts(
    loss_function: Objective, groups: Mapping[str, Sequence[int]], updated: Sequence[Tensor], only: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return the internal covariate shift of each group of parameters.

    Args:
        loss_function: the loss, its parameters at step t.
        groups: the indices of the parameters of each group, bottom first.
        updated: all parameters after the update.
        only: the groups to measure; all by default. Each costs a backward pass.

    Returns:
        For each group `l2`, `cosine` and `relative` (l2 over ‖G‖) of its weight matrices and of all its parameters.
    """
    parameters, (_, gradient) = loss_function.point(), loss_function.gradient()
    mixed = list(parameters)
    results = []
    for name, indices in groups.items():
        if not only or name in only:
            with loss_function.at(mixed):
                _, shifted = loss_function.gradient()
            matrices = [index for index in indices if index in loss_function.matrices]
            results.append(
                {
                    "group": name,
                    "weights": _compared([gradient[p] for p in matrices], [shifted[p] for p in matrices]),
                    "all": _compared([gradient[p] for p in indices], [shifted[p] for p in indices]),
                }
            )
        for index in indices:
            mixed[index] = updated[index]
    return results


def _compared(gradient: Sequence[Tensor], shifted: Sequence[Tensor]) -> dict[str, float]:
    l2, length = objective.norm(objective.minus(gradient, shifted)), objective.norm(gradient)
    both = length * objective.norm(shifted)
    # Exactly 1 for equal vectors, whatever the rounding, and for two of length zero.
    cosine = 1.0 if l2 == 0 else objective.inner(gradient, shifted) / both if both else 0.0
    return {"l2": l2, "cosine": cosine, "relative": l2 / length if length else 0.0}


def measure(subject: Probe) -> dict[str, Any]:
    """Return the internal covariate shift of every layer at the next update."""
    loss_function, update = subject.objective(), real_update(subject)
    return {
        "groups": shifts(loss_function, groups_of(loss_function.names), update.point),
        "update_norm": update.distance,
    }


def table(results: dict[str, Any]) -> Table:
    """Return a table with a row for each layer."""
    table = Table("layer", title="internal covariate shift of the next update (weight matrices)")
    for heading in ("L2 ‖G - G'‖", "cos(G, G')", "L2 / ‖G‖"):
        table.add_column(heading, justify="right")
    for row in results["groups"]:
        weights = row["weights"]
        table.add_row(row["group"], f"{weights['l2']:.3e}", f"{weights['cosine']:.4f}", f"{weights['relative']:.4f}")
    return table


def draw(history: Sequence[dict[str, Any]], pictures: plots.PictureFolder) -> None:
    """Draw both measures of every layer against the step."""
    lengths = plots.curves(history, "groups", "group", lambda row: row["weights"]["l2"])
    cosines = plots.curves(history, "groups", "group", lambda row: row["weights"]["cosine"])
    panels = [plots.Panel("‖G - G'‖", "log", lengths), plots.Panel("cos(G, G')", "linear", cosines)]
    pictures.lines("covariate_shift", [point["step"] for point in history], panels)
