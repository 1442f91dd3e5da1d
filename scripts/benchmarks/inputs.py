"""Utterances of noise, and the model of an experiment, for suites that need no corpus."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch

from benchmarks.models import noise
from las.config.build import Config, build
from las.data.corpora.base import Corpus
from las.data.loader import Batch
from las.nn.cells.base import RecurrentCell
from las.nn.kernels import choice
from las.nn.model import ListenAttendSpell, SpeechModel
from las.runtime.errors import ConfigError
from las.training.setup import TrainingParts, build_parts
from las.training.step import TrainingStep

TOKENS_PER_SECOND = 12  # phones of read speech


class BenchmarkModel(NamedTuple):
    """The model and loss of a training config."""

    corpus: Corpus
    parts: TrainingParts

    @property
    def model(self) -> ListenAttendSpell:
        """The model. Raises ConfigError for one without listener and speller."""
        model = self.parts.model
        if not isinstance(model, ListenAttendSpell):
            raise ConfigError(f"model: a {type(model).__name__} has no listener and speller, whose speed is measured")
        return model

    def step(self, precision: str) -> TrainingStep:
        """The update of a training, with an optimiser of its own."""
        parts = self.parts._replace(options=replace(self.parts.options, precision=precision))
        return parts.training_step(parts.optim(parts.model.parameters()))

    def updates(self, precision: str, kernel: str) -> Callable[[Batch], object]:
        """A function that makes an update on a batch by a kernel, the first of a training when it is called first."""
        step, numbers = self.step(precision), itertools.count(1)

        def update(batch: Batch) -> object:
            with choice.use_kernel(kernel):
                return step([batch], next(numbers))

        return update


def subject(config: Config) -> BenchmarkModel:
    """Build the parts of a training from its config; the corpus is not read."""
    corpus: Corpus = build(config["corpus"], where="corpus")
    return BenchmarkModel(corpus, build_parts(config, corpus))


def batch(count: int, seconds: list[float], corpus: Corpus, seed: int = 1) -> Batch:
    """A batch of white noise of random lengths between two durations in seconds, with random tokens as targets."""
    draw = torch.Generator().manual_seed(seed)
    shortest_s, longest_s = seconds
    durations_s = shortest_s + (longest_s - shortest_s) * torch.rand(count, generator=draw)
    num_samples = (durations_s * corpus.sample_rate).long()
    num_tokens = (durations_s * TOKENS_PER_SECOND).long().clamp(min=1)
    return noise(num_samples, num_tokens, corpus.tokens.size, draw)


def duration_s(batch: Batch, corpus: Corpus) -> float:
    """Seconds of audio in a batch, without padding."""
    return int(batch.num_samples.sum()) / corpus.sample_rate


def cells(model: SpeechModel) -> list[RecurrentCell]:
    """All cells of a model, the listener's first."""
    return [module for module in model.modules() if isinstance(module, RecurrentCell)]


def card(model: SpeechModel) -> str:
    """The name of the listener's kind of cell."""
    return type(cells(model)[0]).__module__.rpartition(".")[2]
