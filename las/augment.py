"""Training speech made more various: speed perturbation of waveforms, SpecAugment on features.

Every draw depends on the key of its utterance and on nothing else, so that augmentation is the same whatever shares
the batch, however many workers read ahead, and after a restart. `batches.key` makes keys of (seed, epoch, id).

Speed perturbation: Ko et al. 2015 (Interspeech). SpecAugment: Park et al. 2019 (Interspeech), section 2; the paper's
policies are cards (`configs/augment/specaugment_*.yaml`).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from las import compat, time_warp
from las.errors import ArgumentError

_SLOWEST, _FASTEST = 0.5, 2.0
_SPEED, _MASKS, _WARP = 1, 2, 3  # streams of random numbers
_LOW = (1 << 32) - 1


class Augment:
    """What happens to training utterances between file and listener; by default nothing.

    Args:
        speeds: each utterance is played at one of these speeds (pitch changes too), each as likely; 1.0 is unchanged.
        time_masks: stretches of frames per utterance that are replaced by zeros, the features' mean.
        max_time_frames: longest stretch; its length is drawn evenly from 0 to this.
        max_time_share: longest stretch as a share of the utterance.
        frequency_masks: bands of neighbouring features that are replaced by zeros throughout.
        max_frequencies: widest band; its width is drawn evenly from 0 to this. Features and their time derivatives
            have the same bands.
        max_warp_frames: the paper's W, 0 for no warping: the image is pulled along time (`las.time_warp`) at a frame
            that is more than W from both ends, by 0 to W frames to either side, all drawn evenly. Utterances of up to
            2 W + 2 frames have no such frame and stay.
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
        max_warp_frames: int = 0,
    ) -> None:
        if not speeds or not all(_SLOWEST <= speed <= _FASTEST for speed in speeds):
            raise ArgumentError(f"speeds={list(speeds)} : give numbers from {_SLOWEST} to {_FASTEST}")
        if not 0.0 <= max_time_share <= 1.0:
            raise ArgumentError(f"max_time_share={max_time_share} must be between 0 and 1")
        counts = {"time_masks": time_masks, "max_time_frames": max_time_frames}
        counts |= {"frequency_masks": frequency_masks, "max_frequencies": max_frequencies}
        counts |= {"max_warp_frames": max_warp_frames}
        for name, count in counts.items():
            if count < 0:
                raise ArgumentError(f"{name}={count} must not be negative")
        self.speeds = tuple(speeds)
        self.time_masks = time_masks
        self.max_time_frames = max_time_frames
        self.max_time_share = max_time_share
        self.frequency_masks = frequency_masks
        self.max_frequencies = max_frequencies
        self.max_warp_frames = max_warp_frames

    def waveform(
        self, waveform: Float32[Tensor, "samples"], sample_rate: int, key: int
    ) -> Float32[Tensor, "stretched"]:
        """The waveform at the speed drawn for `key`: at speed 0.9 it has 1/0.9 as many samples, rounded up."""
        drawn = torch.randint(len(self.speeds), (), generator=torch.Generator().manual_seed(key ^ _SPEED))
        speed = self.speeds[int(drawn)]
        if speed == 1.0:
            return waveform
        return compat.torchaudio().functional.resample(waveform, round(speed * sample_rate), sample_rate)

    def features(
        self,
        features: Float[Tensor, "batch frames size"],
        num_frames: Int[Tensor, "batch"],
        keys: Sequence[int],
        orders: int = 1,
    ) -> Float[Tensor, "batch frames size"]:
        """Normalised features, warped and with the masks drawn for each utterance's key; unchanged without keys.

        `orders` is the number of blocks of equal size in a row (`las.features.Features.orders`).
        """
        if keys and self.max_warp_frames:
            features = self._warped(features, num_frames, keys, orders)
        if not keys or self.time_masks == self.frequency_masks == 0:
            return features
        draws = _draws(keys, _MASKS, self.time_masks + self.frequency_masks).to(features.device, non_blocking=True)
        in_time, in_frequency = draws.split([self.time_masks, self.frequency_masks], dim=1)
        longest = (self.max_time_share * num_frames.double()).long().clamp(max=self.max_time_frames)
        frames = _covered(in_time, longest, num_frames, features.shape[1])
        size = features.shape[2] // orders
        widest, sizes = (torch.full_like(num_frames, value) for value in (min(self.max_frequencies, size), size))
        bands = _covered(in_frequency, widest, sizes, size).repeat(1, orders)
        return features.masked_fill(frames.unsqueeze(2) | bands.unsqueeze(1), 0.0)

    def _warped(self, features: Tensor, num_frames: Tensor, keys: Sequence[int], orders: int) -> Tensor:
        centre, shift = _draws(keys, _WARP, 1).to(features.device, non_blocking=True)[:, 0].unbind(1)
        most = self.max_warp_frames
        places = num_frames - 2 * most - 2
        centres = most + 1 + centre % places.clamp(min=1)
        shifts = (shift % (2 * most + 1) - most) * (places > 0)
        # An utterance that stays may be of any length: it is given the geometry of the shortest that does not.
        warped = time_warp.warp(features, num_frames.clamp(min=2 * most + 3), centres, shifts, orders)
        return torch.where((shifts != 0)[:, None, None], warped, features)


def _draws(keys: Sequence[int], stream: int, count: int) -> Int[Tensor, "batch count 2"]:
    """Pairs of whole numbers from 0 to 2^32 - 1, `count` for each key.

    Streams are independent: switching one on leaves the draws of the others as they were.
    """
    drawn = torch.empty(len(keys), count, dtype=torch.int64)
    for row, key in zip(drawn, keys, strict=True):  # seeding is all that is done utterance by utterance
        row.random_(-(1 << 63), None, generator=torch.Generator().manual_seed(key ^ stream))
    return torch.stack([drawn >> 32 & _LOW, drawn & _LOW], dim=2)


def _covered(
    draws: Int[Tensor, "batch count 2"],
    longest: Int[Tensor, "batch"],
    sizes: Int[Tensor, "batch"],
    positions: int,
) -> Bool[Tensor, "batch positions"]:
    """Which positions lie in a stretch of 0 to `longest` of `sizes`: its length is drawn, then its place.

    The remainder of 32 bits favours small numbers by less than one in a million.
    """
    lengths = draws[..., 0] % (longest.unsqueeze(1) + 1)
    starts = (draws[..., 1] % (sizes.unsqueeze(1) - lengths + 1)).unsqueeze(2)
    places = torch.arange(positions, device=draws.device)
    return ((places >= starts) & (places < starts + lengths.unsqueeze(2))).any(dim=1)
