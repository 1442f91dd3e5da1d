"""What is looked at: a model, the update that it is about to make, and utterances to show it on."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from las import randomness
from las.analysis import objective
from las.analysis.objective import Objective
from las.analysis.preserving import preserved
from las.batches import Batch
from las.errors import ConfigError, NumericalError
from las.loss import LabelSmoothedCrossEntropy
from las.model import ListenAttendSpell
from las.normalisation import RunningMoments
from las.updates import Updates

DRAWS = ("frozen", "off")
"""What becomes of dropout, noise and sampling in a probe: drawn once and the same in every evaluation, or none."""


class Subject(NamedTuple):
    """A training as it stands before update number `step`."""

    updates: Updates
    step: int
    batches: Sequence[Batch]
    """Of that update, on the model's device."""
    examples: Batch
    """Utterances to look at beside them, on the model's device."""
    symbols: Sequence[str]
    """Of the tokens."""
    draws: str
    """One of `DRAWS`."""

    @property
    def model(self) -> ListenAttendSpell:
        """Raises ConfigError for a model of another kind."""
        model = self.updates.model
        if not isinstance(model, ListenAttendSpell):
            raise ConfigError(f"a {type(model).__name__} has neither listener nor speller to look at")
        return model

    def objective(self) -> Objective:
        """Mean cross-entropy per target token of the update's batches, true tokens fed, without label smoothing.

        Batch norm takes the statistics of the batch. SpecAugment's masks are left out.
        """
        return Objective(self.model.named_parameters(), lambda: self._loss(self.batches))

    def _loss(self, batches: Sequence[Batch]) -> Tensor:
        self.model.train(self.draws == "frozen")
        for module in self.model.modules():
            if isinstance(module, RunningMoments):
                module.train()
        randomness.seed_update(self.updates.seed, self.step, 0)
        plain = LabelSmoothedCrossEntropy()
        sums = [
            plain(self.model(batch.waveforms, batch.num_samples, batch.targets).logits, batch.targets, batch.num_tokens)
            for batch in batches
        ]
        return torch.stack([each.loss for each in sums]).sum() / sum(int(each.tokens) for each in sums)


class Moved(NamedTuple):
    """Where an update leads: the trained parameters after it, and how far that is."""

    point: list[Tensor]
    distance: float
    learning_rate: float


def real_update(subject: Subject) -> Moved:
    """The training's own next update, clipping and optimiser included, made and taken back.

    Raises NumericalError when its loss or gradient is not finite.
    """
    of, optimiser = subject.objective(), subject.updates.optimiser
    before = of.point()
    with preserved(subject.model, optimiser):
        update = subject.updates(subject.batches, subject.step)
        if not update.finite:
            raise NumericalError(
                f"update {subject.step} is not finite (loss {update.loss}, norm of the gradient {update.norm}): there "
                "is nothing to measure. Choose another checkpoint"
            )
        after = of.point()
    return Moved(after, objective.norm(objective.minus(after, before)), float(optimiser.param_groups[0]["lr"]))
