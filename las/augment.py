"""Training speech made more various: speed perturbation of waveforms and SpecAugment's masks on features.

Every draw depends on the key of its utterance and on nothing else, so that augmentation is the same whatever shares
the batch, however many workers read ahead, and after a restart. `batches.key` makes keys of (seed, epoch, id).

Speed perturbation: Ko et al. 2015 (Interspeech). Masks: Park et al. 2019 (Interspeech), without time warping.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from las import compat
from las.errors import ConfigError

_SLOWEST, _FASTEST = 0.5, 2.0
_SPEED, _MASKS = 1, 2  # streams of random numbers


class Augment:
    """What happens to training utterances between file and listener; by default nothing.

    Args:
        speeds: each utterance is played at one of these speeds (pitch changes too), each as likely; 1.0 is unchanged.
        time_masks: stretches of frames per utterance that are replaced by zeros, the features' mean.
        max_time_frames: longest stretch; its length is drawn evenly from 0 to this.
        max_time_share: longest stretch as a share of the utterance.
        frequency_masks: bands of neighbouring features that are replaced by zeros throughout.
        max_frequencies: widest band; its width is drawn evenly from 0 to this.
    """

    def __init__(
        self,
        *,
        speeds: Sequence[float] = (1.0,),
        time_masks: int = 0,
        max_time_frames: int = 0,
        max_time_share: float = 1.0,
        frequency_masks: int = 0,
        max_frequencies: int = 0,
    ) -> None:
        if not speeds or not all(_SLOWEST <= speed <= _FASTEST for speed in speeds):
            raise ConfigError(f"augment.speeds={list(speeds)} : give numbers from {_SLOWEST} to {_FASTEST}")
        if not 0.0 <= max_time_share <= 1.0:
            raise ConfigError(f"augment.max_time_share={max_time_share} must be between 0 and 1")
        counts = {"time_masks": time_masks, "max_time_frames": max_time_frames}
        counts |= {"frequency_masks": frequency_masks, "max_frequencies": max_frequencies}
        for name, count in counts.items():
            if count < 0:
                raise ConfigError(f"augment.{name}={count} must not be negative")
        self.speeds = tuple(speeds)
        self.time_masks = time_masks
        self.max_time_frames = max_time_frames
        self.max_time_share = max_time_share
        self.frequency_masks = frequency_masks
        self.max_frequencies = max_frequencies

    def waveform(
        self, waveform: Float32[Tensor, "samples"], sample_rate: int, key: int
    ) -> Float32[Tensor, "stretched"]:
        """The waveform at the speed drawn for `key`: at speed 0.9 it has 1/0.9 as many samples, rounded up."""
        speed = self.speeds[_draw(_generator(key, _SPEED), len(self.speeds) - 1)]
        if speed == 1.0:
            return waveform
        return compat.torchaudio().functional.resample(waveform, round(speed * sample_rate), sample_rate)

    def features(
        self, features: Float[Tensor, "batch frames size"], num_frames: Int[Tensor, "batch"], keys: Sequence[int]
    ) -> Float[Tensor, "batch frames size"]:
        """Normalised features with the masks drawn for each utterance's key."""
        if self.time_masks == self.frequency_masks == 0:
            return features
        kept = torch.ones(features.shape, dtype=torch.bool)
        for row, key in enumerate(keys):
            self._mask(kept[row], int(num_frames[row]), _generator(key, _MASKS))
        return features * kept.to(features.device)

    def _mask(self, kept: Tensor, num_frames: int, generator: torch.Generator) -> None:
        longest = min(self.max_time_frames, int(self.max_time_share * num_frames))
        for _ in range(self.time_masks):
            length = _draw(generator, longest)
            start = _draw(generator, num_frames - length)
            kept[start : start + length] = False
        size = kept.shape[1]
        for _ in range(self.frequency_masks):
            width = _draw(generator, min(self.max_frequencies, size))
            start = _draw(generator, size - width)
            kept[:, start : start + width] = False


def _generator(key: int, stream: int) -> torch.Generator:
    """Speeds and masks come from streams of their own: switching one on leaves the other's draws as they were."""
    return torch.Generator().manual_seed(key ^ stream)


def _draw(generator: torch.Generator, most: int) -> int:
    """A whole number from 0 to `most`, each as likely."""
    return int(torch.randint(most + 1, (), generator=generator))
