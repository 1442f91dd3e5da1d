"""Models made by their classes, on noise, for measurements that need no config and no corpus.

They are what configs/model makes: `DEMO` is +experiment=ln_encoder_only, the demo's; `END_TO_END` and `HYBRID` are
model=las_switchboard and model=hybrid_6, the sizes of Zeineldeen et al. 2020, with log-mel features and cell=ln_global.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.shapes import LIBRISPEECH_FRAMES
from las.data.augmentation.augmentation import Augmentation
from las.data.loader import Batch
from las.nn.acoustic_model import AcousticModel
from las.nn.attention.location import LocationAttention
from las.nn.attention.weight_feedback import WeightFeedbackAttention
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.features import LogMel
from las.nn.listener import Listener
from las.nn.losses import FrameCrossEntropy, LabelSmoothedCrossEntropy, TrainingLoss
from las.nn.model import ListenAttendSpell, SpeechModel
from las.nn.speller import Speller
from las.training.optimization import GradientTransform, WeightNoise
from las.training.step import TrainingStep

SAMPLE_RATE = 16000
FRAME_SHIFT = 160
PADDING = 240
"""Samples of a window that are not those of its frame."""


@dataclass(frozen=True)
class Subject:
    """A model that is trained and decoded, with its loss and the lengths of its utterances."""

    name: str
    make: Callable[[], SpeechModel]
    loss: Callable[[], TrainingLoss]
    durations_s: Tensor
    """Seconds of each utterance of a batch."""
    tokens_per_s: float | None
    """Targets of a second; None for one in every frame."""
    num_targets: int
    """Number of different targets, the boundary included."""
    clip_norm: float | None = 1.0

    def batch(self, size: int | None = None) -> Batch:
        """The first `size` utterances (None: all) of noise, with random targets."""
        durations_s = self.durations_s[:size]
        num_samples = (durations_s * SAMPLE_RATE).long()
        num_tokens = num_samples.sub(PADDING) // FRAME_SHIFT
        if self.tokens_per_s is not None:
            num_tokens = (durations_s * self.tokens_per_s).long().clamp(min=1)
        return noise(num_samples, num_tokens, self.num_targets, torch.Generator().manual_seed(1))

    def step(self, precision: str, device: torch.device) -> TrainingStep:
        """The update of a training that begins with parameters drawn from seed 1."""
        torch.manual_seed(1)
        model = self.make().to(device)
        adam = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
        clipping = GradientTransform(clip_norm=self.clip_norm)
        return TrainingStep(model, self.loss(), adam, clipping, WeightNoise(), Augmentation(), 1, precision)


def noise(num_samples: Tensor, num_tokens: Tensor, num_targets: int, draw: torch.Generator) -> Batch:
    """A batch of white noise of given lengths, with random targets but the boundary."""
    count, longest = len(num_samples), int(num_tokens.max())
    return Batch(
        ids=[f"noise{index}" for index in range(count)],
        waveforms=0.1 * torch.randn(count, int(num_samples.max()), generator=draw),
        num_samples=num_samples,
        targets=torch.randint(1, num_targets, (count, longest), generator=draw),
        num_tokens=num_tokens,
    )


DEMO_CELL = partial(LNGlobalLSTMCell, cell_norm="output")


def demo(dropout: float = 0.1, input_noise: float = 0.3, **sizes: Any) -> ListenAttendSpell:
    """The demo's model; `sizes` are options of its listener that differ."""
    of_listener: dict[str, Any] = {
        "num_layers": 2,
        "hidden_size": 128,
        "time_reduction": (2, 1),
        "input_reduction": 2,
    } | sizes
    speller = partial(
        Speller,
        cell=PlainLSTMCell,
        attention=partial(LocationAttention, key_size=64, num_filters=10, width=51),
        hidden_size=192,
        embedding_size=64,
        dropout=dropout,
    )
    return ListenAttendSpell(
        SAMPLE_RATE,
        DEMO_TOKENS,
        features=partial(LogMel, normalisation="utterance"),
        listener=partial(Listener, cell=DEMO_CELL, dropout=dropout, input_noise=input_noise, **of_listener),
        speller=speller,
    )


def end_to_end(**sizes: Any) -> ListenAttendSpell:
    """The encoder-decoder of Zeineldeen et al. 2020."""
    of_listener: dict[str, Any] = {"num_layers": 6, "hidden_size": 1024, "time_reduction": (2, 2, 2, 1, 1, 1)} | sizes
    speller = partial(
        Speller,
        cell=partial(PlainLSTMCell, forget_bias=1.0),
        attention=partial(WeightFeedbackAttention, key_size=1024),
        hidden_size=1000,
        embedding_size=621,
        dropout=0.3,
        dropout_at="output",
        readout="maxout",
        readout_size=1000,
        readout_reads="state_and_token",
    )
    return ListenAttendSpell(
        SAMPLE_RATE,
        BPE_TOKENS,
        features=LogMel,
        listener=partial(
            Listener, cell=LNGlobalLSTMCell, reduction="max_pool", dropout=0.3, dropout_at="between", **of_listener
        ),
        speller=speller,
    )


def hybrid(**sizes: Any) -> AcousticModel:
    """The acoustic model of Zeineldeen et al. 2020."""
    of_listener: dict[str, Any] = {"num_layers": 6, "hidden_size": 500, "time_reduction": (1,) * 6} | sizes
    listener = partial(Listener, cell=LNGlobalLSTMCell, dropout=0.1, dropout_at="inputs", **of_listener)
    return AcousticModel(SAMPLE_RATE, 2, features=LogMel, listener=listener, num_pdfs=PDFS)


DEMO_TOKENS, BPE_TOKENS, PDFS = 49, 1030, 9001
"""Tokens of the synthetic corpus; pieces of words; tied states of phones."""

_LIBRISPEECH_S = torch.tensor(LIBRISPEECH_FRAMES) * FRAME_SHIFT / SAMPLE_RATE
_smoothed = partial(LabelSmoothedCrossEntropy, 0.1)

DEMO = Subject("demo", demo, _smoothed, torch.linspace(1.6, 2.2, 32), 12.0, DEMO_TOKENS)
END_TO_END = Subject("end to end", end_to_end, _smoothed, _LIBRISPEECH_S, 4.2, BPE_TOKENS)
HYBRID = Subject("hybrid", hybrid, partial(FrameCrossEntropy, 2.0), _LIBRISPEECH_S, None, PDFS, None)
SUBJECTS: Mapping[str, Subject] = {each.name: each for each in (DEMO, END_TO_END, HYBRID)}
