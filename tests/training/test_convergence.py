"""What convergence means."""

import pytest

from las.training.selection import DevResult, convergence


@pytest.mark.parametrize(
    ("validations", "best_step", "within"),
    [
        ([(10, 0.5)], 10, 10),
        ([(10, 0.5), (20, 0.3), (30, 0.4)], 20, 20),
        ([(10, 0.5), (20, 0.3), (30, 0.3)], 20, 20),
        ([(10, 0.5), (20, 0.301), (30, 0.3)], 30, 20),
        ([(10, 0.5), (20, 0.3031), (30, 0.3)], 30, 30),
        ([(10, 0.0), (20, 0.0)], 10, 10),
    ],
)
def test_convergence_is_the_first_best_and_the_first_within_one_percent(
    validations: list[tuple[int, float]], best_step: int, within: int
) -> None:
    assert convergence([DevResult(*each) for each in validations]) == (
        best_step,
        within,
        min(error for _, error in validations),
    )
