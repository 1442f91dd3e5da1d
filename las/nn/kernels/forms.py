"""The cells whose equations are written in C++ and Triton, and their tensors as the kernels read them."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from las.nn.cells.base import NUM_GATES, Gates, LSTMCell, RecurrentCell
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.ln_one_projection import LNOneProjectionLSTMCell
from las.nn.cells.ln_per_gate import LNPerGateLSTMCell
from las.nn.cells.ln_selected_gates import LNSelectedGatesLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.cells.norms import CellNorm, DynamicTanh, LayerNorm, NoNorm, RMSNorm

GATE_NORMS = ("none", "apart", "joined", "per_gate")
"""Norms of the gates: of W x and of U h apart, of their sum, of each gate of it; in the order of `recurrence.h`."""


NORMS: dict[type[CellNorm], str] = {LayerNorm: "layer", RMSNorm: "rms", DynamicTanh: "tanh", NoNorm: "none"}
"""Norms that are written in C++ and Triton, and their names there, in the order of `recurrence.h`.

With dynamic tanh n = tanh(alpha z): a kernel reads alpha (`scales_of`), or W and U times alpha (`input_weight_of`).
"""
CLASSES = {name: norm for norm, name in NORMS.items()}
"""The norms by these names."""


class CellForm(NamedTuple):
    """Cells of one equation: one of `GATE_NORMS`, names of the parameters of that norm and of W x, and of both norms.

    `left_out` are the numbers of the parts (gates, or U h as a whole) that are added without that norm.
    """

    gate_norm: str
    norm: str = ""
    input_norm: str = ""
    gain: str = ""
    bias: str = ""
    input_gain: str = ""
    input_biases: tuple[str, ...] = ()
    left_out: tuple[int, ...] = ()


def _one_projection(cell: LNOneProjectionLSTMCell) -> CellForm:
    if cell.normalised == "recurrent":
        return CellForm("apart", norm="projection_norm", gain="gain", bias="bias")
    return CellForm("apart", input_norm="projection_norm", input_gain="gain", input_biases=("bias",), left_out=(0,))


def _selected_gates(cell: LNSelectedGatesLSTMCell) -> CellForm:
    left_out = tuple(gate for gate in range(NUM_GATES) if gate not in cell.chosen)
    return CellForm("per_gate", "gate_norm", "gate_norm", "gain", "bias", left_out=left_out)


FORMS: dict[type[RecurrentCell], CellForm | Callable[[Any], CellForm]] = {
    PlainLSTMCell: CellForm("none", input_biases=("bias",)),
    LNGlobalLSTMCell: CellForm(
        *("apart", "recurrent_norm", "input_norm", "recurrent_gain", "recurrent_bias", "input_gain"),
        ("input_bias", "bias"),
    ),
    LNJoinedLSTMCell: CellForm("joined", "gate_norm", "gate_norm", "gain", "bias"),
    LNPerGateLSTMCell: CellForm("per_gate", "gate_norm", "gate_norm", "gain", "bias"),
    LNOneProjectionLSTMCell: _one_projection,
    LNSelectedGatesLSTMCell: _selected_gates,
}
"""The cells whose equations are written in C++ and Triton. A subclass may change them, so only these classes count.

Forms with parts left out are computed by the C++ alone.
"""


def form_of(cell: RecurrentCell) -> CellForm:
    """Return the form of a cell of a class of `FORMS`."""
    form = FORMS[type(cell)]
    return form if isinstance(form, CellForm) else form(cell)


class Parameters(NamedTuple):
    """A cell's tensors in the recurrence."""

    weight: Tensor  # U, [4H, H]
    gain: Tensor | None  # [4H]
    offset: Tensor | None  # [4H], added after the norm of the gates
    cell_gain: Tensor | None  # [H]
    cell_bias: Tensor | None


