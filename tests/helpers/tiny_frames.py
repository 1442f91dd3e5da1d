"""Tiny acoustic models of three phones, and their trainings on `tiny.tree`."""

import functools
from pathlib import Path

import tiny
import torch

from las.data.loader import Batch
from las.nn.acoustic_model import AcousticModel
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.features import LogMel
from las.nn.listener import Listener

MODEL = ["model=hybrid_small", "model.listener.hidden_size=8", "model.features.num_mels=8"]
SHORT = [
    *("trainer.max_steps=4", "trainer.batch_size=4", "trainer.validate_every=2", "trainer.num_workers=0"),
    *("trainer.histograms=false", "trainer.attention_pictures=false"),
]


def overrides(root: Path, *more: str) -> list[str]:
    """The overrides of a training of four steps, validated every two, in `root/run`."""
    return [*tiny.corpus(root), f"run_dir={root / 'run'}", *MODEL, *SHORT, *more]


FEATURES = functools.partial(LogMel, num_mels=8, normalisation="utterance")


def model(**options: object) -> AcousticModel:
    torch.manual_seed(1)
    listener = functools.partial(Listener, cell=PlainLSTMCell, num_layers=2, hidden_size=6, time_reduction=(1, 1))
    return AcousticModel(16000, 4, features=FEATURES, **{"listener": listener, **options})  # type: ignore[arg-type]


def batch(*seconds: float) -> Batch:
    generator = torch.Generator().manual_seed(2)
    samples = torch.tensor([round(16000 * each) for each in seconds])
    frames = 1 + (samples - 400) // 160
    waveforms = torch.randn(len(seconds), int(samples.max()), generator=generator)
    waveforms *= torch.arange(waveforms.shape[1]) < samples.unsqueeze(1)
    labels = torch.randint(0, 9, (len(seconds), int(frames.max())), generator=generator)
    labels *= torch.arange(labels.shape[1]) < frames.unsqueeze(1)
    return Batch([f"u{i}" for i in range(len(seconds))], waveforms, samples, labels, frames)
