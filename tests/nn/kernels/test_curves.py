"""One seed, one curve: trainings whose kernels add up in another order stay together.

With 64 units. Norms over the eight of the tiny model amplify what is rounded until curves part (a change of 1e-7 to the
parameters of the plain training does the same to it).
"""

from pathlib import Path

import pytest
import tiny
import torch

from las.cli import train

UNITS = ["model.listener.hidden_size=64", "model.speller.hidden_size=64"]
EXPERIMENTS = ("baseline", "ln_encoder_only", "ln_both", "ln_decoder_only")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "steps"),
    [(each, 200) for each in EXPERIMENTS],
)
def test_kernels_train_alike(experiment: str, steps: int, tmp_path: Path) -> None:
    """At most 1e-4 apart in the loss of every step, fp32."""
    tiny.tree(tmp_path)
    length = [f"trainer.max_steps={steps}", f"trainer.validate_every={steps}", *UNITS]
    curves = {}
    for kernel in ("plain", "autograd", "cpu"):
        places = [f"run_dir={tmp_path / kernel}", f"kernel={kernel}", f"+experiment={experiment}"]
        train.train(tiny.overrides(tmp_path, *length, *places))
        losses = [event["loss"] for event in tiny.steps(tmp_path / kernel) if event["event"] == "train"]
        curves[kernel] = torch.tensor(losses, dtype=torch.float64)
    plain = curves.pop("plain")
    assert len(plain) == steps and plain[-5:].mean() < plain[:5].mean()
    apart = {kernel: float((curve - plain).abs().max()) for kernel, curve in curves.items()}
    print(experiment, steps, {kernel: f"{value:.1e}" for kernel, value in apart.items()})
    assert max(apart.values()) <= 1e-4, apart