def parameters_of(cell: LSTMCell) -> Parameters:
    """Return the cell's tensors in the recurrence, the forget bias within the offset where the gates have a norm."""
    form = form_of(cell)
    weight = cast(Tensor, cell.recurrent_weight)
    gain, bias, *of_memory = (getattr(cell, name, None) for name in (form.gain, form.bias, "cell_gain", "cell_bias"))
    if form.left_out:
        gain = _with_ones(cell, form, gain)
    if gain is None:
        return Parameters(weight, None, None, *of_memory)
    # What has one dimension is not viewed: in a sum with other biases its gradient would share their memory, which an
    # optimiser or a clipped norm would change twice.
    offset = forget_bias(cell) if bias is None else bias.flatten()
    if bias is not None and cell.forget_bias:
        offset = offset + forget_bias(cell)
    return Parameters(weight, gain.flatten(), offset, *of_memory)


def _with_ones(cell: LSTMCell, form: CellForm, gain: Tensor | None) -> Tensor:
    """Return the gains of all parts, 1 for those that are left out, [parts, 4H / parts]."""
    parts = NUM_GATES if form.gate_norm == "per_gate" else 1
    ones = cell.zeros(parts, NUM_GATES * cell.hidden_size // parts) + 1.0
    if gain is None:
        return ones
    chosen = [part for part in range(parts) if part not in form.left_out]
    return ones.index_copy(0, torch.tensor(chosen, dtype=torch.long, device=gain.device), gain)


def norm_of(cell: LSTMCell) -> str | None:
    """Return which of `NORMS` a cell has, `layer` for a cell without a norm; None for one that is not among them."""
    norms = {type(module) for module in cell.children() if isinstance(module, CellNorm)} or {LayerNorm}
    return NORMS.get(norms.pop()) if len(norms) == 1 else None


def uncompiled(cell: Any, device: str) -> str:
    """Return the reason why a cell's equations are not written for a device (`cuda`: in Triton, `cpu`: in C++); empty
    if they are.
    """
    if type(cell) not in FORMS:
        return "its equations are not among those compiled"
    norm = norm_of(cell)
    if norm is None:
        return "its norm is not among those compiled"
    if norm == "tanh" and cell.cell_norm != "none":
        return "dynamic tanh of the memory is not compiled"
    if norm == "tanh" and isinstance(cell, LNSelectedGatesLSTMCell):
        return "dynamic tanh of selected gates is not compiled"
    if device != "cpu" and form_of(cell).left_out:
        return "a norm of some gates, or of W x alone, is compiled for CPUs"
    return ""


def input_weight_of(cell: LSTMCell) -> Tensor:
    """Return W as it is multiplied: times the scale of the norm of its products if that has one."""
    weight, scale = cast(Tensor, cell.input_weight), scales_of(cell)[0]
    return weight if scale is None else scale * weight


def recurrent_weight_of(cell: LSTMCell) -> Tensor:
    """Return U as it is multiplied: times the scale of the norm of its products if that has one."""
    weight, scale = cast(Tensor, cell.recurrent_weight), scales_of(cell)[1]
    return weight if scale is None else scale * weight


def scales_of(cell: LSTMCell) -> tuple[Tensor | None, Tensor | None]:
    """Return the scales of the norms of W x and of U h, which are one where their sum is normalised."""
    form = form_of(cell)
    norms = (getattr(cell, name, None) for name in (form.input_norm, form.norm))
    input_scale, scale = (norm.alpha if isinstance(norm, DynamicTanh) else None for norm in norms)
    return input_scale, scale


def scaled_input_gates(cell: LSTMCell, gates: Gates) -> Gates:
    """Return `input_gates` as they are added to U h: times the scale of the norm of their sum if it has one."""
    scale = scales_of(cell)[0]
    return gates if scale is None or form_of(cell).gate_norm == "apart" else scale * gates


def side_of(cell: LSTMCell) -> tuple[Tensor | None, Tensor | None]:
    """Gain [4H] of the norm of W x (None without a norm) and the sum of the offsets that are added after it, [4H]."""
    form = form_of(cell)
    biases = [bias for bias in (getattr(cell, name) for name in form.input_biases) if bias is not None]
    return getattr(cell, form.input_gain, None), sum(biases[1:], start=biases[0]) if biases else None


def forget_bias(cell: LSTMCell) -> Tensor:
    """Zeros but for the forget bias in its gate, [4H]."""
    return cell.constant_bias()
