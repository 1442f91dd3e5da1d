"""The suites by name."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from las.benchmark import decode, loader, lstm, model, safety
from las.benchmark.rows import Column, Group
from las.benchmark.settings import Settings


class Suite(NamedTuple):
    """How to measure it, the columns of its tables, and the title over the rows of one shape."""

    measure: Callable[[Settings], Iterator[Group]]
    columns: Sequence[Column]
    title: Callable[[str], str]


SUITES = {
    "lstm": Suite(lstm.measure, lstm.COLUMNS, lstm.title),
    "model": Suite(model.measure, model.COLUMNS, model.title),
    "decode": Suite(decode.measure, decode.COLUMNS, decode.title),
    "loader": Suite(loader.measure, loader.COLUMNS, loader.title),
    "safety": Suite(safety.measure, safety.COLUMNS, safety.title),
}
