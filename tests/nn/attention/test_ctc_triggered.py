"""Attention triggered by CTC against all alignments, one by one."""

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import las
from las.nn import ctc
from las.nn.attention.ctc_triggered import CTCTriggeredAttention, next_trigger
from las.nn.ctc_prefix import CTCPrefixes, tables

VOCAB = 3


def log_probs_of(states: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(1, states, VOCAB, generator=generator, dtype=torch.float64)).log_softmax(-1)


def collapsed(path: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(symbol for symbol, _ in itertools.groupby(path) if symbol)


def trigger_by_hand(probs: list[list[float]], prefix: tuple[int, ...]) -> int:
    """The first state at which alignments that have just gone on are as probable as those that have not."""
    begun = 0.0
    for state in range(len(probs)):
        still = 0.0
        for path in itertools.product(range(VOCAB), repeat=state + 1):
            probability = 1.0
            for of_state, symbol in zip(probs, path, strict=False):
                probability *= of_state[symbol]
            if collapsed(path) == prefix:
                still += probability
            elif collapsed(path[:-1]) == prefix and len(collapsed(path)) == len(prefix) + 1:
                begun += probability
        if begun > 0 and begun >= still:
            return state
    return len(probs)


@given(states=st.integers(1, 6), prefix=st.lists(st.integers(1, VOCAB - 1), max_size=3), seed=st.integers(0, 999))
def test_the_trigger_of_a_prefix_is_that_of_all_its_alignments(states: int, prefix: list[int], seed: int) -> None:
    log_probs = log_probs_of(states, seed)
    prefixes = CTCPrefixes(*tables(log_probs, torch.tensor([states])))
    state = prefixes.start()
    for token in (0, *prefix):
        state = prefixes.follow(state, torch.tensor([[token]]))
    found = int(next_trigger(log_probs, state))
    assert found == trigger_by_hand(log_probs[0].exp().tolist(), tuple(prefix))
    later = log_probs_of(states, seed + 1)
    later[:, : found + 1] = log_probs[:, : found + 1]  # what comes after the trigger does not move it
    state = (prefixes := CTCPrefixes(*tables(later, torch.tensor([states])))).start()
    for token in prefix:
        state = prefixes.follow(state, torch.tensor([[token]]))
    assert int(next_trigger(later, state)) == found


def test_tokens_see_up_to_their_forced_alignment_and_the_end_sees_all() -> None:
    """Of 8 states, and of one, which is too few for the tokens."""
    torch.manual_seed(2)
    attention, head = CTCTriggeredAttention(3, 5, key_size=4, lookahead=1), las.CTC(5, VOCAB)
    attention.use_ctc(head)
    encoded, targets = torch.randn(2, 8, 5), torch.tensor([[1, 1, 2], [2, 1, 0]])
    memory = attention.prepare(encoded, torch.tensor([8, 1]))
    state = attention.forced_state(memory, targets)
    begins = [begin for begin, _ in ctc.align(head(encoded)[0], [1, 1, 2])]
    for number, last in enumerate([*(begin + 1 for begin in begins), 8]):
        state = attention.told(targets[:, number - 1 : number] if number else targets[:, :1] * 0, memory, state)
        context, weights, state = attention.attend(torch.randn(2, 1, 3), memory, state)
        assert weights[0, 0].nonzero().flatten().tolist() == list(range(min(last + 1, 8)))
        assert weights[1, 0].nonzero().flatten().tolist() == [0]
        torch.testing.assert_close(context, weights @ memory.values)
