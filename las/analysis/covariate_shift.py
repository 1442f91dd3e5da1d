"""Internal covariate shift (Santurkar et al. 2018, definition 2.1).

G_i  = ∇_{W_i} L(W_1, ..., W_k) at step t,
G'_i = ∇_{W_i} L(W_1', ..., W_{i-1}', W_i, ..., W_k)    on the same batch,

where W' are the parameters after the optimiser's own update. Layer i sees a shift where the layers below it, as they
were updated, change the gradient that it was to follow: ‖G_i - G'_i‖ (0 without a shift), cos(G_i, G'_i) (1 without).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.table import Table
from torch import Tensor

from las.analysis import objective, plots
from las.analysis.objective import Objective, groups_of
from las.analysis.probe import Probe, real_update


def shifts(
    of: Objective, groups: Mapping[str, Sequence[int]], after: Sequence[Tensor], only: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The shift of each group, in the order given, bottom first.

    Args:
        of: the loss, its parameters at step t.
        groups: places of the parameters of each group.
        after: all parameters as the update leaves them.
        only: groups to measure; all by default. Each costs a backward pass.

    Returns:
        For each group `l2`, `cosine` and `relative` (l2 over ‖G‖) of its weight matrices and of all its parameters.
    """
    before, (_, gradient) = of.point(), of.gradient()
    mixed = list(before)
    found = []
    for name, places in groups.items():
        if not only or name in only:
            with of.at(mixed):
                _, shifted = of.gradient()
            matrices = [place for place in places if place in of.matrices]
            found.append(
                {
                    "group": name,
                    "weights": _compared([gradient[p] for p in matrices], [shifted[p] for p in matrices]),
                    "all": _compared([gradient[p] for p in places], [shifted[p] for p in places]),
                }
            )
        for place in places:
            mixed[place] = after[place]
    return found


def _compared(gradient: Sequence[Tensor], shifted: Sequence[Tensor]) -> dict[str, float]:
    l2, length = objective.norm(objective.minus(gradient, shifted)), objective.norm(gradient)
    both = length * objective.norm(shifted)
    # Rounding must not let one vector differ from itself; two of length zero are the same as well.
    cosine = 1.0 if l2 == 0 else objective.inner(gradient, shifted) / both if both else 0.0
    return {"l2": l2, "cosine": cosine, "relative": l2 / length if length else 0.0}


def measure(subject: Probe) -> dict[str, Any]:
    """The shift that the next update brings to every layer."""
    of, after = subject.objective(), real_update(subject)
    return {"groups": shifts(of, groups_of(of.names), after.point), "update_norm": after.distance}


def table(results: dict[str, Any]) -> Table:
    """A table with a row for each layer."""
    shown = Table("layer", title="internal covariate shift of the next update (weight matrices)")
    for heading in ("L2 ‖G - G'‖", "cos(G, G')", "L2 / ‖G‖"):
        shown.add_column(heading, justify="right")
    for row in results["groups"]:
        of = row["weights"]
        shown.add_row(row["group"], f"{of['l2']:.3e}", f"{of['cosine']:.4f}", f"{of['relative']:.4f}")
    return shown


def draw(history: Sequence[dict[str, Any]], place: plots.Place) -> None:
    """Draw both measures of every layer against the step."""
    names = [row["group"] for row in history[0]["groups"]]
    steps = [point["step"] for point in history]
    panels = []
    for key, label in (("l2", "‖G - G'‖"), ("cosine", "cos(G, G')")):
        rows = [[point["groups"][index]["weights"][key] for point in history] for index in range(len(names))]
        panels.append(plots.Panel(label, "log" if key == "l2" else "linear", dict(zip(names, rows, strict=True))))
    place.lines("covariate_shift", steps, panels)
