"""Gate pre-activations before and after the norm (Ben Othman 2018, figures 4 to 6; Ba et al. 2016, equations 20-22).

Before: W x, U h and their sum with the weights as they are stored. After: what the gates' nonlinearities take, norm,
gain and bias included, `forget_bias` not. For a cell without a norm the two differ by its offset.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from las.analysis import steps
from las.analysis.preserving import evaluating
from las.batches import Batch
from las.model import ListenAttendSpell


class Gates(NamedTuple):
    """Of all true steps of one cell, each [steps, 4H]; `refused` says why there are none."""

    layer: str
    input: Tensor
    hidden: Tensor
    after: Tensor
    refused: str

    @property
    def before(self) -> Tensor:
        return self.input + self.hidden


@torch.no_grad()
def of_model(model: ListenAttendSpell, batch: Batch) -> list[Gates]:
    """Those of every cell, bottom first, in evaluation mode."""
    found = []
    for layer in steps.layers(model, batch):
        cell = steps.equations_of(layer.cell)
        refused = steps.gates_refused(layer.cell)
        nothing = layer.inputs.new_zeros(0, 4 * cell.hidden_size)
        if refused:
            found.append(Gates(layer.name, nothing, nothing, nothing, refused))
            continue
        projected = functional.linear(layer.inputs, cell.get_parameter("input_weight"))
        recurrent = functional.linear(layer.hidden, cell.get_parameter("recurrent_weight"))
        with evaluating(layer.cell):
            after = layer.cell.gates(layer.cell.input_gates(layer.inputs), layer.hidden)
        found.append(Gates(layer.name, projected, recurrent, after, ""))
    return found
