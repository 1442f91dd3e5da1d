"""The kinds of targets, by the base class of a model: tokens of utterances, frames, tokens of text alone."""

from collections.abc import Sequence

from las.decoding.base import Search, is_of_frames, require_search
from las.nn.acoustic_model import FrameModel
from las.nn.losses import FrameLoss, TrainingLoss
from las.nn.trainable import SpeechModel, Trainable
from las.runtime.errors import ConfigError
from las.training.tasks.base import Task
from las.training.tasks.frames import FrameTask
from las.training.tasks.text import TextTask
from las.training.tasks.tokens import TokenTask


def of(kind: type) -> Task:
    """Return the task of a class of models."""
    if issubclass(kind, FrameModel):
        return FrameTask()
    return TokenTask() if issubclass(kind, SpeechModel) else TextTask()


def require_fitting(model: Trainable, loss: TrainingLoss, searches: Sequence[Search]) -> None:
    """Raise ConfigError unless loss and searches are for what the model predicts."""
    of_frames = isinstance(model, FrameModel)
    if is_of_frames(loss, FrameLoss) != of_frames:
        own, other = ("frames", "tokens") if of_frames else ("tokens", "frames")
        option = "loss=frame_focal" if of_frames else "loss=cross_entropy"
        raise ConfigError(f"loss: this model predicts {own}, and the loss is of {other}: choose {option}")
    for search in searches:
        require_search(search, model)
