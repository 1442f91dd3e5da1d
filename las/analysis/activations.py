"""Activations of the recurrent cells with teacher forcing, in evaluation mode: one row for each step of each utterance.

A cell's inputs and hidden states come from the inputs and outputs of the listener's layers, and from the speller's
plain loop. They determine its gate pre-activations before and after the norm (Ben Othman 2018, figures 4 to 6; Ba et
al. 2016, equations 20-22). Before the norm: W x, U h and their sum, with the weights as they are stored. After it: the
inputs of the gates' nonlinearities, with gain and bias but without `forget_bias`. Without a norm the two differ by the
bias.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

from las.analysis.state_guard import evaluating
from las.data.loader import Batch
from las.nn.attention.base import AttentionMemory
from las.nn.cells.base import LSTMCell, RecurrentCell
from las.nn.cells.wrapper import WrapperLSTMCell
from las.nn.latency_controlled import LatencyControlledListener
from las.nn.model import ListenAttendSpell
from las.nn.normalisation import mask_of
from las.nn.rnn import ListenerLayer
from las.runtime.errors import ConfigError


class LayerActivations(NamedTuple):
    """The inputs and hidden states of one cell at all unpadded steps."""

    name: str
    cell: RecurrentCell
    inputs: Tensor
    """[steps, input_size]"""
    hidden: Tensor
    """The hidden state before each step, [steps, H]."""


class RecordedStep(NamedTuple):
    """The activations of the speller at one token."""

    inputs: list[Tensor]
    """The input of each layer, [batch, size]."""
    before: list[Tensor]
    """The hidden state of each layer before the step, [batch, H]."""
    after: list[Tensor]
    """The hidden state of each layer after the step, [batch, 1, H]; part of the graph if gradients are enabled."""
    readout: Tensor
    """The input of the output layer, [batch, size]."""


class RecordedPass(NamedTuple):
    """The inputs and outputs of the layers of a listener."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    num_rows: list[Tensor]
    encoded: Tensor
    num_states: Tensor
    memory: AttentionMemory


