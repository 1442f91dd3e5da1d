"""Greedy and beam search over any decoder with `start` and `step` (`las.decoding.base.Decoder`).

A decoder gives the log-probabilities of the next symbol; a search gives, for every utterance of the batch, its best
complete hypotheses. Three promises hold for both searches:

- every hypothesis is complete: its score contains the end symbol, so it equals the teacher-forced log-probability of
  its tokens, also when the length limit left no other choice;
- the result of an utterance does not depend on the other utterances of its batch;
- no utterance is left without a hypothesis, whatever the decoder returns.

Scores are summed in float64: sums of float32 log-probabilities are then exact enough that two ways of adding the same
numbers agree, and near ties are decided by the model instead of by rounding.

`BeamSearch.__call__` is the loop; a compiled model without scorers computes all of it (`compiled_search`). Its step
depends on tensors alone, so that a GPU replays it from a CUDA graph (`las.nn.kernels.graphs.replayed`). The expansion
of the open hypotheses by one symbol is `las.decoding.beam_expansion`, and so is the record of the steps, from which the
hypotheses are read at the end; scorers and constraints are one call, `CombinedScorer.score`.
"""

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from las.config import sizes
from las.data.tokenizers import Tokenizer
from las.decoding.base import CanBePadded, CanDropUtterances, Decoder, HasAttention, Hypothesis
from las.decoding.beam_expansion import (
    Backtrace,
    BeamExpansion,
    BeamState,
    BeamStep,
    compiled_search,
    expansion_on,
    first_beams,
    possible,
)
from las.decoding.scorers import combined
from las.decoding.scorers.base import Constraint, Scorer, SearchStep, reorder, select_utterances
from las.decoding.scorers.combined import CombinedScorer
from las.nn.acoustic_model import FrameScores
from las.nn.kernels import choice
from las.nn.kernels.graphs import capture as graphs
from las.nn.kernels.graphs.replayed import Capture, Replayed, bucket
from las.runtime.errors import ArgumentError, NumericalError, first_of

STEPS_BETWEEN_CHECKS = 8
"""Steps on a GPU between two checks for finished utterances."""

MAX_UNFINISHED_SHARE = 0.75
"""Finished utterances are dropped from the tensors once at most this share of the batch is unfinished."""


class LengthLimit:
    """The greatest number of tokens of each utterance: `ratio` per encoded state, rounded up, and `max_length`.

    At least one token is always allowed. Raises ArgumentError for a limit that allows none.
    """

    def __init__(self, ratio: float, max_length: int | None) -> None:
        if not 0 < ratio < math.inf:
            raise ArgumentError(f"max_length_ratio={ratio} must be above 0, for example 1.0.")
        if max_length is not None and max_length < 1:
            raise ArgumentError(f"max_length={max_length} must be at least 1, or null for no limit of its own.")
        self.ratio = ratio
        self.max_length = math.inf if max_length is None else max_length

    def __call__(self, num_states: Tensor) -> list[int]:
        """Return the limits of utterances with `num_states` [batch] encoded states."""
        # Rounded before ceil: in binary, 0.07 * 100 is a little more than 7.
        lengths = [math.ceil(round(self.ratio * count, 6)) for count in num_states.tolist()]
        return [int(max(1, min(length, self.max_length))) for length in lengths]


class GreedySearch:
    """The most probable symbol at every step.

    The number of tokens is at most `max_length_ratio` times the number of encoded states (rounded up, at least 1), and
    at most `max_length` where that is given. Ties go to the lower token.
    """

    nbest = 1

    def __init__(self, max_length_ratio: float = 1.0, max_length: int | None = None) -> None:
        self.limits = LengthLimit(max_length_ratio, max_length)

    def __repr__(self) -> str:
        return f"GreedySearch(max_length_ratio={self.limits.ratio:g}, max_length={self.limits.max_length})"

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Do nothing: there are no scorers that need the tokenizer."""

    @torch.no_grad()
    def __call__(self, decoder: Decoder, num_states: Int[Tensor, " batch"]) -> list[list[Hypothesis]]:
        """One hypothesis per utterance. `num_states` lies on the decoder's device."""
        limits = self.limits(num_states)
        expansion, backtrace = expansion_on(num_states.device, decoder.eos, 1, 0.0), Backtrace(num_states)
        if (found := compiled_search(decoder, limits, expansion, self.nbest, combined.DECODER)) is not None:
            return found
        max_tokens = torch.tensor(limits, device=num_states.device).unsqueeze(1)
        capture = choice.capture_on(num_states.device)
        greedy = _Greedy(_padded(decoder, capture), max_tokens, expansion)
        step = _repeated("greedy search", _Greedy.extend, greedy, capture)
        with _turn(num_states.device, capture):
            state = SearchState.first(greedy.decoder, num_states, ())
            for index in range(max(limits) + 1):
                state, added = step(state)
                backtrace.add(added)
                if _is_time_to_check(index, state.beams.finished) and state.beams.finished.all():
                    break
            backtrace.end_all(state.beams, self.nbest)
        return backtrace.hypotheses(limits, [combined.DECODER])


