"""The collector leaves out what stays, and takes it back at the end."""

import gc
from collections.abc import Iterator

import pytest

from las.runtime import garbage


@pytest.fixture
def thawed() -> Iterator[None]:
    """Without the objects that the test session has left out."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_paused_collects_nothing_and_ends_as_it_began() -> None:
    with garbage.paused():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.usefixtures("thawed")
def test_frozen_leaves_out_what_there_is_and_no_more() -> None:
    before = [object() for _ in range(10)]
    with garbage.frozen():
        assert gc.get_freeze_count() > len(before)
        later: list[object] = []
        later.append(later)
        assert any(each is later for each in gc.get_objects())
        assert not any(each is before for each in gc.get_objects())
    assert gc.get_freeze_count() == 0 and any(each is before for each in gc.get_objects())


@pytest.mark.usefixtures("thawed")
def test_frozen_ends_with_an_error_too() -> None:
    with pytest.raises(KeyError), garbage.frozen():
        raise KeyError
    assert gc.get_freeze_count() == 0


def test_frozen_keeps_what_the_caller_has_left_out() -> None:
    gc.freeze()
    count = gc.get_freeze_count()
    with garbage.frozen():
        pass
    assert gc.get_freeze_count() == count > 0
