"""Frames and times: which frames an interval has, and where the boundary between two frames lies.

A frame stands for the time around the centre of its window. An interval has the frames whose centres it holds, and the
boundary between two frames lies in the middle of their centres.
"""

from typing import NamedTuple

from las.nn.features import Features


class FrameTimes(NamedTuple):
    """Windows of `length_s` seconds, each `shift_s` after the one before."""

    shift_s: float
    length_s: float

    @classmethod
    def of(cls, features: Features) -> "FrameTimes":
        """The windows of features."""
        return cls(features.frame_shift / features.sample_rate, features.frame_length / features.sample_rate)

    def centre_s(self, frame: int) -> float:
        """Time of the centre of a frame, in seconds."""
        return frame * self.shift_s + 0.5 * self.length_s

    def boundary_s(self, frame: int, num_frames: int, duration_s: float) -> float:
        """Time at which a frame begins, in seconds: the first one at 0, and what follows the last at the end."""
        if frame == 0:
            return 0.0
        if frame == num_frames:
            return duration_s
        return self.centre_s(frame) - 0.5 * self.shift_s
