"""The numbers of an alignment, and what they are called."""

import math

import pytest
import torch
from torch import Tensor

from las.nn.attention import diagnostics
from las.nn.attention.diagnostics import Alignment


def picture(*centres: int, states: int = 10) -> Tensor:
    """Every token looks at one state."""
    return torch.nn.functional.one_hot(torch.tensor(centres), states).double()


def test_the_numbers_of_a_small_alignment_by_hand() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    found = diagnostics.measure(weights)
    centres = [0.25, 1.0, 0.5]
    mean = sum(centres) / 3
    covariance = sum((c - mean) * p for c, p in zip(centres, [-0.5, 0, 0.5], strict=True))
    spread = math.sqrt(sum((c - mean) ** 2 for c in centres) * 0.5)
    assert found.entropy == pytest.approx(math.log(2) / 3 / math.log(3))
    assert found.diagonality == pytest.approx(covariance / spread)
    assert (found.coverage, found.monotonicity) == (1.0, 0.5)


def test_the_legend_explains_every_measure() -> None:
    assert [part.partition(":")[0] for part in diagnostics.LEGEND.split("; ")] == list(Alignment._fields)


@pytest.mark.parametrize(
    ("weights", "numbers", "words"),
    [
        (torch.eye(10), Alignment(0.0, 1.0, 1.0, 1.0), "follows the speech"),
        (torch.full((6, 8), 1 / 8), Alignment(1.0, 0.0, 1.0, 1.0), "is flat"),
        (torch.full((1, 7), 1 / 7), Alignment(0.0, 1.0, 1.0, 1.0), "follows the speech"),  # one token or one state
        (torch.full((5, 1), 1.0), Alignment(0.0, 1.0, 1.0, 1.0), "follows the speech"),
        (picture(9, 8, 7, 6, 5, 4, 3, 2), None, "writes from memory"),
        (picture(4, 4, 4, 4, 4, 4), None, "writes from memory"),
        (picture(0, 0, 0, 1, 1, 1), None, "passed over"),
        (picture(0, 1, 2, 9, 4, 5, 6, 7), None, "with jumps"),
        (picture(0, 2, 4, 6, 8), None, "follows the speech"),
    ],
)
def test_faults_have_names(weights: Tensor, numbers: Alignment | None, words: str) -> None:
    found = diagnostics.measure(weights)
    assert numbers is None or found == pytest.approx(numbers)
    assert words in diagnostics.verdict(found) and (words == "with jumps") == ("jumps" in diagnostics.verdict(found))


def test_means_and_the_line_of_the_log() -> None:
    found = diagnostics.mean([Alignment(0.0, 1.0, 1.0, 1.0), Alignment(0.4, 0.9, 0.6, 0.5)])
    assert found == pytest.approx(Alignment(0.2, 0.95, 0.8, 0.75))
    line = diagnostics.line(found)
    assert diagnostics.verdict(found) in line
    assert all(number in line for number in ("entropy 0.20", "diagonality 0.95", "coverage 0.80", "monotonicity 0.75"))
