"""A folder of recordings, such as noises or impulse responses, read at the sample rate that is asked for."""

from collections import Counter
from pathlib import Path

import numpy as np
import torch

from las.data.audio import files
from las.runtime import devices
from las.runtime.errors import ArgumentError
from las.storage import folders


class AudioFolder:
    """Audio files of a folder and the folders in it, in the order of their paths; the first channel of each.

    Args:
        folder: the folder.
        key: name of the argument it came from, for errors.

    Raises ArgumentError for a folder that does not exist or holds no audio file.
    """

    def __init__(self, folder: str | Path, key: str = "folder") -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise ArgumentError(f"{key}={folder}: there is no such folder")
        found = folders.search(self.folder)
        audio = [path for path in found.files if path.suffix.lower() in files.SUFFIXES]
        self.paths = sorted(audio, key=lambda path: path.relative_to(self.folder).as_posix())
        self.remarks = found.remarks()
        if not self.paths:
            raise ArgumentError(f"{key}={folder}: {files.NOT_FOUND}")

    def check(self, sample_rate: int, what: str) -> list[str]:
        """Read every header; lines with the number of files, their length, what was left out and what is resampled.

        `what` are the files, in the plural. Raises DataError naming a file that cannot be read.
        """
        headers = [files.info(path) for path in self.paths]
        minutes = sum(header.duration_s for header in headers) / 60
        lines = [f"{what}: {len(headers)} files, {minutes:.1f} min, in {self.folder}", *self.remarks]
        others = Counter(header.sample_rate for header in headers if header.sample_rate != sample_rate)
        if others:
            rates = ", ".join(f"{count} of {rate} Hz" for rate, count in sorted(others.items()))
            lines.append(f"{what}: resampled to {sample_rate} Hz: {rates}")
        return lines

    def duration_s(self, index: int) -> float:
        """Duration of a file in seconds."""
        return files.info(self.paths[index]).duration_s

    def read(self, index: int, sample_rate: int, start_s: float = 0.0, duration_s: float | None = None) -> np.ndarray:
        """Samples [samples] of a stretch of a file, resampled to `sample_rate`, in double precision."""
        path = self.paths[index]
        own_rate = files.info(path).sample_rate
        samples = torch.from_numpy(files.load(path, 0, start_s, duration_s))
        if own_rate != sample_rate:
            samples = devices.torchaudio().functional.resample(samples, own_rate, sample_rate)
        return samples.double().numpy()
