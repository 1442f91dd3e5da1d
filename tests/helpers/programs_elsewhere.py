"""Checks of exported programs, run by `test_export.py` in a process of its own: type-checking hooks cannot be traced.

`python programs_elsewhere.py loop` and `python programs_elsewhere.py model BUNDLE FOLDER` fail by an assertion.
"""

import sys
from pathlib import Path

import torch

from las.decoding import transcriber
from las.nn import export
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels import choice
from las.nn.kernels.base import PLAIN, unroll
from las.nn.nested import filled, tensors


def loop() -> None:
    """One operation for all frames is the recurrence."""
    for cell in (PlainLSTMCell, LNGlobalLSTMCell):
        cells = [cell(3, 4), cell(3, 4)]
        gates = [torch.randn(3, 7, 16) for _ in cells]
        num_frames = torch.tensor([7, 4, 1])
        found, expected = (
            kernel.recurrence(cells, gates, num_frames, [None, None])[0] for kernel in (export.ScanKernel(), PLAIN)
        )
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        (one, last), (other, end) = (each(cells[0], gates[0], num_frames) for each in (export.unroll, unroll))
        torch.testing.assert_close((one, *last), (other, *end), rtol=0, atol=1e-6)


def model(path: Path, folder: Path) -> None:
    """Programs compute what the model in a bundle does, whatever the sizes."""
    own = transcriber.load(path).model
    listen, step = (export.load(folder / f"{name}.pt2") for name in ("listener", "speller"))
    for batch, length, beam in ((2, 8000, 1), (1, 5000, 3), (5, 21111, 2)):
        waveforms, num_samples = torch.randn(batch, length), length - 400 * torch.arange(batch)
        with choice.use_kernel("plain"):
            memory, num_states = own.listen(waveforms, num_samples)
        *found, found_states = listen(waveforms, num_samples)
        assert torch.equal(found_states, num_states)
        torch.testing.assert_close(found, [*memory], rtol=0, atol=1e-6)
        start = own.speller.start(memory)
        state = [part.expand(-1, beam, *part.shape[2:]).contiguous() for part in tensors(start)]
        after, tokens = filled(start, state), torch.randint(0, 49, (batch, beam))
        for _ in range(3):
            log_probs, *state = step(tokens, *found, state)
            expected, after = own.speller.step(tokens, memory, after)
            torch.testing.assert_close([log_probs, *state], [expected, *tensors(after)], rtol=0, atol=1e-5)
            tokens = expected.argmax(-1)


if __name__ == "__main__":
    with torch.no_grad():
        loop() if sys.argv[1] == "loop" else model(*map(Path, sys.argv[2:]))
