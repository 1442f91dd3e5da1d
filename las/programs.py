"""A model as programs of torch.export, which run where this package is not: `listener.pt2` and `speller.pt2`.

    listen(waveforms [batch, samples], num_samples [batch]) -> keys, values, mask, number of states [batch]
    step(tokens [batch, beam], keys, values, mask, *state) -> log-probabilities [batch, beam, vocab], *state

`state` is the flat list of the speller's tensors, each [batch, beam, ...]: hidden and cell of every layer, context,
weights, remembered weights; all of them start as zeros, but remembered weights where an attention says otherwise.
Batch, samples, states and beams may have any size.
"""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from las import recurrent
from las.attention.base import Memory
from las.cells.base import LSTMState
from las.errors import ConfigError
from las.kernels import scan
from las.model import ListenAttendSpell
from las.recurrent import Kernel
from las.speller import Speller, SpellerState

EXAMPLE_S = 0.5
"""Seconds of the audio that the listener is traced with."""


class Listen(nn.Module):
    """Waveforms to what the speller attends to."""

    def __init__(self, model: ListenAttendSpell) -> None:
        super().__init__()
        self.model = model

    def forward(self, waveforms: Tensor, num_samples: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        memory, num_states = self.model.listen(waveforms, num_samples)
        return memory.keys, memory.values, memory.mask, num_states


class Step(nn.Module):
    """One token, with the state as a flat list."""

    def __init__(self, speller: Speller) -> None:
        super().__init__()
        self.speller = speller

    def forward(self, tokens: Tensor, keys: Tensor, values: Tensor, mask: Tensor, state: list[Tensor]) -> list[Tensor]:
        log_probs, after = self.speller.step(tokens, Memory(keys, values, mask), unflattened(state))
        return [log_probs, *flattened(after)]


def flattened(state: SpellerState) -> list[Tensor]:
    """The tensors of a state, in order."""
    return [*(part for layer in state.layers for part in layer), state.context, state.weights, state.remembered]


def unflattened(parts: list[Tensor]) -> SpellerState:
    """The inverse of `flattened`."""
    *of_layers, context, weights, remembered = parts
    layers = tuple(LSTMState(*pair) for pair in zip(of_layers[::2], of_layers[1::2], strict=True))
    return SpellerState(layers, context, weights, remembered)


@torch.no_grad()
def listener(model: ListenAttendSpell, sample_rate: int) -> ExportedProgram:
    """The program from waveforms on. Raises ConfigError for a model that torch.export does not take."""
    length = round(EXAMPLE_S * sample_rate)
    example = torch.zeros(2, length), torch.tensor([length, length - 1])
    any_size: Any = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
    with recurrent.using(cast(Kernel, scan)):
        return _export(Listen(model.eval()), example, any_size)


@torch.no_grad()
def speller(model: ListenAttendSpell) -> ExportedProgram:
    """The program of one token. Raises ConfigError for a model that torch.export does not take."""
    batch, beam, states = 2, 3, 5
    encoded = torch.zeros(batch, states, model.listener.output_size)
    memory = model.eval().speller.attention.prepare(encoded, torch.tensor([states, states - 1]))
    state = [part.expand(-1, beam, *part.shape[2:]).contiguous() for part in flattened(model.speller.start(memory))]
    by_batch, by_beam = {0: Dim.DYNAMIC}, {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    attended = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC, 2: Dim.DYNAMIC}
    of_memory = [by_batch | {1: Dim.DYNAMIC} for _ in memory]
    any_size: Any = (by_beam, *of_memory, [*(by_beam for _ in state[:-2]), attended, attended])
    return _export(Step(model.speller), (torch.zeros(batch, beam, dtype=torch.long), *memory, state), any_size)


def save(program: ExportedProgram, path: Path) -> None:
    """Write a program; `torch.export.load(path).module()` runs it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _quiet():
        torch.export.save(program, path)


def load(path: Path) -> nn.Module:
    """A saved program, to be called."""
    with _quiet():
        return torch.export.load(path).module()


def _export(module: nn.Module, example: tuple[Any, ...], any_size: Any) -> ExportedProgram:
    try:
        with _quiet():
            return torch.export.export(module, example, dynamic_shapes=any_size)
    except ConfigError:
        raise
    except Exception as error:  # whatever the exporter meets in a part it does not know
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"torch.export does not take this model ({first}). The bundle needs no export") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says of its own bookkeeping: inequalities it did not solve, tensors it keeps once."""
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
