"""The attention of a search in C++ equals the attention's own equations."""

import itertools

import pytest
import torch

from las.nn.attention.additive import AdditiveAttention
from las.nn.attention.base import Attention
from las.nn.attention.dot import DotAttention
from las.nn.attention.location import LocationAttention
from las.nn.attention.multi_head import MultiHeadAttention
from las.nn.attention.weight_feedback import WeightFeedbackAttention
from las.nn.kernels import cpu, cpu_speller

pytestmark = pytest.mark.skipif(bool(cpu._trial_error()), reason="there is no compiled kernel")

KINDS = {
    "additive": AdditiveAttention,
    "dot": DotAttention,
    "location": LocationAttention,
    "weight_feedback": WeightFeedbackAttention,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beams", [1, 2, 9])
def test_all_beams_get_what_the_attention_gives_them(kind: str, beams: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention: Attention = KINDS[kind](7, 5, key_size=11).to(dtype)
    memory = attention.prepare(torch.randn(4, 21, 5, dtype=dtype), torch.tensor([21, 13, 1, 0]))
    answer = cpu_speller.select_attend_fn(attention, memory)
    assert isinstance(answer, cpu_speller.CppAttend)
    accumulated = attention.initial_weights(memory).expand(-1, beams, -1)
    for _ in range(3):
        query = torch.randn(4, beams, 7, dtype=dtype)
        context, weights = answer(query, memory, accumulated)
        expected_context, expected = attention.attend(query, memory, accumulated)
        tolerance = {"atol": 1e-5, "rtol": 1e-4} if dtype is torch.float32 else {"atol": 1e-12, "rtol": 1e-10}
        assert torch.allclose(weights, expected, **tolerance)
        assert torch.allclose(context, expected_context, **tolerance)
        accumulated = attention.accumulate(memory, weights, accumulated)


def test_threads_do_not_change_anything() -> None:
    attention = LocationAttention(7, 5, key_size=11)
    memory = attention.prepare(torch.randn(3, 30, 5), torch.tensor([30, 7, 12]))
    query, before = torch.randn(3, 4, 7), torch.rand(3, 4, 30)
    found, threads = [], torch.get_num_threads()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(cpu_speller.select_attend_fn(attention, memory)(query, memory, before))
    torch.set_num_threads(threads)
    for one, other in itertools.pairwise(found):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


def test_attentions_and_types_that_were_not_written_in_c_answer_by_their_equations() -> None:
    others = MultiHeadAttention(8, 6, key_size=4, num_heads=2)
    assert (
        cpu_speller.select_attend_fn(others, others.prepare(torch.randn(1, 3, 6), torch.tensor([3]))) == others.attend
    )
    half = AdditiveAttention(8, 6).to(torch.bfloat16)
    memory = half.prepare(torch.randn(1, 3, 6, dtype=torch.bfloat16), torch.tensor([3]))
    assert cpu_speller.select_attend_fn(half, memory) == half.attend
