"""Attention triggered by CTC (Moritz et al. 2019): a token reads the states up to its CTC spike, and a few ahead.

energy_s = v . tanh(W query + V encoded_s + b)   as in `additive`, for s <= trigger + lookahead

While training, the trigger of a token is its first state on the best path of CTC for the true tokens (Viterbi). A
search does not know the next token: it follows the forward variables of the tokens g so far (`las.nn.ctc_prefix`), by

    begun_t(g) = sum over s <= t of the probability that a token after g begins in state s
    trigger    = the first t at which begun_t(g) is at least the probability that the output up to t is g

which reads no state behind it, and is another one for each hypothesis. The end of the sentence reads all states.
"""

from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.config.build import require
from las.nn import ctc
from las.nn.attention.additive import AdditiveAttention
from las.nn.attention.base import AttentionMemory, Context, Encoded, Keys, Query, State, Weights
from las.nn.ctc_prefix import CTCPrefixes, PrefixState, tables
from las.nn.normalisation import masked_softmax
from las.runtime.errors import ConfigError


class Triggers(NamedTuple):
    """The triggers of the tokens that are still to be written, the next one first."""

    states: Int[Tensor, "batch beam tokens"]


class CTCTriggeredAttention(AdditiveAttention):
    """Additive attention to the states up to a trigger of the model's CTC head, which it needs.

    The last columns of the keys are the log-probabilities of CTC. The state is the `PrefixState` of each hypothesis,
    or the `Triggers` that follow while training.

    Args:
        key_size: size of the space in which query and states are compared.
        lookahead: states behind the trigger that are read, too.
    """

    one_graph = False  # while training, triggers are found on the host

    def __init__(self, query_size: int, value_size: int, *, key_size: int = 128, lookahead: int = 2) -> None:
        super().__init__(query_size, value_size, key_size=key_size)
        require("lookahead", lookahead, 0)
        self.lookahead = lookahead
        self._ctc: tuple[ctc.CTC, ...] = ()  # in a tuple: it is a part of the model, not of the attention

    def use_ctc(self, head: nn.Module | None) -> None:
        if head is None:
            raise ConfigError(
                "attention: the triggers of a CTCTriggeredAttention come from CTC, which this model does not have: "
                "choose loss=joint_ctc"
            )
        self._ctc = (cast(ctc.CTC, head),)

    def prepare_keys(self, encoded: Encoded) -> Keys:
        with torch.no_grad():
            log_probs = self._ctc[0].output(encoded).log_softmax(-1)
        return torch.cat([super().prepare_keys(encoded), log_probs], dim=-1)

    def initial_state(self, memory: AttentionMemory) -> State:
        return self._prefixes(memory).start()

    @torch.no_grad()
    def forced_state(self, memory: AttentionMemory, targets: Int[Tensor, "batch tokens"]) -> State:
        if not self.training:
            return self.initial_state(memory)
        (batch, states), device = memory.mask.shape, targets.device
        log_probs, num_states = self._log_probs(memory).cpu(), memory.mask.sum(1).tolist()  # Viterbi runs on the host
        triggers = torch.full((batch, 1, targets.shape[1] + 1), states)
        for row, tokens in enumerate(targets.tolist()):
            true = [token for token in tokens if token != ctc.BLANK]
            try:
                spans = ctc.align(log_probs[row, : num_states[row]], true)
            except ValueError:  # too few states to write the tokens: each reads all
                continue
            triggers[row, 0, : len(true)] = torch.tensor([begin for begin, _ in spans])
        return Triggers(triggers.to(device, non_blocking=True))

    def told(self, tokens: Int[Tensor, "batch beam"], memory: AttentionMemory, state: State) -> State:
        return state if isinstance(state, Triggers) else self._prefixes(memory).follow(state, tokens)

    def attend(self, query: Query, memory: AttentionMemory, state: State) -> tuple[Context, Weights, State]:
        if isinstance(state, Triggers):
            trigger, state = state.states[..., 0], Triggers(state.states.roll(-1, dims=-1))
        else:
            trigger = next_trigger(self._log_probs(memory), state)
        places = torch.arange(memory.mask.shape[1], device=trigger.device)
        seen = memory.mask.unsqueeze(1) & (places <= trigger.unsqueeze(-1) + self.lookahead)
        energy = self.energy(query, memory.keys[..., : self.key.out_features], seen.to(query.dtype))
        weights = masked_softmax(energy, seen)
        return torch.matmul(weights, memory.values), weights, state

    def _log_probs(self, memory: AttentionMemory) -> Float[Tensor, "batch states vocab"]:
        return memory.keys[..., self.key.out_features :]

    def _prefixes(self, memory: AttentionMemory) -> CTCPrefixes:
        return CTCPrefixes(*tables(self._log_probs(memory).detach(), memory.mask.sum(1)))


def next_trigger(log_probs: Float[Tensor, "batch states vocab"], state: PrefixState) -> Int[Tensor, "batch beam"]:
    """Return the state at which the token after each prefix has probably begun; the number of states where none has."""
    probs = log_probs.to(state.in_blank.dtype).exp().transpose(1, 2)
    rows = torch.arange(len(probs), device=probs.device).unsqueeze(1)
    others = (1.0 - probs[:, ctc.BLANK]).unsqueeze(1).clamp(min=0.0)
    unlike = (others - probs[rows, state.last]).clamp(min=0.0)  # the last token again needs a blank before it
    beginning = torch.logaddexp(
        state.in_blank[..., :-1] + others.log(), state.in_symbol[..., :-1] + unlike.log()
    ).logcumsumexp(-1)
    still = torch.logaddexp(state.in_blank, state.in_symbol)[..., 1:]
    has_begun = (beginning >= still) & (beginning > -torch.inf)
    return torch.where(has_begun.any(-1), has_begun.long().argmax(-1), has_begun.shape[-1])
