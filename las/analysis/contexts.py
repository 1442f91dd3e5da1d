"""Mean context of the attention over training utterances, true tokens fed: what `las.InternalLMScorer` may put in the
place of every context (Zeineldeen et al. 2021).
"""

from collections.abc import Sequence
from typing import Any

import torch
from rich.table import Table
from torch.nn import functional

from las.analysis import plots
from las.analysis.probe import Probe
from las.analysis.state_guard import evaluating


@torch.no_grad()
def measure(subject: Probe) -> dict[str, Any]:
    """Return the mean context [size] over all tokens and ends of the batches of the next update, and their number."""
    model, speller = subject.model, subject.model.speller
    total, count = torch.zeros((), dtype=torch.float64), 0
    with evaluating(model):
        for batch in subject.batches:
            memory, _ = model.listen(batch.waveforms, batch.num_samples)
            state = speller.start(memory)
            previous = functional.pad(batch.targets, (1, 0), value=speller.boundary)
            for step in range(previous.shape[1]):
                _, state = speller.step(previous[:, step : step + 1], memory, state)
                total = total + state.context[(batch.num_tokens >= step).to(model.device), 0].double().sum(0).cpu()
            count += model.num_targets(batch)
    return {"tokens": count, "mean": (total / max(count, 1)).tolist()}


def table(results: dict[str, Any]) -> Table:
    """Return a table with the number of contexts, and the size and norm of their mean."""
    table = Table("mean context", "", title="contexts")
    norm = float(torch.tensor(results["mean"]).norm())
    for name, value in (("tokens", results["tokens"]), ("size", len(results["mean"])), ("norm", f"{norm:.4f}")):
        table.add_row(name, str(value))
    return table


def draw(history: Sequence[dict[str, Any]], pictures: plots.PictureFolder) -> None:
    """Draw nothing: the mean is for a search."""
