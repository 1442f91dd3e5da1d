"""All suites of the verb `benchmark` by name."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks import (
    checkpointing,
    compilation,
    decoding,
    gpu_layers,
    gpu_train,
    growth,
    loading,
    lstm,
    nn_lstm,
    peers,
    recipe_rows,
    streaming,
    training_step,
)
from benchmarks.records import Group, TableColumn
from benchmarks.settings import Settings


class Suite(NamedTuple):
    """A suite: its measurement, the columns of its tables, and the title over the rows of one shape."""

    measure: Callable[[Settings], Iterator[Group]]
    columns: Sequence[TableColumn]
    title: Callable[[str], str] = str


class Table(NamedTuple):
    """Rows that `make gpu` alone measures: the columns of their tables, and the title over the rows of one shape."""

    columns: Sequence[TableColumn]
    title: Callable[[str], str] = str


SUITES = {
    "lstm": Suite(lstm.measure, lstm.COLUMNS, lstm.title),
    "nn_lstm": Suite(nn_lstm.measure, nn_lstm.COLUMNS, nn_lstm.title),
    "model": Suite(training_step.measure, training_step.COLUMNS, training_step.title),
    "recipe": Suite(recipe_rows.measure, recipe_rows.COLUMNS, recipe_rows.title),
    "growth": Suite(growth.measure, growth.COLUMNS, growth.title),
    "peers": Suite(peers.measure, peers.COLUMNS),
    "decode": Suite(decoding.measure, decoding.COLUMNS),
    "streaming": Suite(streaming.measure, streaming.COLUMNS),
    "loader": Suite(loading.measure, loading.COLUMNS),
    "compile": Suite(compilation.measure, compilation.COLUMNS, compilation.title),
    "safety": Suite(checkpointing.measure, checkpointing.COLUMNS),
}

TABLES: dict[str, Suite | Table] = {
    **SUITES,
    "check": Table(gpu_layers.CHECK_COLUMNS),
    "train": Table(gpu_train.COLUMNS),
}
