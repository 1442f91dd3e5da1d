"""The interface between a model and its training: what the trainer asks of any model, and of a speech model."""

from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.nn.ctc import CTC
from las.nn.features import Features
from las.nn.listener import Listener


@runtime_checkable
class TrainingBatch(Protocol):
    """A batch of utterances with targets, as `las.data.loader.Batch` is one."""

    @property
    def waveforms(self) -> Float[Tensor, "batch samples"]: ...
    @property
    def num_samples(self) -> Int[Tensor, "batch"]: ...
    @property
    def targets(self) -> Int[Tensor, "batch tokens"]: ...
    @property
    def num_tokens(self) -> Int[Tensor, "batch"]: ...
    @property
    def keys(self) -> tuple[int, ...]: ...


@runtime_checkable
class FeatureAugmentation(Protocol):
    """A change of features while training, as `las.data.augmentation.augmentation.Augmentation.features` is one.

    `keys` are the seeds of the utterances' draws, `orders` is the number of blocks of equal size in a row (`Features`).
    """

    def __call__(
        self,
        features: Float[Tensor, "batch frames size"],
        num_frames: Int[Tensor, "batch"],
        keys: tuple[int, ...],
        orders: int,
    ) -> Float[Tensor, "batch frames size"]: ...


class Trainable(nn.Module, ABC):
    """Base class of models that the trainer trains.

    A model and its loss agree on what the model gives: `TrainingLoss.objective` takes what `forward_batch` returns.
    """

    features: Features | None
    """Computes features from waveforms; None for a model that reads no audio."""

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device

    @abstractmethod
    def explain(self) -> str:
        """A line for the log of a run: the kernels of the recurrences on the model's device, and why."""

    @abstractmethod
    def num_targets(self, batch: TrainingBatch) -> int:
        """Count the terms of the loss of a batch: a loss with reduction `mean` is divided by it."""

    @abstractmethod
    def forward_batch(self, batch: TrainingBatch, augment: FeatureAugmentation) -> Any:
        """Compute what the loss of a batch is taken of, its features changed by `augment`."""


class SpeechModel(Trainable):
    """Base class of speech models: features, a listener, and what a subclass makes of the encoded states.

    Its targets are tokens, unless it is a `las.nn.acoustic_model.FrameModel`. Training calls `num_targets` and
    `forward_batch`, whose return value the loss takes; the validation of a model of tokens reads its `logits`, one step
    more than there are targets, and its `weights` if there is attention. Searches take what `search_inputs` returns:
    for tokens a `las.decoding.base.Decoder`.
    """

    features: Features
    listener: Listener
    ctc: CTC | None
    """The CTC head; None without one."""
    operands: torch.dtype = torch.float32
    """Type of the operands of the listener's products in `search_inputs`; features and searches compute in fp32."""

    @abstractmethod
    def num_states(self, num_samples: Int[Tensor, "batch"]) -> Int[Tensor, "batch"]:
        """Encoded states of utterances of `num_samples`, without computing them."""

    @property
    @abstractmethod
    def state_ms(self) -> float:
        """Time from one encoded state to the next, in milliseconds."""

    def encode(
        self, waveforms: Float[Tensor, "batch samples"], num_samples: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch states size"], Int[Tensor, "batch"]]:
        """Encoded states for a search, with products of `operands`, and the number of states of each utterance."""
        features, num_frames = self.features(waveforms, num_samples)
        with torch.autocast(features.device.type, self.operands, enabled=self.operands != torch.float32):
            encoded, num_states = self.listener(features, num_frames)
        return encoded.to(features.dtype), num_states

    @abstractmethod
    def search_inputs(
        self, waveforms: Float[Tensor, "batch samples"], num_samples: Int[Tensor, "batch"]
    ) -> tuple[Any, Int[Tensor, "batch"]]:
        """Return the inputs of this model's search and the number of encoded states per utterance."""

    def __init_subclass__(cls) -> None:
        """Raise TypeError for a class with the name of `search_inputs` in earlier releases."""
        super().__init_subclass__()
        if "decoder" in vars(cls) and "search_inputs" not in vars(cls):
            raise TypeError(f"{cls.__name__}.decoder is now called search_inputs: rename it")

    def output_and_search_inputs(self, batch: TrainingBatch) -> tuple[Any, Any, Int[Tensor, "batch"]]:
        """Return the results of `forward_batch`, without augmentation, and of `search_inputs`: validation needs both.

        A subclass may compute the encoded states once for both.
        """
        output = self.forward_batch(batch, lambda features, num_frames, keys, orders: features)
        return output, *self.search_inputs(batch.waveforms, batch.num_samples)
