"""The collector leaves out what stays, and takes it back at the end."""

import gc

import pytest

from las.runtime import garbage


def test_paused_collects_nothing_and_ends_as_it_began() -> None:
    with garbage.paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_frozen_leaves_out_what_there_is_and_no_more() -> None:
    before = [object() for _ in range(10)]
    with garbage.frozen():
        assert gc.get_freeze_count() > len(before)
        later: list[object] = []
        later.append(later)
        assert any(each is later for each in gc.get_objects())
        assert not any(each is before for each in gc.get_objects())
    assert gc.get_freeze_count() == 0 and any(each is before for each in gc.get_objects())


def test_frozen_ends_with_an_error_too() -> None:
    with pytest.raises(KeyError), garbage.frozen():
        raise KeyError
    assert gc.get_freeze_count() == 0
