"""Norms of the gradient by layer and along time, to see where it vanishes (Pascanu et al. 2013, section 2.2).

By layer: ‖∇L‖ of its parameters, and that over the length of its parameters. By time: of the mean loss per token,
the root mean square over utterances of ‖∂L/∂row‖, the rows being what a listener's layer reads, what the listener
writes, and the hidden states of the speller's layers. Time is counted as the share of the way through an utterance.
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
"""Parts of an utterance that are told apart."""


def measure(subject: Probe) -> dict[str, Any]:
    """Measure the norms by layer on the update's batches, and by time on the examples."""
    of = subject.objective()
    _, gradient = of.gradient()
    layers = []
    for name, places in groups_of(of.names).items():
        length = objective.norm(gradient[place] for place in places)
        size = objective.norm(of.parameters[place].detach() for place in places)
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
        nodes = {f"listener {number} reads": each for number, each in enumerate(encoding.inputs)}
        nodes["listener writes"] = encoding.encoded
        hidden = [[step.after[number] for step in spelled] for number in range(len(model.speller.cells))]
        flat = [*nodes.values(), *(each for layer in hidden for each in layer)]
        gradients = list(torch.autograd.grad(sums.loss / sums.tokens, flat))
    rows = [*encoding.num_rows, encoding.num_states]
    by = {name: _parts(gradients[index], rows[index]) for index, name in enumerate(nodes)}
    for number, layer in enumerate(hidden):
        start = len(nodes) + number * len(layer)
        written = torch.cat(gradients[start : start + len(layer)], dim=1)
        by[f"speller {number} writes"] = _parts(written, batch.num_tokens + 1)
    return by


def _parts(gradient: Tensor, lengths: Tensor) -> list[float]:
    """Root mean squares of the norms of unpadded rows, [batch, rows, size], by part of the utterance."""
    squares = gradient.double().square().sum(-1)
    row = torch.arange(squares.shape[1], device=squares.device)
    true = row < lengths.unsqueeze(1)
    part = (row * PARTS) // lengths.clamp(min=1).unsqueeze(1)
    found: list[float] = []
    for number in range(PARTS):
        chosen = squares[true & (part == number)]
        # Utterances shorter than the number of parts leave some of them without a row: the part before stands for it.
        found.append(float(chosen.mean().sqrt()) if chosen.numel() else found[-1])
    return found


def table(results: dict[str, Any]) -> Table:
    """A table by layer; then the first and the last tenth of an utterance relative to the largest part."""
    shown = Table("gradient of", title="gradient norms")
    for heading in ("norm", "relative", "first tenth / strongest", "last tenth / strongest"):
        shown.add_column(heading, justify="right")
    for row in results["layers"]:
        shown.add_row(row["layer"], f"{row['norm']:.3e}", f"{row['relative']:.3e}", "", "")
    tenth = PARTS // 10
    for name, values in results["time"].items():
        strongest = max(values) or 1.0
        ends = (sum(part) / tenth / strongest for part in (values[:tenth], values[-tenth:]))
        shown.add_row(name, f"{max(values):.3e}", "", *(f"{end:.3f}" for end in ends))
    return shown


def draw(history: Sequence[dict[str, Any]], place: plots.Place) -> None:
    """Draw the norms by time at the last point, and by layer against the step."""
    time = history[-1]["time"]
    shares = [(number + 0.5) / PARTS for number in range(PARTS)]
    place.lines("gradients_by_time", shares, [plots.Panel("‖∂L/∂row‖", "log", time)], "share of the utterance")
    curves = {
        row["layer"]: [point["layers"][layer]["norm"] for point in history]
        for layer, row in enumerate(history[0]["layers"])
    }
    place.lines("gradients_by_layer", [each["step"] for each in history], [plots.Panel("‖∇L‖", "log", curves)])
