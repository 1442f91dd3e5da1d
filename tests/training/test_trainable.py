"""The trainer's step knows a model by its interface alone: a classifier of frames that is neither LAS nor an LM."""

import ast
from typing import NamedTuple

import pytest
import torch
from places import REPOSITORY
from torch import Tensor, nn

from las.data.augmentation.augmentation import Augmentation
from las.data.loader import Batch
from las.nn.losses import TrainingLoss
from las.nn.trainable import FeatureAugmentation, Trainable, TrainingBatch
from las.training.gradients import GradientTransform, WeightNoise
from las.training.step import TrainingStep

LABELS = torch.tensor([[0, 1, 1], [2, 0, 0]])
BATCH = Batch(["u0", "u1"], torch.eye(2, 3) + 0.1, torch.tensor([3, 1]), LABELS, torch.tensor([3, 1]))


class Frames(NamedTuple):
    logits: Tensor


class FrameClassifier(Trainable):
    """Three classes of single samples."""

    features = None

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(1, 3)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def explain(self) -> str:
        return "no recurrence"

    def num_targets(self, batch: TrainingBatch) -> int:
        return int(batch.num_tokens.sum())

    def forward_batch(self, batch: TrainingBatch, augment: FeatureAugmentation) -> Frames:
        return Frames(self.output(batch.waveforms.unsqueeze(-1)))


class FrameLoss(TrainingLoss):
    def objective(self, model: Trainable, output: Frames, batch: TrainingBatch) -> Tensor:
        present = torch.arange(output.logits.shape[1]) < batch.num_tokens.unsqueeze(1)
        return nn.functional.cross_entropy(output.logits[present], batch.targets[present], reduction="sum")


@pytest.mark.parametrize(("reduction", "times"), [("mean", 1), ("sum", 4)])
def test_a_model_of_frames_takes_a_step_of_torch(reduction: str, times: int) -> None:
    model = FrameClassifier()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    parts = (model, FrameLoss(reduction), optimiser, GradientTransform(), WeightNoise(), Augmentation())
    update = TrainingStep(*parts, 1, "fp32")([BATCH], 1)
    assert update.loss == pytest.approx(times * torch.tensor(3.0).log())
    # Of 4 frames the classes have 1, 2 and 1; each has the probability 1/3.
    expected = -0.5 * times * (torch.tensor([1, 1, 1]) / 3 - torch.tensor([1, 2, 1]) / 4)
    torch.testing.assert_close(model.output.bias.detach(), expected)


def test_the_training_asks_no_model_for_its_class() -> None:
    models = {"ListenAttendSpell", "LSTMLanguageModel", "AcousticModel"}
    folder = REPOSITORY / "las" / "training"
    asked = [
        f"{path.name}:{node.lineno}"
        for path in sorted(folder.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        if models & {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    ]
    assert asked == []
