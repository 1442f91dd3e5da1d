"""Search without scorers: greedy, limits of lengths, symbols that are impossible or tied, the speller's own scores."""

import functools
import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from toy_search import ToyDecoder

from las.decoding.base import CanDropUtterances
from las.decoding.scorers.base import reorder
from las.decoding.search import BeamSearch, GreedySearch
from las.nn.attention.location import LocationAttention
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.model import Decoder
from las.nn.speller import Speller


class MarkovDecoder:
    """Log-probabilities that depend on the last symbol only; its state is empty."""

    def __init__(self, table: Tensor, eos: int) -> None:
        self.table = table  # [batch, last, next]
        self.sos = self.eos = eos

    def start(self) -> tuple[()]:
        return ()

    def step(self, tokens: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
        return self.table[torch.arange(len(self.table)).unsqueeze(1), tokens], state


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0])
def test_a_beam_of_one_is_greedy(exponent):
    num_states = torch.arange(200) % 12
    decoder = ToyDecoder.random(3, num_states.tolist(), 6)
    narrow = BeamSearch(size=1, length_normalisation=exponent)(decoder, num_states)
    for (one,), (other,) in zip(GreedySearch()(decoder, num_states), narrow, strict=True):
        assert one.tokens == other.tokens
        assert one.score == other.score
        assert one.finished_by == other.finished_by


def test_a_search_stops_when_every_utterance_is_finished():
    class Counting(MarkovDecoder):
        steps = 0

        def step(self, tokens, state):
            self.steps += 1
            return super().step(tokens, state)

    ending = torch.tensor([[0.98, 0.01, 0.01]] * 3).log()
    # One hypothesis of this one never ends, but it can no longer win; the other one has fewer continuations than beams.
    endless = torch.tensor([[0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]).log()
    for search in (GreedySearch(), BeamSearch(size=3, length_normalisation=0.0)):
        for table, num_states in ((ending.unsqueeze(0), [1000]), (torch.stack([ending, endless]), [1, 1000])):
            decoder = Counting(table, eos=0)
            found = search(decoder, torch.tensor(num_states))
            assert [hypotheses[0].tokens for hypotheses in found] == [[]] * len(num_states)
            assert decoder.steps < 5


def test_lengths_are_limited_by_ratio_rounded_up_and_by_max_length():
    table = torch.tensor([[0.1, 0.9], [0.1, 0.9]]).log().unsqueeze(0)

    def length(num_states: int, **options) -> int:
        return len(GreedySearch(**options)(MarkovDecoder(table, eos=0), torch.tensor([num_states]))[0][0].tokens)

    assert 100 * 0.07 > 7
    assert length(100, max_length_ratio=0.07) == 7  # what a person means
    assert length(3, max_length_ratio=0.5) == 2
    assert length(3, max_length_ratio=2.0) == 6
    assert length(100, max_length=7) == 7
    assert length(3, max_length=7) == 3


def test_equal_candidates_go_to_the_lower_token():
    table = torch.full((1, 5, 5), math.log(0.2))
    for search in (GreedySearch(), BeamSearch(size=1), BeamSearch(size=3, nbest=3)):
        found = search(MarkovDecoder(table, eos=4), torch.tensor([3]))
        assert found[0][0].tokens == [0, 0, 0]
        assert found == search(MarkovDecoder(table, eos=4), torch.tensor([3]))


def test_reorder_moves_every_tensor_along_the_beam_and_keeps_the_types():
    class Past(NamedTuple):
        prefix: Tensor
        nested: tuple[Tensor, ...]

    state = Past(torch.arange(6).view(2, 3), (torch.arange(24).view(2, 3, 4),))
    moved = reorder(state, torch.tensor([[2, 2, 0, 1], [0, 1, 1, 1]]))
    assert isinstance(moved, Past)
    assert moved.prefix.tolist() == [[2, 2, 0, 1], [3, 4, 4, 4]]
    assert moved.nested[0][:, :, 0].tolist() == [[8, 8, 0, 4], [12, 16, 16, 16]]
    assert reorder((), torch.tensor([[0]])) == ()
    with pytest.raises(TypeError, match="contains a list"):
        reorder(([1],), torch.tensor([[0]]))


@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(size=4, nbest=4)])
def test_a_speller_scores_its_hypotheses_as_teacher_forcing_does(search):
    torch.manual_seed(0)
    speller = Speller(
        vocab_size=7,
        value_size=5,
        cell=LNGlobalLSTMCell,
        attention=functools.partial(LocationAttention, key_size=6, num_filters=2, width=3),
        num_layers=2,
        hidden_size=8,
        embedding_size=4,
    )
    speller.double().eval().requires_grad_(False)
    num_states = torch.tensor([9, 4, 1])
    memory = speller.attention.prepare(torch.randn(3, 9, 5, dtype=torch.float64), num_states)
    decoder = Decoder(speller, memory)
    assert isinstance(decoder, CanDropUtterances)
    found = search(decoder, num_states)
    for index, hypotheses in enumerate(found):
        one = type(memory)(*(part[index : index + 1] for part in memory))
        for hypothesis in hypotheses:
            targets = torch.tensor([hypothesis.tokens], dtype=torch.long).view(1, -1)
            log_probs = speller(one, targets).logits.log_softmax(-1)
            symbols = torch.tensor([*hypothesis.tokens, 0])
            expected = log_probs[0, torch.arange(len(symbols)), symbols].sum()
            assert hypothesis.score == pytest.approx(float(expected), rel=1e-9)
