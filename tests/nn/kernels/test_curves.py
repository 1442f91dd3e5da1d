"""One seed, one curve: trainings whose kernels add up in another order stay together.

A training amplifies what is rounded. How much differs with draws and processors, and so it is measured: the plain
training is repeated with parameters that were changed by a rounding error (its control).
"""

from pathlib import Path

import pytest
import tiny
import torch

from las.cli import train
from las.nn.trainable import Trainable
from las.training import setup

UNITS = ["model.listener.hidden_size=64", "model.speller.hidden_size=64"]
STEPS = 200
EXPERIMENTS = ("baseline", "ln_encoder_only", "ln_both", "ln_decoder_only")


def losses(run: Path, *more: str) -> torch.Tensor:
    """The training loss of each step of a training in `run`."""
    length = [f"trainer.max_steps={STEPS}", f"trainer.validate_every={STEPS}", "trainer.tf32=false", *UNITS]
    train.train(tiny.overrides(run.parent, *length, f"run_dir={run}", *more))
    values = [event["loss"] for event in tiny.steps(run) if event["event"] == "train"]
    return torch.tensor(values, dtype=torch.float64)


def change(model: Trainable) -> Trainable:
    """The model with every parameter changed by about one unit in the last place."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 1e-7 * torch.randn(parameter.shape, generator=draw).to(parameter))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_kernels_train_alike(experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 1e-6 apart in the loss of the first step, and 1e-4 or ten times the control in those of all 200, fp32."""
    tiny.tree(tmp_path)
    curves = {
        kernel: losses(tmp_path / kernel, f"kernel={kernel}", f"+experiment={experiment}")
        for kernel in ("plain", "triton" if torch.cuda.is_available() else "cpu")
    }
    build = setup.build_model
    monkeypatch.setattr(setup, "build_model", lambda *given, **named: change(build(*given, **named)))
    curves["control"] = losses(tmp_path / "control", "kernel=plain", f"+experiment={experiment}")
    plain = curves.pop("plain")
    assert len(plain) == STEPS and plain[-5:].mean() < plain[:5].mean()
    apart = {name: (curve - plain).abs() for name, curve in curves.items()}
    print(experiment, {name: f"{value[0]:.1e}, {value.max():.1e}" for name, value in apart.items()})
    bound = max(1e-4, 10 * float(apart.pop("control").max()))
    for kernel, value in apart.items():
        assert value[0] <= 1e-6, (kernel, value[0])
        assert value.max() <= bound <= 1e-2, (kernel, value.max(), bound)
