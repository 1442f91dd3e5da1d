"""Searches of CTC state by state, whose own state is carried on: for transcribing while somebody speaks.

A hypothesis g has, after t states, the probability of all alignments of g that end in a blank, b_t(g), and of those
that end in its last symbol, n_t(g) (Graves 2012, section 7.5.2; Hannun et al. 2014, algorithm 1):

    b_t(g)   = p_t(blank) (b_{t-1}(g) + n_{t-1}(g))
    n_t(g)   = p_t(c) n_{t-1}(g) + p_t(c) phi_{t-1}         c the last symbol of g = h c
    phi_t    = b_t(h) + n_t(h)                              without n where c is the last symbol of h

The search over whole utterances (`las.nn.ctc_prefix`) reads all states for each symbol; this one reads each state once,
and keeps the `size` most probable hypotheses. `BestPath` keeps the most probable symbol of each state.

Tokens that all hypotheses begin with cannot change any more: they are final, and whoever keeps the state may drop them.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from las.nn.ctc import BLANK

NEVER = -math.inf
CANDIDATES, FAINTEST = 40, -12.0
"""Symbols that may follow in a state: so many of the most probable ones, those above a log-probability."""


class TokenSpan(NamedTuple):
    """A token with its first state and the one after its last on the best path, and its highest probability there."""

    token: int
    start: int
    end: int
    probability: float


class Path(NamedTuple):
    """The most probable single alignment of a hypothesis, of those that end in a blank or of the others."""

    score: float = NEVER
    spans: tuple[TokenSpan, ...] = ()

    def stay(self, log_prob: float, state: int) -> "Path":
        """Return the path after one more state of its last symbol."""
        last = self.spans[-1]
        longer = last._replace(end=state + 1, probability=max(last.probability, math.exp(log_prob)))
        return Path(self.score + log_prob, (*self.spans[:-1], longer))

    def write(self, token: int, log_prob: float, state: int) -> "Path":
        """Return the path after another symbol."""
        return Path(self.score + log_prob, (*self.spans, TokenSpan(token, state, state + 1, math.exp(log_prob))))


class CTCHypothesis(NamedTuple):
    """A hypothesis: log b_t and log n_t, and the best path of each."""

    tokens: tuple[int, ...] = ()
    in_blank: float = NEVER
    in_symbol: float = NEVER
    to_blank: Path = Path()
    to_symbol: Path = Path()

    @property
    def score(self) -> float:
        return _added(self.in_blank, self.in_symbol)

    @property
    def path(self) -> Path:
        """The best path."""
        return max(self.to_blank, self.to_symbol)

    def shortened(self, count: int) -> "CTCHypothesis":
        """Return the hypothesis without its first tokens."""
        paths = (Path(path.score, path.spans[count:]) for path in (self.to_blank, self.to_symbol))
        return CTCHypothesis(self.tokens[count:], self.in_blank, self.in_symbol, *paths)


class StreamState(NamedTuple):
    """The hypotheses, best first, after this many states, the last `num_blank` of which were most probably blanks;
    whether a sentence has ended, and what else a search carries on.
    """

    hypotheses: tuple[CTCHypothesis, ...] = (CTCHypothesis((), 0.0, NEVER, Path(0.0)),)
    num_states: int = 0
    num_blank: int = 0
    has_ended: bool = False
    carried: Any = None

    @property
    def num_final(self) -> int:
        """Tokens that all hypotheses begin with."""
        first, *others = (each.tokens for each in self.hypotheses)
        for other in others:
            same = min(len(first), len(other))
            first = first[: next((i for i in range(same) if first[i] != other[i]), same)]
        return len(first)

    def dropped(self, count: int) -> "StreamState":
        """Return the state without the first tokens, which are final and not the last ones."""
        return self._replace(hypotheses=tuple(each.shortened(count) for each in self.hypotheses))

    def restarted(self) -> "StreamState":
        """Return the state of a search that begins here."""
        return StreamState(num_states=self.num_states)


@runtime_checkable
class StreamSearch(Protocol):
    """A search that reads each state once: the log-probabilities of CTC there, or the encoded state itself."""

    reads_ctc: bool

    def step(self, state: StreamState, row: Tensor, /) -> StreamState:
        """Return the state after one more row, [vocab] on the CPU with `reads_ctc`, else [value]."""


class BestPath:
    """The most probable symbol of each state; repeated ones are one, blanks none (Graves et al. 2006, section 3.2)."""

    reads_ctc = True

    def step(self, state: StreamState, log_probs: Tensor) -> StreamState:
        symbol = int(log_probs.argmax())
        log_prob, now = float(log_probs[symbol]), state.num_states
        (before,) = state.hypotheses
        path, in_blank = before.path, before.in_blank > NEVER
        if symbol == BLANK:
            path = Path(path.score + log_prob, path.spans)
        elif not in_blank and path.spans and path.spans[-1].token == symbol:
            path = path.stay(log_prob, now)
        else:
            path = path.write(symbol, log_prob, now)
        tokens = tuple(span.token for span in path.spans)
        if symbol == BLANK:
            return StreamState((CTCHypothesis(tokens, path.score, NEVER, path),), now + 1, state.num_blank + 1)
        return StreamState((CTCHypothesis(tokens, NEVER, path.score, Path(), path),), now + 1, 0)


class PrefixBeam:
    """The `size` most probable hypotheses.

    >>> import math, torch
    >>> from las.decoding.ctc_stream import PrefixBeam, StreamState
    >>> search, state = PrefixBeam(4), StreamState()
    >>> for log_probs in torch.tensor([[0.6, 0.4], [0.6, 0.4]]).log():  # two blanks: 0.36, one token or two: 0.64
    ...     state = search.step(state, log_probs)
    ...
    >>> [(each.tokens, round(math.exp(each.score), 2)) for each in state.hypotheses]
    [((1,), 0.64), ((), 0.36)]
    """

    reads_ctc = True

    def __init__(self, size: int) -> None:
        self.size = size

    def step(self, state: StreamState, log_probs: Tensor) -> StreamState:
        now, highest = state.num_states, log_probs.topk(min(CANDIDATES, len(log_probs)))
        best = zip(highest.indices.tolist(), highest.values.tolist(), strict=True)
        candidates = [(token, score) for token, score in best if token != BLANK and score > FAINTEST]
        blank = float(log_probs[BLANK])
        found: dict[tuple[int, ...], CTCHypothesis] = defaultdict(CTCHypothesis)

        def enter(tokens: tuple[int, ...], score: float, path: Path) -> None:
            old = found[tokens]
            in_symbol = _added(old.in_symbol, score)
            found[tokens] = old._replace(tokens=tokens, in_symbol=in_symbol, to_symbol=max(old.to_symbol, path))

        for each in state.hypotheses:
            path = each.path
            stayed = Path(path.score + blank, path.spans)
            found[each.tokens] = found[each.tokens]._replace(
                tokens=each.tokens, in_blank=each.score + blank, to_blank=stayed
            )
            for token, log_prob in candidates:
                is_last = bool(each.tokens) and each.tokens[-1] == token
                if is_last and each.in_symbol > NEVER:
                    enter(each.tokens, each.in_symbol + log_prob, each.to_symbol.stay(log_prob, now))
                score, path_before = (each.in_blank, each.to_blank) if is_last else (each.score, path)
                if score > NEVER:
                    enter((*each.tokens, token), score + log_prob, path_before.write(token, log_prob, now))
        ranked = sorted(found.values(), key=lambda each: (-each.score, each.tokens))
        is_blank = not candidates or blank >= candidates[0][1]
        return StreamState(tuple(ranked[: self.size]), now + 1, state.num_blank + 1 if is_blank else 0)


def _added(one: float, other: float) -> float:
    """Return log(exp(one) + exp(other))."""
    high, low = max(one, other), min(one, other)
    return high if low == NEVER else high + math.log1p(math.exp(low - high))


def token_spans(state: StreamState) -> Sequence[TokenSpan]:
    """Return the tokens of the best hypothesis with their places."""
    return state.hypotheses[0].path.spans
