"""Errors of calls: a message names what is wrong and where, whatever its sentence."""

from collections.abc import Callable

import pytest

from las.runtime.errors import DataError


def refused(words: str, call: Callable[..., object], *arguments: object, kind: type[Exception] = DataError) -> str:
    """The message of the error that a call raises, which holds all of some key words, separated by |."""
    with pytest.raises(kind) as raised:
        call(*arguments)
    message = str(raised.value)
    assert [word for word in words.split("|") if word not in message] == [], message
    return message
