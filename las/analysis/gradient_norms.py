"""Norms of the gradient by layer and along time, to see where it vanishes (Pascanu et al. 2013, section 2.2).

By layer: ‖∇L‖ of its parameters, and that over the norm of its parameters. By time: the root mean square over
utterances of ‖∂L/∂row‖, where L is the mean loss per token, and the rows are the inputs of the listener's layers, the
listener's outputs and the hidden states of the speller's layers. Time is the share of an utterance.
"""

from collections.abc import Sequence
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from las.analysis import activations, objective, plots
from las.analysis.objective import groups_of
from las.analysis.probe import Probe
from las.analysis.state_guard import evaluating
from las.nn.losses import LabelSmoothedCrossEntropy

PARTS = 20
"""The number of equal parts into which the time of an utterance is divided."""


def measure(subject: Probe) -> dict[str, Any]:
    """Measure the norms by layer on the update's batches, and by time on the examples."""
    loss_function = subject.objective()
    _, gradient = loss_function.gradient()
    layers = []
    for name, indices in groups_of(loss_function.names).items():
        length = objective.norm(gradient[index] for index in indices)
        size = objective.norm(loss_function.parameters[index].detach() for index in indices)
        layers.append({"layer": name, "norm": length, "relative": length / size if size else 0.0})
    return {"layers": layers, "time": by_time(subject)}


def by_time(subject: Probe) -> dict[str, list[float]]:
    """Norms of the gradient of rows, bottom first, in `PARTS` parts of an utterance."""
    batch, model = subject.examples, subject.model
    with evaluating(model), torch.enable_grad():
        encoding = activations.listen(model, batch)
        spelled = list(activations.spell(model, encoding.memory, batch.targets))
        logits = model.speller.logits(torch.stack([step.readout for step in spelled], dim=1))
        sums = LabelSmoothedCrossEntropy()(logits, batch.targets, batch.num_tokens)
        nodes = {f"listener {number} reads": inputs for number, inputs in enumerate(encoding.inputs)}
        nodes["listener writes"] = encoding.encoded
        hidden = [[step.after[number] for step in spelled] for number in range(len(model.speller.cells))]
        flat = [*nodes.values(), *(state for layer in hidden for state in layer)]
        gradients = list(torch.autograd.grad(sums.loss / sums.tokens, flat))
    rows = [*encoding.num_rows, encoding.num_states]
    norms = {name: _parts(gradients[index], rows[index]) for index, name in enumerate(nodes)}
    for number, layer in enumerate(hidden):
        start = len(nodes) + number * len(layer)
        hidden_gradients = torch.cat(gradients[start : start + len(layer)], dim=1)
        norms[f"speller {number} writes"] = _parts(hidden_gradients, batch.num_tokens + 1)
    return norms


def _parts(gradient: Tensor, lengths: Tensor) -> list[float]:
    """Root mean squares of the norms of unpadded rows, [batch, rows, size], by part of the utterance."""
    squares = gradient.double().square().sum(-1)
    row = torch.arange(squares.shape[1], device=squares.device)
    true = row < lengths.unsqueeze(1)
    part = (row * PARTS) // lengths.clamp(min=1).unsqueeze(1)
    means: list[float] = []
    for number in range(PARTS):
        chosen = squares[true & (part == number)]
        # Utterances with fewer rows than parts may leave a part empty: it repeats the value before.
        means.append(float(chosen.mean().sqrt()) if chosen.numel() else means[-1])
    return means


def table(results: dict[str, Any]) -> Table:
    """Return a table by layer; then the first and the last tenth of an utterance relative to the largest part."""
    table = Table("gradient of", title="gradient norms")
    for heading in ("norm", "relative", "first tenth / strongest", "last tenth / strongest"):
        table.add_column(heading, justify="right")
    for row in results["layers"]:
        table.add_row(row["layer"], f"{row['norm']:.3e}", f"{row['relative']:.3e}", "", "")
    tenth = PARTS // 10
    for name, values in results["time"].items():
        strongest = max(values) or 1.0
        ends = (sum(part) / tenth / strongest for part in (values[:tenth], values[-tenth:]))
        table.add_row(name, f"{max(values):.3e}", "", *(f"{end:.3f}" for end in ends))
    return table


def draw(history: Sequence[dict[str, Any]], pictures: plots.PictureFolder) -> None:
    """Draw the norms by time at the last point, and by layer against the step."""
    time = history[-1]["time"]
    shares = [(number + 0.5) / PARTS for number in range(PARTS)]
    pictures.lines("gradients_by_time", shares, [plots.Panel("‖∂L/∂row‖", "log", time)], "share of the utterance")
    curves = plots.curves(history, "layers", "layer", lambda row: row["norm"])
    pictures.lines("gradients_by_layer", [point["step"] for point in history], [plots.Panel("‖∇L‖", "log", curves)])
