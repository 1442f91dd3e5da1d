"""CTC prefix scores: what a full enumeration of paths gives, whatever is in the batch with it."""

import itertools
import math

import pytest
import torch
from kernel_cases import compiles
from torch import Tensor

from las.decoding.scorers.base import SearchStep, reorder
from las.decoding.scorers.ctc_prefix import CTCPrefixScorer
from las.nn.ctc_prefix import CompiledCTCPrefixes, CTCPrefixes, PrefixState, tables


class Heard:
    """A decoder of which only CTC matters."""

    def __init__(self, log_probs: Tensor) -> None:
        self.log_probs = log_probs

    def ctc_log_probs(self) -> Tensor:
        return self.log_probs


def random(seed: int, batch: int, states: int, vocab: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(batch, states, vocab, generator=generator, dtype=torch.float64)).log_softmax(-1)


def written(path: tuple[int, ...]) -> tuple[int, ...]:
    """What a path over states spells."""
    return tuple(symbol for symbol, _ in itertools.groupby(path) if symbol)


def prefix_probabilities(log_probs: Tensor) -> tuple[dict, dict]:
    """By enumeration of all paths: the probability of every text, and of every beginning of one."""
    states, vocab = log_probs.shape
    whole: dict[tuple[int, ...], float] = {}
    begins: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(vocab), repeat=states):
        probability = math.exp(sum(float(log_probs[state, symbol]) for state, symbol in enumerate(path)))
        text = written(path)
        whole[text] = whole.get(text, 0.0) + probability
        for length in range(len(text) + 1):
            begins[text[:length]] = begins.get(text[:length], 0.0) + probability
    return whole, begins


def follow(log_probs: Tensor, num_states: list[int], tokens: tuple[int, ...]) -> Tensor:
    """The scores of every symbol after each beginning of a text, [batch, tokens + 1, vocab]."""
    scoring = CTCPrefixScorer(0.3).on(Heard(log_probs), torch.tensor(num_states))
    state, rows = scoring.start(), []
    for token in [*tokens, None]:
        scores, state = scoring.score(state, SearchStep(log_probs[:, :1], None))
        rows.append(scores[:, 0])
        if token is not None:
            state = scoring.advance(state, torch.full((len(log_probs), 1), token))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize(("states", "vocab"), [(1, 3), (2, 2), (4, 3), (5, 3), (3, 4)])
def test_sums_of_scores_are_the_probabilities_of_texts_and_of_their_beginnings(states, vocab):
    log_probs = random(states, 1, states, vocab)
    whole, begins = prefix_probabilities(log_probs[0])
    for length in range(states + 2):
        for text in itertools.product(range(1, vocab), repeat=length):
            scores = follow(log_probs, [states], text)[0]
            so_far = float(sum(scores[place, token] for place, token in enumerate(text)))
            if begins.get(text, 0.0) == 0.0:
                assert so_far == -math.inf
                continue
            assert math.exp(so_far) == pytest.approx(begins[text], rel=1e-9)
            end = math.exp(so_far + float(scores[-1, 0]))
            assert end == pytest.approx(whole.get(text, 0.0), rel=1e-9)


def test_long_audio_with_sure_symbols_loses_no_digits():
    """1,000 states of near certainty: forward variables far from the text are below the least float64."""
    states = 1000
    path = [1 + (state // 2) % 3 if state % 2 else 0 for state in range(states)]
    log_probs = torch.full((1, states, 4), -20.0, dtype=torch.float64)
    log_probs[0, range(states), path] = math.log1p(-3 * math.exp(-20))
    text = written(tuple(path))
    scores = follow(log_probs, [states], text)[0]
    assert torch.isfinite(scores[range(len(text) + 1), [*text, 0]]).all()
    total = float(scores[range(len(text) + 1), [*text, 0]].sum())
    loss = torch.nn.functional.ctc_loss(
        log_probs.transpose(0, 1), torch.tensor([text]), torch.tensor([states]), torch.tensor([len(text)]), 0, "sum"
    )
    assert total == pytest.approx(-float(loss), abs=1e-9)


def test_an_utterance_does_not_depend_on_padding_or_order():
    log_probs = random(8, 3, 20, 5)
    num_states = torch.tensor([20, 13, 1])
    damaged = log_probs.clone()
    damaged[1, 13:] = math.nan
    damaged[2, 1:] = math.inf
    scoring = CTCPrefixScorer(0.3).on(Heard(damaged), num_states)
    state = scoring.start()
    parents = torch.zeros(3, 2, dtype=torch.long)
    tokens = torch.tensor([[1, 2], [2, 4], [3, 1]])
    state = scoring.advance(reorder(state, parents), tokens)
    together, _ = scoring.score(state, SearchStep(log_probs, None))
    for row, count in enumerate(num_states.tolist()):
        for beam in range(2):
            alone = follow(log_probs[row : row + 1, :count], [count], (int(tokens[row, beam]),))[0, 1]
            assert torch.allclose(together[row, beam], alone, rtol=1e-12)
    rows = torch.tensor([2, 0])
    fewer, _ = scoring.select_utterances(rows).score(
        type(state)(*(part[rows] for part in state)), SearchStep(log_probs, None)
    )
    assert torch.equal(fewer, together[rows])
    assert type(scoring.select_utterances(rows).prefixes) is type(scoring.prefixes), "compiled as the whole batch is"


def assert_states_are_equal(one: PrefixState, other: PrefixState) -> None:
    for part, expected in zip(one, other, strict=True):
        torch.testing.assert_close(part, expected, rtol=1e-9, atol=1e-9)


@compiles
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("states", "vocab", "beams"), [(1, 2, 1), (7, 5, 3), (90, 29, 8), (300, 11, 20)])
def test_the_compiled_loops_equal_the_operations(states: int, vocab: int, beams: int, threads: int) -> None:
    log_probs = random(5, 4, states, vocab)
    log_probs[1, :, vocab // 2] = -math.inf
    log_probs[2, states // 2] = math.nan
    made = tables(log_probs, torch.tensor([states, states, max(1, states - 2), states // 2]))
    reference, compiled = CTCPrefixes(*made), CompiledCTCPrefixes(*made)
    state, generator = reference.start(), torch.Generator().manual_seed(7)
    assert_states_are_equal(compiled.start(), state)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for _ in range(6):
            torch.testing.assert_close(compiled.score(state), reference.score(state), rtol=1e-9, atol=1e-9)
            parents = torch.randint(state.last.shape[1], (4, beams), generator=generator)
            tokens = torch.randint(1, vocab, (4, beams), generator=generator)
            state = reorder(state, parents)
            after = compiled.advance(state, tokens)
            state = reference.advance(state, tokens)
            assert_states_are_equal(after, state)
    finally:
        torch.set_num_threads(before)
