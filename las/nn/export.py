"""A model as programs of torch.export, which run without this package: `listener.pt2` and `speller.pt2`.

    listen(waveforms [batch, samples], num_samples [batch]) -> keys, values, mask, number of states [batch]
    step(tokens [batch, beam], keys, values, mask, *state) -> log-probabilities [batch, beam, vocab], *state

`state` is the flat list of the speller's tensors, each [batch, beam, ...]: the state of every layer, context,
weights, state of the attention (the last weights, or in `weight_feedback` their sum); all of them start as zeros, for
attentions whose `initial_state` is zero. Batch, samples, states and beams may have any size.

`ScanKernel` is the kernel of the exported listener: torch.export would unroll a loop in
Python frame by frame, for one length only, so the recurrence is one `scan` node for any number of frames. It is not
fast, and no other code selects it.
"""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.export import Dim, ExportedProgram

from las.nn.attention.base import AttentionMemory
from las.nn.cells.base import RecurrentCell, State
from las.nn.kernels import choice
from las.nn.kernels.base import Cell, Gates, InputGates, Kernel, Lengths, States, Unrolled, chosen, one_by_one
from las.nn.model import ListenAttendSpell
from las.nn.nested import filled, tensors
from las.nn.normalisation import mask_of
from las.nn.speller import Speller, SpellerState
from las.runtime.errors import ConfigError

EXAMPLE_S = 0.5
"""Seconds of the audio that the listener is traced with."""


class Listen(nn.Module):
    """The listener as a program: waveforms to keys, values, mask and numbers of states."""

    def __init__(self, model: ListenAttendSpell) -> None:
        super().__init__()
        self.model = model

    def forward(self, waveforms: Tensor, num_samples: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        memory, num_states = self.model.listen(waveforms, num_samples)
        return memory.keys, memory.values, memory.mask, num_states


class DecoderStep(nn.Module):
    """One step of the speller as a program, its state a flat list; `form` is any state of this speller."""

    def __init__(self, speller: Speller, form: SpellerState) -> None:
        super().__init__()
        self.speller, self.form = speller, form

    def forward(self, tokens: Tensor, keys: Tensor, values: Tensor, mask: Tensor, state: list[Tensor]) -> list[Tensor]:
        log_probs, new_state = self.speller.step(tokens, AttentionMemory(keys, values, mask), filled(self.form, state))
        return [log_probs, *tensors(new_state)]


@torch.no_grad()
def listener(model: ListenAttendSpell, sample_rate: int) -> ExportedProgram:
    """Return the program of features and listener, traced with audio of `sample_rate` Hz.

    Raises ConfigError for a model that torch.export does not support.
    """
    length = round(EXAMPLE_S * sample_rate)
    example = torch.zeros(2, length), torch.tensor([length, length - 1])
    any_size: Any = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
    with choice.use_kernel(ScanKernel()):
        return _export(Listen(model.eval()), example, any_size)


@torch.no_grad()
def speller(model: ListenAttendSpell) -> ExportedProgram:
    """Return the program of one decoding step. Raises ConfigError for a model that torch.export does not support."""
    batch, beam = 2, 3
    memory, start = _start(model.eval(), batch, 5)
    state = [part.expand(-1, beam, *part.shape[2:]).contiguous() for part in tensors(start)]
    if any(bool(part.any()) for part in state):
        raise ConfigError(
            f"the state of a {type(model.speller.attention).__name__} does not start as zeros, as programs do: leave "
            "out programs=..., the bundle works without"
        )
    longer = [part.shape for part in tensors(_start(model, batch, 7)[1])]
    two: dict[int, Any] = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    of_state = [  # axes that grow with the number of encoded states
        two | {axis: Dim.DYNAMIC for axis in range(2, part.dim()) if part.shape[axis] != shape[axis]}
        for part, shape in zip(state, longer, strict=True)
    ]
    program, example = DecoderStep(model.speller, start), torch.zeros(batch, beam, dtype=torch.long)
    return _export(program, (example, *memory, state), (two, *(two for _ in memory), of_state))


def _start(model: ListenAttendSpell, batch: int, states: int) -> tuple[AttentionMemory, SpellerState]:
    """Return a memory of this many encoded states, and the state before the first token."""
    encoded = torch.zeros(batch, states, model.listener.output_size)
    memory = model.speller.attention.prepare(encoded, torch.tensor([states, *[states - 1] * (batch - 1)]))
    return memory, model.speller.start(memory)


def save(program: ExportedProgram, path: Path) -> None:
    """Write a program; `torch.export.load(path).module()` runs it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _quiet():
        torch.export.save(program, path)


def load(path: Path) -> nn.Module:
    """Read a program that `save` wrote, as a module."""
    with _quiet():
        return torch.export.load(path).module()


def _export(module: nn.Module, example: tuple[Any, ...], any_size: Any) -> ExportedProgram:
    try:
        with _quiet():
            return torch.export.export(module, example, dynamic_shapes=any_size)
    except ConfigError:
        raise
    except Exception as error:  # the exporter raises many types for unsupported parts
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"torch.export does not support this model ({first_line}): leave out programs=..., the bundle works without"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch.export's warnings about unsolved inequalities and shared tensors."""
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def unroll(
    cell: RecurrentCell, input_gates: Gates, num_frames: Lengths, state: State | None = None
) -> tuple[Float[Tensor, "batch frames outputs"], State]:
    """One cell over padded frames by `scan`, see `las.nn.kernels.base.unroll`."""
    batch, frames, _ = input_gates.shape
    state = cell.initial_state(batch) if state is None else state
    mask = mask_of(num_frames, frames, input_gates.device)

    def step(previous: tuple[Tensor, ...], row: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
        gates, keep = row
        before = filled(state, previous)
        new = cell.step(gates, before)
        return tuple(chosen(keep, new, before)), new.hidden.masked_fill(~keep.unsqueeze(-1), 0.0)

    # Inputs of the loop must be tensors of their own, their first dimension the frames.
    rows = input_gates.transpose(0, 1).contiguous(), mask.transpose(0, 1).contiguous()
    last, outputs = scan(step, tuple(part.clone() for part in state), rows)
    return outputs.transpose(0, 1), filled(state, last)


class ScanKernel(Kernel):
    """`unroll` in each direction, for cells whose step depends neither on the frame nor on padding."""

    def unsupported_reason(self, cell: Cell, like: Tensor) -> str:
        return "" if type(cell).padded_step is RecurrentCell.padded_step else "its step depends on the frame"

    def recurrence(
        self, cells: Sequence[Cell], input_gates: InputGates, num_frames: Lengths, states: States
    ) -> Unrolled:
        return one_by_one(unroll, cells, input_gates, num_frames, states)
