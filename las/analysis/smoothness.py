"""Smoothness of the loss along its gradient (Santurkar et al. 2018, section 3.1, figures 4 and 9).

At the point θ with d = ∇L(θ), for steps η_1, ..., η_J spaced evenly in their logarithm, on one batch:

    loss landscape             L(θ − η_j d): the narrower from least to most, the smoother
    gradient predictiveness    ‖∇L(θ) − ∇L(θ − η_j d)‖
    effective β                max_j ‖∇L(θ) − ∇L(θ − η_j d)‖ / (η_j ‖d‖)
    Lipschitz ratio            max_j |L(θ) − L(θ − η_j d)| / (η_j ‖d‖)    (Ben Othman 2018 speaks of Lipschitzness)

As a control, a random direction of the same length replaces d. If a norm makes the loss invariant to the scale of a
weight W, its gradient is proportional to 1 / ‖W‖ and β to 1 / ‖W‖², so β falls merely because W grows. Two numbers are
invariant to that: β ‖W‖² of each weight matrix, and `scale_free_beta` of all of them together, where each matrix is
measured in units of its own norm.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from rich.table import Table
from torch import Tensor

from las.analysis import objective, plots
from las.analysis.objective import Objective
from las.analysis.probe import Probe, real_update
from las.runtime import devices
from las.runtime.errors import ArgumentError, suggest

UNITS = ("update", "learning_rate", "gradient", "distance")


class Grid:
    """The steps η_1, ..., η_J along the gradient.

    Args:
        unit: the unit of `low` and `high`. `update`: the length of the optimiser's next update, so that the η_j ‖d‖ are
            lengths of real updates, for any optimiser; `learning_rate`: the learning rate (the paper's grid; the factor
            of the gradient in an update of plain SGD only); `gradient`: η itself, equal for all models; `distance`: the
            distance η ‖d‖, equal for all models.
        low, high, points: the first step, the last, and J. The paper has 1/2 and 4 learning rates for VGG (at 0.4 at
            most), 1/100 and 30 for its deep linear network, and does not say J.
    """

    def __init__(self, *, unit: str = "update", low: float = 0.5, high: float = 4.0, points: int = 8) -> None:
        if unit not in UNITS:
            raise ArgumentError(f"unit={unit} does not exist.{suggest(unit, UNITS)}")
        if not 0.0 < low <= high:
            raise ArgumentError(f"low={low} and high={high} must be positive, and low at most high")
        if points < 1:
            raise ArgumentError(f"points={points} must be at least 1")
        self.unit, self.low, self.high, self.points = unit, low, high, points

    def steps(self, gradient_norm: float, update_norm: float, learning_rate: float) -> list[float]:
        """Return the steps η_1, ..., η_J; a single step of zero for a gradient of zero, without direction."""
        if not gradient_norm:
            return [0.0]
        unit = {"update": update_norm / gradient_norm, "learning_rate": learning_rate}
        unit |= {"gradient": 1.0, "distance": 1.0 / gradient_norm}
        last = max(self.points - 1, 1)
        return [unit[self.unit] * self.low * (self.high / self.low) ** (j / last) for j in range(self.points)]


COMMON_GRID = Grid(unit="distance", low=0.03, high=1.0, points=8)
"""The grid of trainings that are compared: the same distances in all, from a small update of Adam's to a large one."""


class Ray(NamedTuple):
    """The measurements along one direction, one entry for each step."""

    distances: list[float]
    losses: list[float]
    differences: list[float]
    """Norms of the changes of the gradient."""
    by_parameter: list[list[float]]
    """Norms of the changes of the gradient of each parameter."""


def along(
    loss_function: Objective, start: tuple[float, list[Tensor]], direction: list[Tensor], steps: Sequence[float]
) -> Ray:
    """Measure losses and changes of the gradient at θ − η_j d, relative to `start`, loss and gradient at θ."""
    origin, length = loss_function.point(), objective.norm(direction)
    losses, differences = [], []
    for step in steps:
        with loss_function.at([value - step * part for value, part in zip(origin, direction, strict=True)]):
            loss, gradient = loss_function.gradient()
        losses.append(loss)
        differences.append(
            [objective.norm([shifted - original]) for shifted, original in zip(gradient, start[1], strict=True)]
        )
    totals = [sum(part**2 for part in parts) ** 0.5 for parts in differences]
    return Ray([step * length for step in steps], losses, totals, differences)


def summary(ray: Ray, loss: float) -> dict[str, Any]:
    """Return the four measurements of one direction."""
    return {
        "losses": ray.losses,
        "differences": ray.differences,
        "beta": _largest_ratio(ray.differences, ray.distances),
        "lipschitz": _largest_ratio([abs(loss - other) for other in ray.losses], ray.distances),
    }