class BeamSearch:
    """Beam search, all beams of all utterances as one batch.

    Hypotheses are ranked by score / length ** `length_normalisation`; the length counts the end symbol, 0 ranks by the
    score itself. Finished hypotheses stay in the beam and compete with the others. The beam grows from one to `size`
    hypotheses as continuations allow, so that a beam as wide as the space searches all of it; a beam of one is
    `GreedySearch`. At most `nbest` hypotheses are returned per utterance; limits and ties are those of `GreedySearch`,
    ties between beams go to the one that ranked higher before.

    Scorers add to the score of every symbol, constraints forbid symbols (`las.decoding.scorers`, configs/scorer):

        score = (1 - weight of ctc) log p(decoder) + sum over scorers of weight * score

    They are given by names of one's choice, under which their scores are reported: those of the package's options are
    `combined.PLACES`, which come first.

    >>> import las, torch
    >>> class Bigrams:
    ...     # Three symbols, of which 0 begins and ends, in a circle: each prefers the next one.
    ...     sos = eos = 0
    ...     def start(self):
    ...         return torch.zeros(2, 1)
    ...     def step(self, tokens, state):
    ...         return torch.eye(3).roll(1, 1)[tokens].log_softmax(-1), state
    ...
    >>> search = las.BeamSearch(4, nbest=2, length_reward=las.LengthReward(0.5))
    >>> nbest = search(Bigrams(), num_states=torch.tensor([4, 2]))
    >>> [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in nbest]
    [[[1, 2], [1, 2, 1, 2]], [[1, 2], [2]]]
    """

    def __init__(
        self,
        size: int = 8,
        length_normalisation: float = 1.0,
        nbest: int = 1,
        max_length_ratio: float = 1.0,
        max_length: int | None = None,
        **components: Scorer | Constraint | None,
    ) -> None:
        sizes.check("search.size", size)
        if size < 1:
            raise ArgumentError(f"size={size}: a beam needs at least one hypothesis, for example size=8.")
        if not 1 <= nbest <= size:
            raise ArgumentError(f"nbest={nbest} does not fit a beam of {size}: choose 1 to {size}.")
        if not 0 <= length_normalisation < math.inf:
            raise ArgumentError(
                f"length_normalisation={length_normalisation} must be 0 or more: 0 ranks by the log-probability,"
                " 1 by the log-probability per symbol."
            )
        self.size, self.length_normalisation, self.nbest = size, length_normalisation, nbest
        self.limits = LengthLimit(max_length_ratio, max_length)
        self.components = combined.scorer_set(components)

    def __repr__(self) -> str:
        scorers = [f"{name}={scorer.weight:g}" for name, scorer in self.components.scorers.items()]
        options = f"size={self.size}, length_normalisation={self.length_normalisation:g}, nbest={self.nbest}"
        return f"BeamSearch({', '.join([options, *scorers, *self.components.constraints])})"

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        """Prepare scorers and constraints for a recogniser of these tokens; `has_ctc` if it was trained with CTC.

        Raises ConfigError or DataError if one of them does not fit the recogniser.
        """
        for component in (*self.components.scorers.values(), *self.components.constraints.values()):
            component.bind(tokens, has_ctc)

    def reweighted(self, weights: Mapping[str, float], length_normalisation: float) -> "BeamSearch":
        """Return a copy of this search with other weights for some of its scorers, which remain bound."""
        scorers = {name: copy.copy(scorer) for name, scorer in self.components.scorers.items()}
        for name, weight in weights.items():
            scorers[name].weight = weight
        copied = copy.copy(self)
        copied.length_normalisation = length_normalisation
        copied.components = combined.scorer_set({**scorers, **self.components.constraints})
        return copied

    @torch.no_grad()
    def __call__(self, decoder: Decoder, num_states: Int[Tensor, " batch"]) -> list[list[Hypothesis]]:
        """Return the `nbest` best hypotheses per utterance, best first. `num_states` lies on the decoder's device."""
        limits = self.limits(num_states)
        expansion = expansion_on(num_states.device, decoder.eos, self.size, self.length_normalisation)
        if not any(self.components):
            found = compiled_search(decoder, limits, expansion, self.nbest, combined.DECODER)
            if found is not None:
                return found
        max_tokens = torch.tensor(limits, device=num_states.device).unsqueeze(1)
        capture = choice.capture_on(num_states.device)
        decoder = _padded(decoder, capture)
        scorer = self.components.on(decoder, num_states)
        backtrace = Backtrace(num_states)
        utterances = _Utterances(decoder, scorer, max_tokens, expansion)
        with _turn(num_states.device, capture):
            state, follow = SearchState.first(decoder, num_states, scorer.start()), utterances.following(capture)
            for index in range(max(limits) + 1):
                state, added = follow(state) if index else utterances.extend(state)
                backtrace.add(added)
                if _is_time_to_check(index, state.beams.finished):
                    # Drop the utterances whose n-best list cannot change any more.
                    is_finished = utterances.are_final(state, self.nbest)
                    num_finished, total = int(is_finished.sum()), len(is_finished)
                    if num_finished == total:
                        break
                    # On a GPU a few of them stay, so that other batches end with as many and share a graph.
                    num_kept = total - num_finished if capture is None else bucket(total - num_finished)
                    if num_kept <= MAX_UNFINISHED_SHARE * total and isinstance(utterances.decoder, CanDropUtterances):
                        order = is_finished.long().sort(stable=True).indices
                        kept, dropped = order[:num_kept].sort().values, order[num_kept:].sort().values
                        backtrace.end(dropped, state.beams, self.nbest)
                        backtrace.select_utterances(kept)
                        utterances, state = utterances.selected(kept), state.selected(kept)
                        follow = utterances.following(capture)
            backtrace.end_all(state.beams, self.nbest)
        return backtrace.hypotheses(limits, self.components.names)


