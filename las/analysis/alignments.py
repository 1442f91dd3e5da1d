"""Teacher-forced attention by utterance: weights and diagnostics (`las.nn.attention.diagnostics`).

See Chan et al. 2016, figure 2; Ben Othman 2018, figures 8 to 10.
"""

from collections.abc import Sequence
from typing import Any

import torch
from rich.table import Table

from las.analysis import plots
from las.analysis.probe import Probe
from las.analysis.state_guard import evaluating
from las.nn.attention import diagnostics
from las.nn.attention.diagnostics import Alignment
from las.training.plots import attention_picture


@torch.no_grad()
def measure(subject: Probe) -> dict[str, Any]:
    """Return the attention weights and diagnostics of each example, and the means of the diagnostics."""
    batch, model = subject.examples, subject.model
    with evaluating(model):
        all_weights = model(batch.waveforms, batch.num_samples, batch.targets).weights.cpu()
        states = model.num_states(batch.num_samples)
    utterances: list[dict[str, Any]] = []
    for row, name in enumerate(batch.ids):
        weights = all_weights[row, : int(batch.num_tokens[row]) + 1, : int(states[row])]
        targets = batch.targets[row, : int(batch.num_tokens[row])].tolist()
        utterances.append(
            {
                "id": name,
                "symbols": [*(subject.symbols[target] for target in targets), "(end)"],
                "numbers": diagnostics.measure(weights)._asdict(),
                "weights": [[round(weight, 4) for weight in token] for token in weights.tolist()],
            }
        )
    mean = diagnostics.mean([Alignment(**utterance["numbers"]) for utterance in utterances])
    return {"state_ms": model.state_ms, "mean": mean._asdict(), "utterances": utterances}


def table(results: dict[str, Any]) -> Table:
    """Return a table with a row for each utterance, and the means with a verdict in words."""
    mean = Alignment(**results["mean"])
    table = Table("utterance", title=f"attention {diagnostics.verdict(mean)}", caption=diagnostics.LEGEND)
    for heading in Alignment._fields:
        table.add_column(heading, justify="right")
    rows = [(utterance["id"], utterance["numbers"]) for utterance in results["utterances"]]
    for name, numbers in [*rows, ("mean", results["mean"])]:
        table.add_row(name, *(f"{numbers[field]:.3f}" for field in Alignment._fields))
    return table


def draw(history: Sequence[dict[str, Any]], pictures: plots.PictureFolder) -> None:
    """Draw each example at the last point; over a training also the mean diagnostics against the step."""
    last = history[-1]
    for utterance in last["utterances"]:
        numbers = ", ".join(f"{name} {value:.2f}" for name, value in utterance["numbers"].items())
        path = pictures.folder / "alignments" / f"{utterance['id']}.png"
        title = f"{utterance['id']}, step {last['step']}\n{numbers}"
        attention_picture(torch.tensor(utterance["weights"]), utterance["symbols"], last["state_ms"], path, title)
        pictures.written.append(path)
    if len(history) > 1:
        curves = {field: [point["mean"][field] for point in history] for field in Alignment._fields}
        pictures.lines("alignments", [point["step"] for point in history], [plots.Panel("mean", "linear", curves)])