def scale_corrected(
    loss_function: Objective, gradient: list[Tensor], ray: Ray, steps: Sequence[float]
) -> dict[str, Any]:
    """Measures that are invariant to the scale of weights in front of a norm.

    `radial` of a matrix is cos(W, ∇_W L): zero where the loss does not depend on its scale.
    """
    weights, norms = {}, {}
    for index in loss_function.matrices:
        weight, part = loss_function.parameters[index].detach(), gradient[index]
        size, slope = objective.norm([weight]), objective.norm([part])
        if not size or not slope:
            continue  # no direction, such as an embedding without tokens in the batch
        norms[index] = size, slope
        beta = _largest_ratio([parts[index] for parts in ray.by_parameter], [step * slope for step in steps])
        radial = objective.inner([weight], [part]) / (size * slope)
        weights[loss_function.names[index]] = {
            "norm": size,
            "radial": radial,
            "beta": beta,
            "beta_norm2": beta * size**2,
        }
    moved = sum((slope / size) ** 2 for size, slope in norms.values()) ** 0.5
    changed = [sum((size * parts[p]) ** 2 for p, (size, _) in norms.items()) ** 0.5 for parts in ray.by_parameter]
    return {"scale_free_beta": _largest_ratio(changed, [step * moved for step in steps]), "weights": weights}


def measure(subject: Probe, grid: Grid) -> dict[str, Any]:
    """Measure the smoothness at the current point of the training.

    `common` tells whether the grid is that of compared trainings. `fixed` is the loss of the example utterances
    before and after the update: losses of successive updates are of other utterances each, and differ as much when the
    parameters do not move at all.
    """
    loss_function, update = subject.objective(), real_update(subject)
    loss, gradient = loss_function.gradient()
    length = objective.norm(gradient)
    steps = grid.steps(length, update.distance, update.learning_rate)
    ray = along(loss_function, (loss, gradient), gradient, steps)
    fixed = subject.objective([subject.examples])
    before = fixed.loss()
    with fixed.at(update.point):
        fixed_losses = {"before": before, "after": fixed.loss()}
    control = along(loss_function, (loss, gradient), _random_direction(gradient, length, subject), steps)
    return {
        "unit": grid.unit,
        "common": vars(grid) == vars(COMMON_GRID),
        "etas": steps,
        "distances": ray.distances,
        "loss": loss,
        "gradient_norm": length,
        "update_norm": update.distance,
        "weight_norm": objective.norm(loss_function.parameters[index].detach() for index in loss_function.matrices),
        "learning_rate": update.learning_rate,
        "gradient": summary(ray, loss) | scale_corrected(loss_function, gradient, ray, steps),
        "random": summary(control, loss),
        "fixed": fixed_losses,
    }


def _random_direction(like: list[Tensor], length: float, subject: Probe) -> list[Tensor]:
    """Return a random direction of the given length in parameter space; a function of the training's seed and step."""
    device = subject.model.device
    generator = devices.generator(device, "random direction", subject.updates.seed, subject.step)
    drawn = [torch.empty_like(part).normal_(generator=generator) for part in like]
    scale = length / objective.norm(drawn)
    return [scale * part for part in drawn]


def _largest_ratio(values: Sequence[float], distances: Sequence[float]) -> float:
    return max(value / distance if distance else 0.0 for value, distance in zip(values, distances, strict=True))


def table(results: dict[str, Any]) -> Table:
    """Return a table of both directions side by side."""
    table = Table("", "along the gradient", "a random direction", title=f"smoothness, grid of unit {results['unit']}")
    pair = [results["gradient"], results["random"]]
    table.add_row("distances", *[_ends(results["distances"])] * 2)
    table.add_row(f"losses ({results['loss']:.4e} here)", *(_ends(direction["losses"]) for direction in pair))
    table.add_row("‖change of the gradient‖", *(_ends(direction["differences"]) for direction in pair))
    for name, label in (("beta", "effective β"), ("lipschitz", "Lipschitz ratio")):
        table.add_row(label, *(f"{direction[name]:.3e}" for direction in pair))
    losses = results["fixed"]
    table.add_row("loss of the examples, and after the update", f"{losses['before']:.4e}", f"{losses['after']:.4e}")
    table.add_row("scale-free β", f"{results['gradient']['scale_free_beta']:.3e}", "")
    return table


def _ends(values: Sequence[float]) -> str:
    return f"{min(values):.4e} to {max(values):.4e}"


def draw(history: Sequence[dict[str, Any]], pictures: plots.PictureFolder) -> None:
    """Draw ranges against the step over a training, or curves against the distance of one point."""
    if len(history) == 1:
        _draw_rays(history[0], pictures)
        return
    steps = [point["step"] for point in history]
    bands = [
        plots.Band(
            label, scale, *zip(*((min(values_of(point)), max(values_of(point))) for point in history), strict=True)
        )
        for label, scale, values_of in (
            ("loss along the gradient", "linear", lambda point: point["gradient"]["losses"]),
            ("‖change of the gradient‖", "log", lambda point: point["gradient"]["differences"]),
        )
    ]
    curves = {
        "effective β": [point["gradient"]["beta"] for point in history],
        "random direction": [point["random"]["beta"] for point in history],
        "scale-free β": [point["gradient"]["scale_free_beta"] for point in history],
    }
    lipschitz = {"Lipschitz ratio": [point["gradient"]["lipschitz"] for point in history]}
    pictures.bands("smoothness", steps, bands)
    pictures.lines("beta", steps, [plots.Panel("β", "log", curves), plots.Panel("|ΔL| / distance", "log", lipschitz)])


def _draw_rays(point: dict[str, Any], pictures: plots.PictureFolder) -> None:
    panels = [
        plots.Panel(label, "linear", {key: point[key][name] for key in ("gradient", "random")})
        for name, label in (("losses", "loss"), ("differences", "‖change of the gradient‖"))
    ]
    pictures.lines("smoothness", point["distances"], panels, "distance")
