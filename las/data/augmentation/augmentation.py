"""Data augmentation: speed, noise, rooms and channels of waveforms; masking and time warping of features (SpecAugment).

Every draw depends on the key of its utterance only, so that augmentation is the same whatever the batch and the number
of workers, and after a restart. `las.data.loader.augmentation_seed` makes keys of (seed, epoch, id).

Speed perturbation: Ko et al. 2015 (Interspeech). SpecAugment: Park et al. 2019 (Interspeech), section 2; the paper's
policies are `configs/augment/specaugment_*.yaml`. Its time warping is an image warp whose control point lies on the
middle band and whose six anchors (the four corners and the middles of the two vertical edges) stay. Between them the
displacement is a thin-plate spline, the smoothest surface through all seven (Duchon 1977). It has a part along time
only, since no point moves along frequency.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from las.config.build import require
from las.data.augmentation.distortion import Distortion, Talkers
from las.runtime import devices
from las.runtime.errors import ArgumentError, ConfigError

_SLOWEST, _FASTEST = 0.5, 2.0
_LARGEST_RATIO = 1000
"""Largest number in a ratio of rates: the time and memory that resampling takes grow with it."""
_SPEED, _MASKS, _WARP = 1, 2, 3  # streams of random numbers
_DISTORTIONS = {"reverberation": 4, "noise": 5, "telephone": 6, "gain": 7, "codec": 8}
"""Distortions in the order of the way from mouth to recogniser, with the streams of their random numbers."""
ALONE = Talkers(0, lambda index: torch.zeros(0).numpy())
"""No other utterances to mix babble from."""
_LOW = (1 << 32) - 1


class Augmentation:
    """Augmentation of training utterances: of waveforms when they are read, of features in the model; none by default.

    Args:
        speeds: factors of speed (and pitch), one of which is drawn for each utterance with equal probability.
        time_masks: number of time masks: segments of frames that are replaced by zeros, the mean of the features.
        max_time_frames: maximum length of a time mask in frames; lengths are drawn uniformly from 0 to this.
        max_time_share: maximum length of a time mask as a share of the utterance.
        frequency_masks: number of frequency masks: bands of neighbouring features that are replaced by zeros.
        max_frequencies: maximum width of a band; widths are drawn uniformly from 0 to this. Time derivatives of
            features have the same bands.
        max_warp_frames: W of the paper, 0 for no time warping: a point on the middle band, more than W frames from both
            ends, is shifted by up to W frames to either side, both drawn uniformly. Utterances of up to 2 W + 2 frames
            have no such point and are not warped.
        reverberation: the first distortion of the waveform, after the change of speed. Each of the five may be any
            `Distortion` or None, and draws from a stream of its own.
        noise: the second distortion.
        telephone: the third.
        gain: the fourth.
        codec: the fifth.
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
        reverberation: Distortion | None = None,
        noise: Distortion | None = None,
        telephone: Distortion | None = None,
        gain: Distortion | None = None,
        codec: Distortion | None = None,
    ) -> None:
        if not speeds or not all(_SLOWEST <= speed <= _FASTEST for speed in speeds):
            raise ArgumentError(f"speeds={list(speeds)} : give numbers from {_SLOWEST} to {_FASTEST}")
        require("max_time_share", max_time_share, 0.0, 1.0)
        require("time_masks", time_masks, 0)
        require("max_time_frames", max_time_frames, 0)
        require("frequency_masks", frequency_masks, 0)
        require("max_frequencies", max_frequencies, 0)
        require("max_warp_frames", max_warp_frames, 0)
        self.speeds = tuple(speeds)
        self.time_masks = time_masks
        self.max_time_frames = max_time_frames
        self.max_time_share = max_time_share
        self.frequency_masks = frequency_masks
        self.max_frequencies = max_frequencies
        self.max_warp_frames = max_warp_frames
        chosen = (reverberation, noise, telephone, gain, codec)
        self.distortions: dict[str, Distortion] = {
            name: part for name, part in zip(_DISTORTIONS, chosen, strict=True) if part is not None
        }

    @property
    def changes_features(self) -> bool:
        """True if masks or time warping act on features, which nobody can listen to."""
        return bool(self.time_masks or self.frequency_masks or self.max_warp_frames)

    @property
    def changes_waveforms(self) -> bool:
        """True if speeds or distortions act on waveforms."""
        return bool(self.distortions or self.speeds != (1.0,))

    def check(self, sample_rate: int) -> list[str]:
        """Read what distortions need from files; lines about it. Raises DataError or ConfigError for what is unfit."""
        return [line for distortion in self.distortions.values() for line in distortion.check(sample_rate)]

    def waveform(
        self, waveform: Float32[Tensor, " samples"], sample_rate: int, key: int, talkers: Talkers = ALONE
    ) -> Float32[Tensor, " stretched"]:
        """Change speed and sound of a waveform by the draws for `key`; at speed 0.9 it has 1/0.9 as many samples.

        `talkers` are the utterances that babble is mixed from.
        """
        return self.waveform_and_draws(waveform, sample_rate, key, talkers)[0]

    def waveform_and_draws(
        self, waveform: Float32[Tensor, " samples"], sample_rate: int, key: int, talkers: Talkers = ALONE
    ) -> tuple[Float32[Tensor, " stretched"], dict[str, Any]]:
        """Return the waveform as `waveform` returns it, and what was drawn for each distortion that was applied."""
        drawn = torch.randint(len(self.speeds), (), generator=torch.Generator().manual_seed(key ^ _SPEED))
        speed, draws = self.speeds[int(drawn)], dict[str, Any]()
        if speed != 1.0:
            waveform, draws["speed"] = _at_speed(waveform, speed, sample_rate), speed
        if not self.distortions:
            return waveform, draws
        samples = waveform.double().numpy()
        for name, distortion in self.distortions.items():
            generator = torch.Generator().manual_seed(key ^ _DISTORTIONS[name])
            samples, details = distortion(samples, sample_rate, generator, talkers)
            if details is not None:
                draws[name] = details
        return torch.from_numpy(samples).float(), draws

    def features(
        self,
        features: Float[Tensor, "batch frames size"],
        num_frames: Int[Tensor, " batch"],
        keys: Sequence[int],
        orders: int = 1,
    ) -> Float[Tensor, "batch frames size"]:
        """Warp and mask normalised features by the draws for each utterance's key; unchanged without keys.

        `orders` is the number of blocks of equal size in a row (`las.nn.features.Features.orders`).
        """
        num_frames = num_frames.to(features.device, non_blocking=True)
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
        max_warp = self.max_warp_frames
        num_centres = num_frames - 2 * max_warp - 2
        centres = max_warp + 1 + centre % num_centres.clamp(min=1)
        shifts = (shift % (2 * max_warp + 1) - max_warp) * (num_centres > 0)
        # An utterance that is not warped may be of any length: it gets the geometry of the shortest one that is.
        warped = warp(features, num_frames.clamp(min=2 * max_warp + 3), centres, shifts, orders)
        return torch.where((shifts != 0)[:, None, None], warped, features)


