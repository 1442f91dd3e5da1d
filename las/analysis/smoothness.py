"""Smoothness of the loss along its gradient (Santurkar et al. 2018, section 3.1, figures 4 and 9).

At the point θ with d = ∇L(θ), for steps η_1, ..., η_J spaced evenly in their logarithm, on one batch:

    loss landscape             L(θ − η_j d): the narrower from least to most, the smoother
    gradient predictiveness    ‖∇L(θ) − ∇L(θ − η_j d)‖
    effective β                max_j ‖∇L(θ) − ∇L(θ − η_j d)‖ / (η_j ‖d‖)
    Lipschitz ratio            max_j |L(θ) − L(θ − η_j d)| / (η_j ‖d‖)    (Ben Othman 2018 speaks of Lipschitzness)

A control takes a random direction in place of d, of its length. Where a norm makes the loss the same for every scale of
a weight W, its gradient goes with 1 / ‖W‖ and β with 1 / ‖W‖², so that β falls when W grows and nothing else happens.
Two numbers are free of that: β ‖W‖² of each weight matrix, and `scale_free_beta` of all of them together, where each
matrix is measured in units of its own norm.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from rich.table import Table
from torch import Tensor

from las.analysis import objective, plots
from las.analysis.objective import Objective
from las.analysis.probe import Probe, real_update
from las.runtime import seeding
from las.runtime.errors import ArgumentError, suggest

UNITS = ("update", "learning_rate", "gradient", "distance")


class Grid:
    """The steps η_1, ..., η_J along the gradient.

    Args:
        unit: what the numbers below are multiples of. `update`: the length of the optimiser's next update, so that
            the η_j ‖d‖ are lengths that the training makes, whatever its optimiser; `learning_rate`: the learning rate
            (the paper's grid; only for plain SGD is that what an update multiplies the gradient with); `gradient`: one,
            the same η for all models; `distance`: one, the same η ‖d‖ for all models.
        low, high, points: the first step, the last, and J. The paper has 1/2 and 4 learning rates for VGG (at 0.4 at
            most), 1/100 and 30 for its deep linear network, and does not say J.
    """

    def __init__(self, *, unit: str = "update", low: float = 0.5, high: float = 4.0, points: int = 8) -> None:
        if unit not in UNITS:
            raise ArgumentError(f"unit={unit} does not exist.{suggest(unit, UNITS)}")
        if not 0.0 < low <= high:
            raise ArgumentError(f"low={low} and high={high} must be positive, the first not the larger")
        if points < 1:
            raise ArgumentError(f"points={points} must be at least 1")
        self.unit, self.low, self.high, self.points = unit, low, high, points

    def steps(self, gradient_norm: float, update_norm: float, learning_rate: float) -> list[float]:
        """The steps η_1, ..., η_J; a single step of zero for a gradient of length zero, which has no direction."""
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
    """Lengths of the changes of the gradient."""
    by_parameter: list[list[float]]
    """The same, parameter by parameter."""


def along(of: Objective, start: tuple[float, list[Tensor]], direction: list[Tensor], steps: Sequence[float]) -> Ray:
    """Loss and gradient at θ − η_j d; `start` are those at θ."""
    here, length = of.point(), objective.norm(direction)
    losses, differences = [], []
    for step in steps:
        with of.at([value - step * part for value, part in zip(here, direction, strict=True)]):
            loss, gradient = of.gradient()
        losses.append(loss)
        differences.append([objective.norm([one - other]) for one, other in zip(gradient, start[1], strict=True)])
    whole = [sum(part**2 for part in parts) ** 0.5 for parts in differences]
    return Ray([step * length for step in steps], losses, whole, differences)


def summary(ray: Ray, loss: float) -> dict[str, Any]:
    """The four measurements of one direction."""
    return {
        "losses": ray.losses,
        "differences": ray.differences,
        "beta": _largest_ratio(ray.differences, ray.distances),
        "lipschitz": _largest_ratio([abs(loss - other) for other in ray.losses], ray.distances),
    }


def scale_corrected(of: Objective, gradient: list[Tensor], ray: Ray, steps: Sequence[float]) -> dict[str, Any]:
    """Measures that are invariant to the scale of weights in front of a norm.

    `radial` of a matrix is cos(W, ∇_W L): zero where the loss does not depend on its scale.
    """
    weights, norms = {}, {}
    for place in of.matrices:
        weight, part = of.parameters[place].detach(), gradient[place]
        size, slope = objective.norm([weight]), objective.norm([part])
        if not size or not slope:
            continue  # it has no direction: an embedding that no token of the batch uses
        norms[place] = size, slope
        beta = _largest_ratio([parts[place] for parts in ray.by_parameter], [step * slope for step in steps])
        radial = objective.inner([weight], [part]) / (size * slope)
        weights[of.names[place]] = {"norm": size, "radial": radial, "beta": beta, "beta_norm2": beta * size**2}
    moved = sum((slope / size) ** 2 for size, slope in norms.values()) ** 0.5
    changed = [sum((size * parts[p]) ** 2 for p, (size, _) in norms.items()) ** 0.5 for parts in ray.by_parameter]
    return {"scale_free_beta": _largest_ratio(changed, [step * moved for step in steps]), "weights": weights}


def measure(subject: Probe, grid: Grid) -> dict[str, Any]:
    """Measure the smoothness at the current point of the training.

    `common` tells whether the grid is that of compared trainings. `fixed` is the loss of the example utterances
    before and after the update: losses of successive updates are of other utterances each, and differ as much when the
    parameters do not move at all.
    """
    of, after = subject.objective(), real_update(subject)
    loss, gradient = of.gradient()
    length = objective.norm(gradient)
    steps = grid.steps(length, after.distance, after.learning_rate)
    ray = along(of, (loss, gradient), gradient, steps)
    fixed = subject.objective([subject.examples])
    before = fixed.loss()
    with fixed.at(after.point):
        fixed_losses = {"before": before, "after": fixed.loss()}
    aside = along(of, (loss, gradient), _random_direction(gradient, length, subject), steps)
    return {
        "unit": grid.unit,
        "common": vars(grid) == vars(COMMON_GRID),
        "etas": steps,
        "distances": ray.distances,
        "loss": loss,
        "gradient_norm": length,
        "update_norm": after.distance,
        "weight_norm": objective.norm(of.parameters[place].detach() for place in of.matrices),
        "learning_rate": after.learning_rate,
        "gradient": summary(ray, loss) | scale_corrected(of, gradient, ray, steps),
        "random": summary(aside, loss),
        "fixed": fixed_losses,
    }


def _random_direction(like: list[Tensor], length: float, subject: Probe) -> list[Tensor]:
    """A random direction of that length in parameter space; equal at equal steps of every training."""
    device = subject.model.device
    generator = seeding.generator(device, "random direction", subject.updates.seed, subject.step)
    drawn = [torch.empty_like(part).normal_(generator=generator) for part in like]
    scale = length / objective.norm(drawn)
    return [scale * part for part in drawn]


def _largest_ratio(values: Sequence[float], distances: Sequence[float]) -> float:
    return max(value / distance if distance else 0.0 for value, distance in zip(values, distances, strict=True))


def table(results: dict[str, Any]) -> Table:
    """A table of both directions side by side."""
    shown = Table("", "along the gradient", "a random direction", title=f"smoothness, grid of unit {results['unit']}")
    pair = [results["gradient"], results["random"]]
    shown.add_row("distances", *[_ends(results["distances"])] * 2)
    shown.add_row(f"losses ({results['loss']:.4e} here)", *(_ends(each["losses"]) for each in pair))
    shown.add_row("‖change of the gradient‖", *(_ends(each["differences"]) for each in pair))
    for name, label in (("beta", "effective β"), ("lipschitz", "Lipschitz ratio")):
        shown.add_row(label, *(f"{each[name]:.3e}" for each in pair))
    losses = results["fixed"]
    shown.add_row("loss of the examples, and after the update", f"{losses['before']:.4e}", f"{losses['after']:.4e}")
    shown.add_row("scale-free β", f"{results['gradient']['scale_free_beta']:.3e}", "")
    return shown


def _ends(values: Sequence[float]) -> str:
    return f"{min(values):.4e} to {max(values):.4e}"


def draw(history: Sequence[dict[str, Any]], place: plots.Place) -> None:
    """Draw ranges against the step over a training, or curves against the distance of one point."""
    if len(history) == 1:
        _draw_rays(history[0], place)
        return
    steps = [point["step"] for point in history]
    bands = [
        plots.Band(label, scale, *zip(*((min(of(point)), max(of(point))) for point in history), strict=True))
        for label, scale, of in (
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
    place.bands("smoothness", steps, bands)
    place.lines("beta", steps, [plots.Panel("β", "log", curves), plots.Panel("|ΔL| / distance", "log", lipschitz)])


def _draw_rays(point: dict[str, Any], place: plots.Place) -> None:
    panels = [
        plots.Panel(label, "linear", {key: point[key][name] for key in ("gradient", "random")})
        for name, label in (("losses", "loss"), ("differences", "‖change of the gradient‖"))
    ]
    place.lines("smoothness", point["distances"], panels, "distance")
