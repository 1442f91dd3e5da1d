"""Greedy search with monotonic attention, state by state: for transcribing while somebody speaks.

A token is written where the attention stops, as by greedy search over the whole utterance: the speller asks each
encoded state that comes whether it is the next stop, and asks it again after a token, as two may stop at one state. The
end symbol ends a sentence: the next state begins another one. What a search over the whole writes behind the last stop,
where there is nothing to attend to, is not written.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from las.decoding.ctc_stream import NEVER, CTCHypothesis, StreamState
from las.decoding.search import LengthLimit
from las.nn.attention.mocha import MonotonicChunkwiseAttention
from las.nn.speller import Speller, SpellerState


class Spelled(NamedTuple):
    """What goes from state to state: the speller's state, its last token, and encoded states that a chunk may read."""

    speller: SpellerState | None
    token: int
    window: Float[Tensor, "states value"]
    num_states: int
    num_tokens: int


class AttentionPath:
    """The most probable token at each stop, as many as `limits` allow for the states of a sentence so far."""

    reads_ctc = False

    def __init__(self, speller: Speller, attention: MonotonicChunkwiseAttention, limits: LengthLimit) -> None:
        self.speller, self.attention, self.limits = speller, attention, limits

    @torch.no_grad()
    def step(self, state: StreamState, encoded: Float[Tensor, " value"]) -> StreamState:
        """Return the state after one more encoded state."""
        spelled = state.carried or Spelled(None, Speller.boundary, encoded.new_zeros(0, len(encoded)), 0, 0)
        window = torch.cat([spelled.window, encoded.unsqueeze(0)])[-self.attention.chunk_size :]
        memory = self.attention.prepare(window.unsqueeze(0), torch.tensor([len(window)]))
        before, token = spelled.speller or self.speller.start(memory), spelled.token
        num_states, num_tokens = spelled.num_states + 1, spelled.num_tokens
        (path,), has_ended = (each.path for each in state.hypotheses), False
        (limit,) = self.limits(torch.tensor([num_states]))
        while num_tokens < limit and not has_ended:
            here = before._replace(attention=self.attention.stopped_at_last(memory))
            log_probs, after = self.speller.step(torch.full((1, 1), token, device=encoded.device), memory, here)
            if not after.attention.any():
                break
            before, token = after, int(log_probs.argmax())
            has_ended, num_tokens = token == Speller.boundary, num_tokens + 1
            if not has_ended:
                path = path.write(token, float(log_probs[0, 0, token]), state.num_states)
        tokens = tuple(span.token for span in path.spans)
        hypothesis = CTCHypothesis(tokens, path.score, NEVER, path)
        silent = state.num_blank + 1 if num_tokens == spelled.num_tokens else 0
        carried = Spelled(before, token, window, num_states, num_tokens)
        return StreamState((hypothesis,), state.num_states + 1, silent, has_ended, carried)
