"""Choice of what `make test` runs of a long list of cases; `make slow` runs all of it."""

from collections.abc import Iterable
from typing import Any

import pytest


def rest_slow(cases: Iterable[Any], keep: int = 1) -> list[Any]:
    """Parameters of a test: the first `keep` cases run in `make test`, the others are slow."""
    return [
        case if index < keep else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for index, case in enumerate(cases)
    ]
