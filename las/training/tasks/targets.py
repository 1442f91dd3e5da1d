"""Targets of a training: their source, and what belongs to it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from las.data.loader import Targets
from las.hmm.lexicon import Lexicon
from las.hmm.tying import TiedStates


class TrainingTargets(NamedTuple):
    """Source of targets with what belongs to it.

    >>> import las
    >>> from las.training.tasks.targets import TrainingTargets
    >>> TrainingTargets(las.Characters("ab")).state
    {}
    """

    source: Targets
    origin: Mapping[str, str] = {}
    """Properties that are compared when a training goes on (`las.storage.run_directory.KINDS`)."""
    lexicon: Lexicon | None = None
    """The dictionary whose phones the model predicts; None for a model of the corpus's own tokens."""
    tied: TiedStates | None = None
    """Tied states of triphones that the model predicts; None for those of phones."""
    missing: frozenset[str] = frozenset()
    """Ids of training utterances without targets."""
    remarks: Sequence[str] = ()
    """Lines for the log."""

    @property
    def state(self) -> dict[str, Any]:
        """Parts that a recogniser needs beside tokens, as plain JSON values for checkpoints."""
        parts = {"lexicon": self.lexicon, "tying": self.tied}
        return {name: part.state() for name, part in parts.items() if part is not None}
