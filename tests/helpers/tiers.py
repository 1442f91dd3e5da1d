"""Choice of what runs where: `make test` some of a long list of cases, `make slow` the rest, `make gpu` GPU tests."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def rest_slow(cases: Iterable[Any], keep: int = 1) -> list[Any]:
    """Parameters of a test: the first `keep` cases run in `make test`, the others are slow.

    A case is one value, or a plain tuple of the values of several names.
    """
    listed = list(cases)
    slow = [pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.slow) for case in listed[keep:]]
    return [*listed[:keep], *slow]