def _draws(keys: Sequence[int], stream: int, count: int) -> Int[Tensor, "batch count 2"]:
    """Pairs of whole numbers from 0 to 2^32 - 1, `count` for each key.

    Streams are independent: switching one on leaves the draws of the others as they were.
    """
    drawn = torch.empty(len(keys), count, dtype=torch.int64)
    for row, key in zip(drawn, keys, strict=True):  # only seeding is done utterance by utterance
        row.random_(-(1 << 63), None, generator=torch.Generator().manual_seed(key ^ stream))
    return torch.stack([drawn >> 32 & _LOW, drawn & _LOW], dim=2)


def _covered(
    draws: Int[Tensor, "batch count 2"], longest: Int[Tensor, " batch"], sizes: Int[Tensor, " batch"], positions: int
) -> Bool[Tensor, "batch positions"]:
    """Mask of the positions in segments of up to `longest` of `sizes` positions: lengths are drawn, then starts.

    Remainders of 32 bits favour small numbers by less than one in a million.
    """
    lengths = draws[..., 0] % (longest.unsqueeze(1) + 1)
    starts = (draws[..., 1] % (sizes.unsqueeze(1) - lengths + 1)).unsqueeze(2)
    axis = torch.arange(positions, device=draws.device)
    return ((axis >= starts) & (axis < starts + lengths.unsqueeze(2))).any(dim=1)