class SearchState(NamedTuple):
    """The state of a search: the number of symbols, the beams, and the states of decoder and scorers."""

    step: Int[Tensor, ""]
    beams: BeamState
    decoder: Any
    scorer: Any

    @classmethod
    def first(cls, decoder: Decoder, num_states: Int[Tensor, " batch"], scorer: Any) -> "SearchState":
        step = torch.zeros((), dtype=torch.long, device=num_states.device)
        return cls(step, first_beams(decoder.sos, num_states), decoder.start(), scorer)

    def selected(self, rows: Int[Tensor, " selected"]) -> "SearchState":
        return SearchState(self.step, *select_utterances(self[1:], rows))


class _Greedy(NamedTuple):
    """The utterances of a greedy search, with the greatest number of tokens of each."""

    decoder: Any
    max_tokens: Int[Tensor, "batch 1"]
    expansion: BeamExpansion

    def extend(self, state: SearchState) -> tuple[SearchState, BeamStep]:
        """Return the most probable continuation of all utterances by one symbol."""
        beams, at_limit = state.beams, state.step >= self.max_tokens
        log_probs, decoder_state = self.decoder.step(beams.tokens, state.decoder)
        log_probs = possible(log_probs)
        beams, parents = self.expansion.extend(beams, log_probs, log_probs[:, :, self.decoder.eos], at_limit)
        scores = log_probs.gather(2, beams.tokens.unsqueeze(-1))
        added = BeamStep(beams.tokens, parents, scores.movedim(2, 0))
        return SearchState(state.step + 1, beams, decoder_state, ()), added


