"""Models with CTC alone: the probabilities of texts, searches over them and alignments, by enumeration of all paths."""

import functools
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import las
from las.nn import ctc, losses
from las.nn.ctc import CTCOutput
from las.nn.ctc_model import CTCDecoder
from las.runtime.errors import ArgumentError, ConfigError

VOCAB = 4


def output(seed: int, num_states: list[int]) -> CTCOutput:
    draw = torch.Generator().manual_seed(seed)
    log_probs = (3 * torch.randn(len(num_states), max(num_states), VOCAB, generator=draw)).log_softmax(-1)
    return CTCOutput(log_probs, torch.tensor(num_states))


def spelled(path: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(token for token, _ in itertools.groupby(path) if token != ctc.BLANK)


def paths(log_probs: Tensor) -> dict[tuple[int, ...], float]:
    """The log-probability of every path."""
    rows = log_probs.tolist()
    return {
        path: sum(row[token] for row, token in zip(rows, path, strict=True))
        for path in itertools.product(range(VOCAB), repeat=len(rows))
    }


@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3))
@settings(max_examples=15, derandomize=True, deadline=None)
def test_steps_are_distributions_whose_product_is_the_probability_of_the_text(seed: int, lengths: list[int]) -> None:
    found = output(seed, [length + 4 for length in lengths])
    draw, num_tokens = torch.Generator().manual_seed(seed), torch.tensor(lengths)
    targets = torch.randint(1, VOCAB, (len(lengths), max(lengths)), generator=draw)
    targets = targets.masked_fill(torch.arange(max(lengths)) >= num_tokens.unsqueeze(1), 0)
    log_probs = CTCDecoder(found).forced(targets)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones_like(log_probs[..., 0]))
    sums = las.LabelSmoothedCrossEntropy()(log_probs, targets, num_tokens)
    torch.testing.assert_close(sums.cross_entropy.float(), ctc.loss(found, targets, num_tokens))


@pytest.mark.parametrize("seed", range(5))
def test_a_wide_search_finds_the_most_probable_text_which_may_be_on_no_best_path(seed: int) -> None:
    found = output(seed, [5, 3])
    best = las.BeamSearch(200, length_normalisation=0.0)(CTCDecoder(found), found.num_states)
    for row, length in enumerate(found.num_states.tolist()):
        texts: dict[tuple[int, ...], float] = {}
        for path, score in paths(found.log_probs[row, :length]).items():
            texts[spelled(path)] = texts.get(spelled(path), 0.0) + math.exp(score)
        text = max(texts, key=texts.__getitem__)
        assert tuple(best[row][0].tokens) == text
        assert math.exp(best[row][0].score) == pytest.approx(texts[text], rel=1e-5)


def test_scorers_and_fewer_utterances_do_not_change_the_others() -> None:
    found = output(3, [9, 2, 6])
    search = las.BeamSearch(4, length_normalisation=0.0, length_reward=las.LengthReward(0.5), nbest=2)
    together = search(CTCDecoder(found), found.num_states)
    for row, length in enumerate(found.num_states.tolist()):
        alone = CTCOutput(found.log_probs[row : row + 1, :length], torch.tensor([length]))
        ((best, second),) = search(CTCDecoder(alone), alone.num_states)
        assert [best.tokens, second.tokens] == [each.tokens for each in together[row]]
        assert best.score == pytest.approx(together[row][0].score)


@given(seed=st.integers(0, 1000), tokens=st.lists(st.integers(1, VOCAB - 1), max_size=3))
@settings(max_examples=40, derandomize=True, deadline=None)
def test_an_alignment_is_the_best_path_of_the_tokens(seed: int, tokens: list[int]) -> None:
    (log_probs,), _ = output(seed, [6])
    scores = {path: score for path, score in paths(log_probs).items() if spelled(path) == tuple(tokens)}
    best = max(scores, key=scores.__getitem__)
    runs, place = [], 0
    for token, run in itertools.groupby(best):
        begin, place = place, place + len(list(run))
        runs += [(begin, place)] if token != ctc.BLANK else []
    assert ctc.align(log_probs, tokens) == runs


def test_tokens_that_no_path_writes_are_refused() -> None:
    with pytest.raises(ValueError, match="2 states"):
        ctc.align(output(1, [2]).log_probs[0], [1, 1])
    assert ctc.align(output(1, [3]).log_probs[0], [1, 2, 1]) == [(0, 1), (1, 2), (2, 3)]


def test_a_speller_and_a_loss_without_ctc_are_refused() -> None:
    parts = {"features": las.LogMel, "listener": functools.partial(las.Listener, cell=las.PlainLSTMCell, hidden_size=4)}
    with pytest.raises(ArgumentError, match="speller"):
        las.CTCModel(16000, 5, **parts, ctc=las.CTC, speller=las.Speller)
    model = las.ListenAttendSpell(
        16000, 5, **parts, speller=functools.partial(las.Speller, cell=las.PlainLSTMCell, attention=las.DotAttention)
    )
    targets = torch.tensor([[1, 2]])
    output_of_speller = model(torch.randn(1, 8000), torch.tensor([8000]), targets)
    with pytest.raises(ConfigError, match="model=ctc_small"):
        losses.require_ctc(output_of_speller)


def test_tokens_that_no_path_writes_have_times_in_order_all_the_same() -> None:
    parts = {"features": las.LogMel, "listener": functools.partial(las.Listener, cell=las.PlainLSTMCell, hidden_size=4)}
    model = las.CTCModel(16000, VOCAB, **parts, ctc=las.CTC)
    inputs, num_states = model.search_inputs(torch.randn(1, 2000), torch.tensor([2000]))
    count = 2 * int(num_states)
    _, (weights,) = model.spell(inputs, torch.ones(1, count, dtype=torch.long), [count])
    times = model.token_times(weights, 0.125)
    assert len(times) == count and times == sorted(times) and all(start <= end <= 0.125 for start, end in times)
