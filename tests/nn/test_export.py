"""Programs of torch.export compute what the model computes, for any size of batch, audio, states and beams."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from las.decoding import transcriber
from las.nn import export
from las.nn.cells.bn_recurrent import BNRecurrentLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels import choice
from las.nn.model import ListenAttendSpell
from las.runtime.errors import ConfigError


def elsewhere(*arguments: str | Path) -> None:
    """Run `programs_elsewhere.py`; its assertions are this one's."""
    script = Path(__file__).parents[1] / "helpers" / "programs_elsewhere.py"
    answer = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.slow
def test_the_loop_of_a_program_is_the_recurrence() -> None:
    elsewhere("loop")


def test_a_cell_with_a_step_of_its_own_at_every_frame_is_refused() -> None:
    cell = BNRecurrentLSTMCell(3, 4)
    assert "the frame" in export.ScanKernel().unsupported_reason(cell, torch.zeros(1))
    with (
        choice.use_kernel(export.ScanKernel()),
        pytest.raises(ConfigError, match="BNRecurrentLSTMCell"),
    ):
        choice.select_kernel(cell, torch.zeros(1))
    assert export.ScanKernel().unsupported_reason(PlainLSTMCell(3, 4), torch.zeros(1)) == ""


@pytest.fixture(scope="module")
def model(trained: Path) -> ListenAttendSpell:
    return transcriber.load(trained / "run").model


def test_a_state_that_does_not_start_as_zeros_is_refused(
    model: ListenAttendSpell, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = model.speller.attention
    monkeypatch.setattr(attention, "initial_state", lambda memory: memory.keys[:, None, :, 0] + 1)
    with pytest.raises(ConfigError, match="LocationAttention"):
        export.speller(model)


@pytest.mark.slow
def test_listener_and_speller_as_programs(trained: Path, tmp_path: Path) -> None:
    bundle, folder = tmp_path / "m.las", tmp_path / "programs"
    given = [f"checkpoint={trained / 'run'}", f"output={bundle}", f"programs={folder}"]
    answer = subprocess.run([sys.executable, "-m", "las", "export", *given], capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert f"{folder / 'listener.pt2'}, {folder / 'speller.pt2'}" in answer.stdout
    elsewhere("model", bundle, folder)


def test_what_the_exporter_does_not_take_is_said(model: ListenAttendSpell, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("unknown operation\nand many more lines")

    monkeypatch.setattr(torch.export, "export", refuse)
    with pytest.raises(ConfigError, match=r"torch.export .* \(unknown operation\)"):
        export.speller(model)
