import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from las.nn.normalisation import mask_of, masked_mean, masked_softmax, reverse

lengths_of_rows = st.lists(st.integers(0, 6), min_size=1, max_size=4)


@given(lengths_of_rows)
def test_mask_is_true_before_each_length(lengths: list[int]) -> None:
    mask = mask_of(torch.tensor(lengths), 6)
    assert mask.tolist() == [[position < length for position in range(6)] for length in lengths]


@given(lengths_of_rows)
def test_masked_softmax_is_the_softmax_of_the_true_entries(lengths: list[int]) -> None:
    energy = torch.randn(len(lengths), 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = masked_softmax(energy, mask_of(torch.tensor(lengths), 6))
    for row, length in enumerate(lengths):
        torch.testing.assert_close(weights[row, :length], torch.softmax(energy[row, :length], 0))
        assert not weights[row, length:].any()


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_masked_entries_reach_neither_result_nor_gradient(poison: float) -> None:
    values = torch.tensor([[1.0, 2.0, poison], [poison, poison, poison]], requires_grad=True)
    mask = mask_of(torch.tensor([2, 0]), 3)
    weights = masked_softmax(values, mask)
    mean = masked_mean(values, mask, dim=1)
    torch.testing.assert_close(weights, torch.tensor([[0.26894142, 0.73105858, 0.0], [0.0, 0.0, 0.0]]))
    torch.testing.assert_close(mean, torch.tensor([1.5, 0.0]))
    (weights[0, 0] + mean.sum()).backward()
    assert values.grad is not None
    slope = 0.26894142 * 0.73105858
    torch.testing.assert_close(values.grad, torch.tensor([[0.5 + slope, 0.5 - slope, 0.0], [0.0, 0.0, 0.0]]))


def test_half_precision_softmax_of_masked_rows_is_finite() -> None:
    energy = torch.full((1, 3), -60000.0, dtype=torch.float16)
    assert masked_softmax(energy, mask_of(torch.tensor([2]), 3)).tolist() == [[0.5, 0.5, 0.0]]


def test_masked_mean_broadcasts_its_mask() -> None:
    values = torch.arange(12.0).view(2, 3, 2)
    mean = masked_mean(values, mask_of(torch.tensor([3, 1]), 3).unsqueeze(-1), dim=1)
    assert mean.tolist() == [[2.0, 3.0], [6.0, 7.0]]


@given(lengths_of_rows)
def test_reverse_reads_each_row_backwards_within_its_length(lengths: list[int]) -> None:
    frames = torch.randn(len(lengths), 6, 2, generator=torch.Generator().manual_seed(1))
    lengths_ = torch.tensor(lengths)
    backwards = reverse(frames, lengths_)
    for row, length in enumerate(lengths):
        assert torch.equal(backwards[row, :length], frames[row, :length].flip(0))
        assert torch.equal(backwards[row, length:], frames[row, length:])
    assert torch.equal(reverse(backwards, lengths_), frames)
