"""Triton in processes of their own: one that interprets, and one that compiles."""

from collections.abc import Iterator

import pytest
import triton_elsewhere as elsewhere
from triton_elsewhere import Elsewhere


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Elsewhere]:
    yield from elsewhere.process(TRITON_INTERPRET="1")


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    yield from elsewhere.process(TRITON_CACHE_DIR=str(tmp_path_factory.mktemp("compiled")))
