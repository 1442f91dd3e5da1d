"""Batches and updates of the tiny model for tests."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny import MODEL

from las.config.build import build, compose
from las.data.augmentation.augmentation import Augmentation
from las.data.loader import Batch
from las.data.tokenizers import Characters
from las.nn.losses import LabelSmoothedCrossEntropy, TrainingLoss
from las.nn.model import ListenAttendSpell, SpeechModel
from las.training.optimization import GradientTransform, WeightNoise
from las.training.step import TrainingStep

UTTERANCE = "++model.features.normalisation=utterance"
LETTERS = Characters("abcdefgh ")
STILL = [*MODEL, UTTERANCE, "model.listener.dropout=0.0", "model.listener.input_noise=0.0", "model.speller.dropout=0.0"]


def updates(
    precision: str = "fp32", reduction: str = "mean", overrides: Sequence[str] = STILL, **gradients: float
) -> TrainingStep:
    """Updates of the tiny model; without other overrides nothing is drawn in them."""
    torch.manual_seed(1)
    model: ListenAttendSpell = build(compose("train", [*overrides])["model"], where="model")(16000, 10)
    loss, optimiser = LabelSmoothedCrossEntropy(0.1, reduction), torch.optim.SGD(model.parameters(), lr=0.1)
    changes = GradientTransform(**gradients), WeightNoise(), Augmentation()
    return TrainingStep(model, loss, optimiser, *changes, 1, precision)


def batch(rows: slice = slice(0, 6)) -> Batch:
    generator = torch.Generator().manual_seed(2)
    samples, tokens = torch.tensor([9000, 4000, 7000, 5000, 8000, 6000]), torch.tensor([4, 1, 2, 3, 0, 2])
    waveforms = torch.randn(6, 9000, generator=generator)
    waveforms *= torch.arange(9000) < samples.unsqueeze(1)
    targets = torch.randint(1, 10, (6, 4), generator=generator) * (torch.arange(4) < tokens.unsqueeze(1))
    return Batch([f"u{i}" for i in range(6)][rows], waveforms[rows], samples[rows], targets[rows], tokens[rows])


def limited(of: TrainingStep, monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Memory for so many utterances; what was tried."""
    tried: list[int] = []
    part = of._part

    def fake(given: Batch, divisor: float) -> torch.Tensor:
        tried.append(len(given.ids))
        found = part(given, divisor)
        if len(given.ids) > most:
            raise torch.OutOfMemoryError("a test's")  # after the backward pass: the gradient is there already
        return found

    monkeypatch.setattr(of, "_part", fake)
    return tried


def training(*overrides: str, device: str = "cuda") -> TrainingStep:
    """Updates of the tiny model, its parts made by the cards, on a GPU."""
    torch.manual_seed(1)
    config = compose("train", list(overrides))
    model: SpeechModel = build(config["model"], where="model")(16000, LETTERS.size)
    loss: TrainingLoss = build(config["loss"], where="loss")
    loss.bind(SimpleNamespace(tokens=LETTERS, normalise=str.split))
    return TrainingStep(
        model.to(device),
        loss,
        build(config["optim"], where="optim")(model.parameters()),
        build(config["gradients"], where="gradients"),
        build(config["weight_noise"], where="weight_noise"),
        build(config["augment"], where="augment"),
        1,
        config["trainer"]["precision"],
    )


def keyed(given: Batch, device: str = "cuda") -> Batch:
    """A batch on the GPU with the seeds of its augmentation."""
    return replace(given, keys=tuple(range(len(given.ids)))).to(device)