def listen(model: ListenAttendSpell, batch: Batch) -> RecordedPass:
    """Run the listener on a batch and record its layers; inputs are part of the graph if gradients are enabled.

    Raises ConfigError for a listener whose layers do not read whole utterances.
    """
    if isinstance(model.listener, LatencyControlledListener):
        raise ConfigError(
            "las analyze: this listener is latency-controlled, its layers read chunks: analyse a model whose layers "
            "read whole utterances, in one direction or in both"
        )
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    num_rows: list[Tensor] = []
    encoded: list[Tensor] = []

    def before(_: torch.nn.Module, arguments: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        rows, lengths = arguments
        if torch.is_grad_enabled() and not rows.requires_grad:
            rows = rows.detach().clone().requires_grad_()
        inputs.append(rows)
        num_rows.append(lengths)
        return rows, lengths

    handles = [model.listener.register_forward_hook(lambda _, __, output: encoded.append(output[0]))]
    for layer in model.listener.layers:
        handles.append(layer.register_forward_pre_hook(before))
        handles.append(layer.register_forward_hook(lambda _, __, output: outputs.append(output)))
    try:
        memory, num_states = model.listen(batch.waveforms, batch.num_samples)
    finally:
        for handle in handles:
            handle.remove()
    return RecordedPass(inputs, outputs, num_rows, encoded[0], num_states, memory)


def spell(model: ListenAttendSpell, memory: AttentionMemory, targets: Tensor) -> Iterator[RecordedStep]:
    """Run the speller token by token, the boundary token first."""
    speller = model.speller
    state = speller.start(memory)
    previous = torch.cat([targets.new_full((len(targets), 1), speller.boundary), targets], dim=1)
    for tokens in previous.unbind(1):
        tokens = tokens.unsqueeze(1)
        previous_hidden = [layer.hidden for layer in state.layers]
        bottom_input = torch.cat([speller.embed(tokens), state.context], dim=-1)
        readout, state = speller.decode_step(tokens, memory, state)
        new_hidden = [layer.hidden for layer in state.layers]
        # Without the beam axis, whose size is 1.
        inputs, hidden = (
            [tensor.squeeze(1) for tensor in tensors] for tensors in ([bottom_input, *new_hidden[:-1]], previous_hidden)
        )
        yield RecordedStep(inputs, hidden, new_hidden, readout.squeeze(1))


@torch.no_grad()
def layers(model: ListenAttendSpell, batch: Batch) -> list[LayerActivations]:
    """Return the activations of every cell of the model on a batch, bottom first."""
    with evaluating(model):
        encoding = listen(model, batch)
        steps = list(spell(model, encoding.memory, batch.targets))
    activations = []
    for number, (layer, *of_layer) in enumerate(
        zip(model.listener.layers, encoding.inputs, encoding.outputs, encoding.num_rows, strict=True)
    ):
        inputs, outputs, num_rows = of_layer
        rows = mask_of(num_rows, inputs.shape[1], inputs.device)
        for way in cast(ListenerLayer, layer).directions(inputs, outputs, num_rows):
            before = functional.pad(way.outputs, (0, 0, 1, 0))[:, :-1]
            name = f"listener {number} {way.name}"
            activations.append(LayerActivations(name, way.cell, way.inputs[rows], before[rows]))
    true = mask_of(batch.num_tokens + 1, len(steps), model.device)
    for number, cell in enumerate(model.speller.cells):
        inputs = torch.stack([step.inputs[number] for step in steps], dim=1)[true]
        hidden = torch.stack([step.before[number] for step in steps], dim=1)[true]
        activations.append(LayerActivations(f"speller {number}", cast(RecurrentCell, cell), inputs, hidden))
    return activations


def equations_of(cell: RecurrentCell) -> RecurrentCell:
    """Return the innermost cell of a wrapped one, which defines its equations."""
    return equations_of(cell.cell) if isinstance(cell, WrapperLSTMCell) else cell


def gates_refused(cell: RecurrentCell) -> str:
    """Return the reason why a cell's gates cannot be computed from its input and hidden state; empty if they can."""
    inside = equations_of(cell)
    if not isinstance(inside, LSTMCell):
        return "it is no LSTM"
    if type(inside).step is not LSTMCell.step:
        return "its steps depend on the position in the utterance"
    wrapper: Any = cell
    while isinstance(wrapper, WrapperLSTMCell):
        if type(wrapper).before is not WrapperLSTMCell.before:
            return "its gates do not read the hidden state"
        wrapper = wrapper.cell
    return ""


class GateActivations(NamedTuple):
    """Gate pre-activations of one cell, each [steps, 4H]; `refused` is the reason if there are none."""

    layer: str
    input: Tensor
    hidden: Tensor
    after: Tensor
    refused: str

    @property
    def before(self) -> Tensor:
        return self.input + self.hidden


@torch.no_grad()
def of_model(model: ListenAttendSpell, batch: Batch) -> list[GateActivations]:
    """Return the gate activations of every cell, bottom first, in evaluation mode."""
    activations = []
    for layer in layers(model, batch):
        cell = equations_of(layer.cell)
        refused = gates_refused(layer.cell)
        empty = layer.inputs.new_zeros(0, 4 * cell.hidden_size)
        if refused:
            activations.append(GateActivations(layer.name, empty, empty, empty, refused))
            continue
        projected = functional.linear(layer.inputs, cell.get_parameter("input_weight"))
        recurrent = functional.linear(layer.hidden, cell.get_parameter("recurrent_weight"))
        with evaluating(layer.cell):
            gates = cast(LSTMCell, layer.cell).gates(layer.cell.input_gates(layer.inputs), layer.hidden)
        activations.append(GateActivations(layer.name, projected, recurrent, gates, ""))
    return activations
