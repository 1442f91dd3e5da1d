"""Table 1 of Ba et al. 2016 as a property, of norms and of cells."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from las.analysis import invariance

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
    assert not invariance.departures(seed)


def test_a_norm_that_departs_from_the_paper_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(invariance.NORMS, "weight norm", invariance.layer_normalised)
    assert invariance.departures() == [
        "weight norm, weight matrix re-centred: yes",
        "weight norm, weight vectors re-scaled: no",
        "weight norm, data set re-scaled: yes",
        "weight norm, single cases re-scaled: yes",
    ]


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
    assert [column.header for column in shown.columns] == ["the same after", *invariance.TABLE_1]
    assert [tuple(column.cells) for column in shown.columns[1:]] == list(invariance.TABLE_1.values())
    assert list(shown.columns[0].cells) == [change.name for change in invariance.CHANGES]
