"""States of phones: three from left to right, each with its own distribution (pdf), and the scores of transitions.

    entry -> s0 -> s1 -> s2 -> exit, each with a loop, and a skip from s0 to s2

The default scores are the time distortion penalties of RWTH's systems (i6_core's defaults, -log): speech loops cost
3 and skips 30; silence loops cost nothing, moves forward 3 and its exit 20. They weigh one frame more or less of a
phone against the acoustic scores. In forced alignment they matter where silence is optional.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from las.hmm.lexicon import Lexicon, require_phone

NUM_STATES = 3


class TransitionCosts(NamedTuple):
    """Costs (-log) of staying in a state, of the next one, of leaving out the middle one, of leaving the phone."""

    loop: float
    forward: float
    skip: float
    exit: float


SPEECH = TransitionCosts(loop=3.0, forward=0.0, skip=30.0, exit=0.0)
PAUSE = TransitionCosts(loop=0.0, forward=3.0, skip=math.inf, exit=20.0)


EDGE = "<edge>"
"""Neighbour of the first and the last phone of an utterance, where there is no silence."""


class Triphone(NamedTuple):
    """A phone between its neighbours; None for a neighbour that makes no difference."""

    left: str | None
    phone: str
    right: str | None


@runtime_checkable
class StateNumbering(Protocol):
    """Numbering of states of phones in their contexts: of monophones `Topology`, of triphones `tying.TiedStates`."""

    @property
    def topology(self) -> "Topology":
        """The phones and their transition costs, whatever their neighbours."""

    @property
    def num_pdfs(self) -> int:
        """Number of distributions."""

    def owners(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of the phone and of the state that each pdf belongs to, [pdfs] each."""

    @property
    def content_hash(self) -> str:
        """Hash (sha256, hex) of the numbering."""

    def in_context(self, triphone: Triphone, where: str = "topology") -> tuple[int, ...]:
        """Return the pdfs of the states of a phone between its neighbours. Raises DataError for an unknown phone."""

    def costs(self, phone: str) -> TransitionCosts:
        """Transition costs of a phone."""

    def neighbour(self, phone: str | None) -> str | None:
        """Name under which neighbours see a phone, or the edge of the utterance (None); None if they do not see it."""


class Topology:
    """Numbering of the states of all phones: the pdf of state s of phone number p is 3 p + s.

    Args:
        phones: names of phones.
        silences: those of them that are silence.
        speech, pause: transition costs of the others, and of silence.

    >>> from las.hmm.topology import Topology
    >>> topology = Topology(["SIL", "AH", "B"], silences=["SIL"])
    >>> topology.num_pdfs, topology.pdfs("AH"), topology.name(5)
    (9, (3, 4, 5), 'AH.2')
    """

    def __init__(
        self,
        phones: Sequence[str],
        silences: Sequence[str] = (),
        speech: TransitionCosts = SPEECH,
        pause: TransitionCosts = PAUSE,
    ) -> None:
        self.phones = tuple(phones)
        self.silences = tuple(silences)
        self.speech, self.pause = speech, pause
        for phone in self.silences:
            require_phone(phone, self.phones, "silence")

    @classmethod
    def of_lexicon(cls, lexicon: Lexicon) -> "Topology":
        return cls(lexicon.phones, [] if lexicon.silence is None else [lexicon.silence])

    @property
    def topology(self) -> "Topology":
        return self

    @property
    def num_pdfs(self) -> int:
        return NUM_STATES * len(self.phones)

    def owners(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        phones, states = np.divmod(np.arange(self.num_pdfs), NUM_STATES)
        return phones, states

    def pdfs(self, phone: str, where: str = "topology") -> tuple[int, ...]:
        """Return the pdfs of the states of a phone. Raises DataError with the nearest phones for an unknown one."""
        first = NUM_STATES * require_phone(phone, self.phones, where)
        return tuple(range(first, first + NUM_STATES))

    def in_context(self, triphone: Triphone, where: str = "topology") -> tuple[int, ...]:
        return self.pdfs(triphone.phone, where)

    def neighbour(self, phone: str | None) -> str | None:
        """None: monophones do not see their neighbours."""
        return None

    def costs(self, phone: str) -> TransitionCosts:
        return self.pause if phone in self.silences else self.speech

    def name(self, pdf: int) -> str:
        """Return the name of a pdf: phone and state."""
        return f"{self.phones[pdf // NUM_STATES]}.{pdf % NUM_STATES}"

    @property
    def content_hash(self) -> str:
        """Hash (sha256, hex) of the numbering of states; the costs are not part of it."""
        return hashlib.sha256(json.dumps([NUM_STATES, self.phones]).encode()).hexdigest()
