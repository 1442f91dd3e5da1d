"""Reach of the states of a listener: where along time the gradient of its middle state lies, and their rms.

Of an utterance, let s be the state in the middle, c the row there at the bottom of the listener, and v a random
direction of length 1. Near is the share of Σ_t ‖∂(vᵀs)/∂x_t‖ over rows x_t with |t - c| at most `NEAR`, far that with
|t - c| above `FAR`; shares are means over utterances. The sensitivity is the root mean square over utterances of
‖∂(vᵀs)/∂x‖, all rows together. It explodes where a recurrence enlarges what went before, as with a norm of U h at gain
1, and vanishes with the states' root mean square (rms) where they shrink from layer to layer.
"""

from collections.abc import Sequence
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from las.analysis import activations, plots
from las.analysis.probe import Probe
from las.analysis.state_guard import evaluating
from las.nn.normalisation import mask_of

NEAR, FAR = 10, 30
"""Rows at the bottom of the listener."""


def measure(subject: Probe) -> dict[str, Any]:
    """Measure on the examples in evaluation mode: `near`, `far`, `sensitivity`, and the rms of layers' inputs."""
    batch, model = subject.examples, subject.model
    with evaluating(model), torch.enable_grad():
        listened = activations.listen(model, batch)
        generator = torch.Generator().manual_seed(0)
        direction = torch.randn(listened.encoded.shape[-1], generator=generator).to(listened.encoded)
        utterances = torch.arange(len(listened.num_states))
        middle = listened.encoded[utterances, listened.num_states.cpu() // 2]
        projected = (middle @ direction).sum() / direction.norm()
        (gradient,) = torch.autograd.grad(projected, [listened.inputs[0]])
    near, far = shares(gradient, listened.num_rows[0])
    sensitivity = float(gradient.double().square().sum((1, 2)).mean().sqrt())
    rows = {
        f"listener {number} reads": (each, listened.num_rows[number]) for number, each in enumerate(listened.inputs)
    }
    rows["listener writes"] = (listened.encoded, listened.num_states)
    layers = [{"layer": name, "rms": _rms(*each)} for name, each in rows.items()]
    return {"near": near, "far": far, "sensitivity": sensitivity, "layers": layers}


def shares(gradient: Tensor, num_rows: Tensor) -> tuple[float, float]:
    """Shares near and far of the norms of gradients, [batch, rows, size]; NaN where nothing arrives."""
    norms = gradient.double().norm(dim=-1)
    row = torch.arange(norms.shape[1], device=norms.device)
    distance = (row - (num_rows // 2).unsqueeze(1).to(row.device)).abs()
    norms = norms * mask_of(num_rows, len(row), row.device)
    parts = ((norms * chosen).sum(1) / norms.sum(1) for chosen in (distance <= NEAR, distance > FAR))
    near, far = (float(part.mean()) for part in parts)
    return near, far


def _rms(rows: Tensor, lengths: Tensor) -> float:
    """Root mean square of unpadded rows, [batch, rows, size]."""
    return float(rows.detach().double()[mask_of(lengths, rows.shape[1], rows.device)].square().mean().sqrt())


def table(results: dict[str, Any]) -> Table:
    """Return the rms by layer; the shares stand in the title."""
    near, far = 100 * results["near"], 100 * results["far"]
    title = f"reach of the listener: {near:.0f} % within {NEAR} rows, {far:.0f} % beyond {FAR}, "
    title += f"sensitivity {results['sensitivity']:.3g}"
    table = Table("states", title=title)
    table.add_column("rms", justify="right")
    for row in results["layers"]:
        table.add_row(row["layer"], f"{row['rms']:.3e}")
    return table


def draw(history: Sequence[dict[str, Any]], pictures: plots.PictureFolder) -> None:
    """Draw the shares, the sensitivity and the rms by layer against the step."""
    along = {name: [point[name] for point in history] for name in ("near", "far")}
    rms = plots.curves(history, "layers", "layer", lambda row: row["rms"])
    sensitivity = {"sensitivity": [point["sensitivity"] for point in history]}
    panels = [
        plots.Panel("share of the gradient", "linear", along),
        plots.Panel("sensitivity", "log", sensitivity),
        plots.Panel("rms", "log", rms),
    ]
    pictures.lines("reach", [point["step"] for point in history], panels)
