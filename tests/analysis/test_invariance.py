"""Table 1 of Ba et al. 2016 as a property, of norms and of cells."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from las.analysis import invariance

PAPER = {
    "batch norm": "yes no yes yes yes no",
    "weight norm": "yes no yes no no no",
    "layer norm": "yes yes no yes no yes",
}
"""Ba et al. 2016, table 1, in its order. (Their text says that weight norm does not notice re-scaled data: the table is
right.)"""
CELLS = {
    "lstm": "no no no no no no no no",
    "ln_global": "yes yes yes no yes yes yes yes",
    "ln_joined": "no no yes no yes yes no no",
    "ln_per_gate": "no no yes yes yes yes no no",
}


@given(st.integers(0, 10**6))
@settings(max_examples=50)
def test_norms_are_invariant_where_the_paper_says_and_nowhere_else(seed: int) -> None:
    """To 1e-9; elsewhere values move by more than 1e-2 of the largest. Whatever W and x."""
    found = invariance.of_norms(seed)
    assert {norm: " ".join(map(invariance.verdict, changes.values())) for norm, changes in found.items()} == PAPER


@given(st.integers(0, 10**6))
@settings(max_examples=5)
def test_cells_inherit_what_their_norms_do_not_notice(seed: int) -> None:
    found = invariance.of_cells(seed)
    assert {cell: " ".join(map(invariance.verdict, changes.values())) for cell, changes in found.items()} == CELLS


def test_what_is_neither_the_same_nor_clearly_different_is_said() -> None:
    assert invariance.verdict(1e-5) == "unclear (1e-05)"
    assert invariance.difference(torch.tensor([1.0, -4.0]), torch.tensor([2.0, -4.0])) == 0.25


def test_the_table_has_a_row_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    shown = invariance.table(invariance.of_norms(), "title")
    assert [column.header for column in shown.columns] == ["the same after", *PAPER]
    assert [list(column.cells) for column in shown.columns[1:]] == [row.split() for row in PAPER.values()]
    assert list(shown.columns[0].cells) == [change.name for change in invariance.CHANGES]
