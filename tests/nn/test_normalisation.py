"""Masks of true lengths; norms of a layer's output rows, each against its equation and deaf to padding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parameters import moved
from torch import Tensor

from las.nn.normalisation import OUTPUT_NORMS, mask_of, masked_mean, masked_softmax, reverse

SIZE = 4
LENGTHS = torch.tensor([5, 3, 1])
MASK = torch.arange(5) < LENGTHS.unsqueeze(1)
every_norm = pytest.mark.parametrize("name", [name for name in OUTPUT_NORMS if name != "none"])


def make(name: str) -> torch.nn.Module:
    torch.manual_seed(1)
    return moved(OUTPUT_NORMS[name](SIZE).double(), 1.0)


def rows_of() -> Tensor:
    """Zero in padding, as the rows of a layer are."""
    generator = torch.Generator().manual_seed(2)
    rows = 3 + 2 * torch.randn(3, 5, SIZE, generator=generator, dtype=torch.float64)
    return rows.masked_fill(~MASK.unsqueeze(-1), 0.0)


def standardised(values: np.ndarray, rows: np.ndarray, axis: int) -> np.ndarray:
    mean, variance = rows.mean(axis, keepdims=True), rows.var(axis, keepdims=True)
    return (values - mean) / np.sqrt(variance + 1e-5)


def transcription(name: str, rows: np.ndarray) -> np.ndarray:
    """The true rows one after another, without gain and bias."""
    alone = [row[:length] for row, length in zip(rows, LENGTHS.tolist(), strict=True)]
    together = np.concatenate(alone)
    return np.concatenate(
        {
            "layer": [standardised(row, row, 1) for row in alone],
            "instance": [standardised(row, row, 0) for row in alone],
            "instance_padded": [standardised(row, all_rows, 0) for row, all_rows in zip(alone, rows, strict=True)],
            "batch": [standardised(row, together, 0) for row in alone],
        }[name]
    )


@every_norm
def test_a_norm_equals_its_equation(name: str) -> None:
    norm = make(name).train()
    outputs = norm(rows_of(), LENGTHS)
    expected = transcription(name, rows_of().numpy())
    expected = norm.gain.detach().numpy() * expected + norm.bias.detach().numpy()
    np.testing.assert_allclose(outputs[MASK].detach().numpy(), expected, rtol=1e-9, atol=1e-12)
    assert not outputs[~MASK].any()


@every_norm
@pytest.mark.parametrize("poison", [float("nan"), 1e30])
def test_values_in_padding_reach_nothing(name: str, poison: float) -> None:
    results = []
    for value in (0.0, poison):
        norm = make(name).train()
        rows = rows_of().masked_fill(~MASK.unsqueeze(-1), value).requires_grad_()
        outputs = norm(rows, LENGTHS)
        results.append([outputs, *torch.autograd.grad(outputs.pow(3).sum(), [rows, *norm.parameters()])])
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


@every_norm
def test_in_evaluation_only_the_padded_one_depends_on_the_company(name: str) -> None:
    norm = make(name).eval()
    together = norm(rows_of(), LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = norm(rows_of()[row : row + 1, :length], LENGTHS[row : row + 1])[0]
        same = torch.allclose(together[row, :length], alone, rtol=1e-9, atol=1e-12)
        assert same == (name != "instance_padded" or length == 5)


def test_batch_norm_evaluates_with_the_averages_of_torch() -> None:
    norm, oracle = make("batch").train(), torch.nn.BatchNorm1d(SIZE, dtype=torch.float64)
    oracle.load_state_dict({"weight": norm.gain, "bias": norm.bias}, strict=False)
    for shift in (0.0, 2.0):
        rows = rows_of() + shift
        torch.testing.assert_close(norm(rows, LENGTHS)[MASK], oracle(rows[MASK]))
    torch.testing.assert_close(norm.eval()(rows, LENGTHS)[MASK], oracle.eval()(rows[MASK]))


@every_norm
def test_gradients_equal_finite_differences(name: str) -> None:
    norm = make(name).train()
    assert torch.autograd.gradcheck(lambda rows: norm(rows, LENGTHS), (rows_of().requires_grad_(),), fast_mode=True)


@every_norm
def test_a_batch_without_a_single_row_stays_empty_and_finite(name: str) -> None:
    norm = make(name).train()
    outputs = norm(torch.zeros(2, 3, SIZE, dtype=torch.float64), torch.tensor([0, 0]))
    assert not outputs.any()
    assert all(buffer.isfinite().all() for buffer in norm.buffers())


@every_norm
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_statistics_of_half_precision_are_accurate(name: str, dtype: torch.dtype) -> None:
    """Sums of 4096 squares near 300 overflow fp16: only the rounding of the rows may remain."""
    norm = OUTPUT_NORMS[name](4096)
    rows = (300 + 30 * torch.randn(1, 64, 4096, generator=torch.Generator().manual_seed(3))).to(dtype)
    exact = norm.double()(rows.double(), torch.tensor([64]))
    ours = OUTPUT_NORMS[name](4096).to(dtype)(rows, torch.tensor([64]))
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.double(), exact, rtol=3 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


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


@given(lengths_of_rows)
def test_reverse_reads_each_row_backwards_within_its_length(lengths: list[int]) -> None:
    frames = torch.randn(len(lengths), 6, 2, generator=torch.Generator().manual_seed(1))
    lengths_ = torch.tensor(lengths)
    backwards = reverse(frames, lengths_)
    for row, length in enumerate(lengths):
        assert torch.equal(backwards[row, :length], frames[row, :length].flip(0))
        assert torch.equal(backwards[row, length:], frames[row, length:])
    assert torch.equal(reverse(backwards, lengths_), frames)