def warp(
    features: Float[Tensor, "batch frames size"],
    num_frames: Int[Tensor, " batch"],
    centres: Int[Tensor, " batch"],
    shifts: Int[Tensor, " batch"],
    orders: int = 1,
) -> Float[Tensor, "batch frames size"]:
    """Warp features along time, so that frame `centres` on the middle band moves to `centres + shifts`, except padding.

    Args:
        num_frames: number of frames of each utterance, without padding.
        centres, shifts: both `centres` and `centres + shifts` lie within the utterance and on neither of its ends.
        orders: blocks of equal size in a row (features and their time derivatives), which are warped alike.

    Raises ConfigError for rows of less than two bands, which have no middle between their edges.
    """
    batch, frames, size = features.shape
    bands = size // orders
    if bands < 2:
        raise ConfigError(f"augment.max_warp_frames needs features of at least 2 bands, not {bands}")
    positions = torch.arange(frames, device=features.device)
    # Each point of the new image is read from the old one, at the point it was displaced from.
    source = positions[None, :, None] - displacement(num_frames, bands, centres, shifts, frames)
    source = torch.minimum(source.clamp(min=0), (num_frames - 1)[:, None, None].clamp(min=0))
    lower = source.floor()
    share = (source - lower).unsqueeze(2).to(features.dtype)
    rows = features.view(batch, frames, orders, bands)
    index = lower.long().unsqueeze(2).expand(rows.shape)
    value_before, value_after = rows.gather(1, index), rows.gather(1, (index + 1).clamp(max=frames - 1))
    warped = torch.lerp(value_before, value_after, share.expand(rows.shape)).view(features.shape)
    spoken = positions < num_frames[:, None]
    return torch.where(spoken.unsqueeze(2), warped, features)


def displacement(
    num_frames: Int[Tensor, " batch"],
    bands: int,
    centres: Int[Tensor, " batch"],
    shifts: Int[Tensor, " batch"],
    frames: int,
) -> Float[Tensor, "batch frames bands"]:
    """Displacement of each point of the warped image, in frames: `shifts` at the control point, 0 at the six anchors.

    The spline is a plane and a weighted sum of r² log r, r the distance from each of the seven points; the weights
    have no part that a plane could have.
    """
    last = (num_frames - 1).double()
    zeros = torch.zeros_like(last)
    edges = torch.tensor([0.0, (bands - 1) / 2, bands - 1], dtype=torch.float64).to(last.device, non_blocking=True)
    times = torch.stack([(centres + shifts).double(), zeros, zeros, zeros, last, last, last], dim=1)
    heights = torch.cat([edges[1:2], edges, edges]).expand_as(times)
    # Any unit of length gives the same spline, this one a well-conditioned system.
    unit = last.clamp(min=1).unsqueeze(1)
    times, heights = times / unit, heights / unit
    distances = _basis(times.unsqueeze(2) - times.unsqueeze(1), heights.unsqueeze(2) - heights.unsqueeze(1))
    plane = torch.stack([torch.ones_like(times), times, heights], dim=2)
    zero_block = plane.new_zeros(len(plane), 3, 3)
    system = torch.cat([torch.cat([distances, plane], 2), torch.cat([plane.mT, zero_block], 2)], 1)
    values = torch.nn.functional.pad(shifts.double().unsqueeze(1), (0, system.shape[1] - 1))
    # Solved in fp64, added up in fp32: right to a hundredth of a frame, and many times faster.
    solved = torch.linalg.solve(system, values)[:, :, None, None].float()
    time = (torch.arange(frames, device=last.device)[None, :, None] / unit.unsqueeze(2)).float()
    height = (torch.arange(bands, device=last.device)[None, None, :] / unit.unsqueeze(2)).float()
    total = solved[:, -3] + solved[:, -2] * time + solved[:, -1] * height
    for point in range(times.shape[1]):  # in turn: all at once would need seven times the memory
        point_times, point_heights = (each[:, point, None, None].float() for each in (times, heights))
        total.addcmul_(solved[:, point], _basis(time - point_times, height - point_heights))
    return total


def _basis(time: Tensor, height: Tensor) -> Tensor:
    """r² log r of the distance r, 0 at 0."""
    squared = time.square() + height.square()
    return squared.clamp(min=1e-30).log_().mul_(squared).mul_(0.5)


def _at_speed(waveform: Float32[Tensor, " samples"], speed: float, sample_rate: int) -> Float32[Tensor, " stretched"]:
    ratio = Fraction(round(speed * sample_rate), sample_rate)
    if ratio.denominator > _LARGEST_RATIO:  # 0.85 of 22,050 Hz is 9,371 : 11,025, and nearly 17 : 20
        ratio = Fraction(speed).limit_denominator(_LARGEST_RATIO)
    return devices.torchaudio().functional.resample(waveform, ratio.numerator, ratio.denominator)