class _Utterances(NamedTuple):
    """The utterances that a beam search still extends, with the greatest number of tokens of each."""

    decoder: Any
    scorer: CombinedScorer
    max_tokens: Int[Tensor, "batch 1"]
    expansion: BeamExpansion

    def extend(self, state: SearchState) -> tuple[SearchState, BeamStep]:
        """Return the best continuations of all beams by one symbol."""
        # 1. Score every symbol that may come next in every beam.
        log_probs, decoder_state = self.decoder.step(state.beams.tokens, state.decoder)
        attention = self.decoder.weights(decoder_state) if isinstance(self.decoder, HasAttention) else None
        scores, scorer_state = self.scorer.score(state.scorer, SearchStep(possible(log_probs), attention))

        # 2. Replace the beams by their best continuations.
        ending = scores.total[:, :, self.decoder.eos]
        beams, parents = self.expansion.extend(state.beams, scores.allowed, ending, state.step >= self.max_tokens)
        added = BeamStep(beams.tokens, parents, scores.of(parents, beams.tokens))
        return SearchState(state.step + 1, beams, *reorder((decoder_state, scorer_state), parents)), added

    def follow(self, state: SearchState) -> tuple[SearchState, BeamStep]:
        """Do as `extend` does from the second symbol on: the scorers are told of the symbol before."""
        return self.extend(state._replace(scorer=self.scorer.advance(state.scorer, state.beams.tokens)))

    def following(self, capture: Capture | None) -> Callable[[SearchState], tuple[SearchState, BeamStep]]:
        return _repeated("beam search", _Utterances.follow, self, None if self.scorer.on_host else capture)

    def are_final(self, state: SearchState, nbest: int) -> Bool[Tensor, " batch"]:
        upper_bound = self.scorer.score_upper_bound(state.scorer, self.max_tokens + 1 - state.beams.lengths)
        return self.expansion.is_final(state.beams, nbest, self.max_tokens, upper_bound)

    def selected(self, rows: Int[Tensor, " selected"]) -> "_Utterances":
        scorer = self.scorer.select_utterances(rows)
        return _Utterances(self.decoder.select_utterances(rows), scorer, self.max_tokens[rows], self.expansion)


def _repeated(
    name: str, function: Callable[[Any, SearchState], tuple[SearchState, BeamStep]], parts: Any, capture: Capture | None
) -> Callable[[SearchState], tuple[SearchState, BeamStep]]:
    """Return the function of its state alone, with `capture` by replays of a graph."""
    return functools.partial(function, parts) if capture is None else Replayed(name, function, parts, capture)


def _turn(device: torch.device, capture: Capture | None) -> AbstractContextManager[None]:
    return nullcontext() if capture is None else graphs.turn(device, replays=True)


def _padded(decoder: Decoder, capture: Capture | None) -> Decoder:
    """Return a decoder whose step is captured once for many batches."""
    return decoder.padded() if capture is not None and isinstance(decoder, CanBePadded) else decoder


def _is_time_to_check(step: int, finished: Bool[Tensor, "batch beam"]) -> bool:
    """Return True on a CPU where a beam is finished, and at every eighth step on a GPU, where waiting costs more."""
    return bool(finished.any()) if finished.device.type == "cpu" else step % STEPS_BETWEEN_CHECKS == 0


def resized(search: object, size: int) -> BeamSearch:
    """Return a copy of a beam search with another number of hypotheses; for greedy search, a beam search of its limits.

    Raises ArgumentError for a size that cannot be, and for a search without hypotheses of a number.
    """
    if isinstance(search, GreedySearch):
        beam = BeamSearch(size)
        beam.limits = search.limits
        return beam
    if not isinstance(search, BeamSearch):
        raise ArgumentError(f"beam_size={size}: {search!r} has no beam of so many hypotheses: leave it out")
    BeamSearch(size)  # raises for a size that cannot be
    copied = copy.copy(search)
    copied.size, copied.nbest = size, min(search.nbest, size)
    return copied


def require_finite_scores(
    inputs: Any, num_states: Tensor, names: Sequence[str], nbest_lists: Sequence[Sequence[Hypothesis]]
) -> None:
    """Raise NumericalError, with the names of the utterances, where no path was found as scores are not numbers."""
    without_path = [row for row, hypotheses in enumerate(nbest_lists) if not math.isfinite(hypotheses[0].score)]
    if not without_path:
        return
    if isinstance(inputs, FrameScores):
        scores = inputs.log_posteriors
    else:
        scores, _ = inputs.step(num_states.new_full((len(names), 1), inputs.sos), inputs.start())
    broken = [names[row] for row in without_path if scores[row].isnan().any()]
    if broken:
        raise NumericalError(
            f"{first_of(broken, 5)}: the model's scores are not numbers (NaN), so that nothing is recognised: its "
            "parameters are broken or too large. Take another checkpoint, or train again with a lower optim.lr"
        )
