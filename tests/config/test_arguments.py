"""Values of a config against the annotations of a constructor."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from las.config import build
from las.runtime.errors import ConfigError


class Base:
    def __init__(self, size: int, *, rate: float = 1.0, name: str | None = None) -> None:
        self.all = (size, rate, name)


class Child(Base):
    def __init__(self, factors: Sequence[int], **options: Any) -> None:
        super().__init__(**options)
        self.factors = factors


@pytest.mark.parametrize(
    ("annotation", "right", "wrong"),
    [
        (int, [1, -1], [1.0, "1", True, None, [1]]),
        (float, [1, 1.5], ["1.5", True, None, float("nan"), float("inf")]),
        (bool, [True, False], [0, 1, "true", None]),
        (str, ["", "x"], [1, None, ["x"]]),
        (float | None, [1, 0.5, None], ["x", True]),
        (int | bool, [1, True], [1.5]),
        (Sequence[int], [[1, 2], (), [3]], [1, ["1"], [1.5], "12", None]),
        (Sequence[str], [["a"], "abc"], [[1], 1]),
        (tuple[float, float], [[0.9, 0.999]], [0.9, ["a", "b"]]),
        (Sequence[int] | None, [None, [1]], ["1", [None]]),
        (Callable[[int], str], [len, Base], ["len", 1, None]),
        (Path, [Path("x")], ["x"]),
        (Any, [1, "x", None, [1]], []),
        (build.inspect.Parameter.empty, [1, "x", None], []),
    ],
)
def test_what_fits_an_annotation(annotation: Any, right: list[Any], wrong: list[Any]) -> None:
    assert [build.fits(value, annotation) for value in right] == [True] * len(right)
    assert [build.fits(value, annotation) for value in wrong] == [False] * len(wrong)


def test_options_of_base_classes_are_keys_too() -> None:
    assert list(build.parameters(Child)) == ["factors", "size", "rate", "name"]
    assert list(build.parameters(Base)) == ["size", "rate", "name"]
    assert list(build.parameters(Base, [build.inspect.Parameter.KEYWORD_ONLY])) == ["rate", "name"]
    build.check(Child, {"factors": [2, 1], "rate": 2, "name": None}, "part")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"factor": [2]}, r"^part\.factor: Child .*Did you mean factors, "),
        ({"rate": "fast"}, r"^part\.rate='fast' .*number.* part\.rate=1\.0$"),
        ({"factors": 2}, r"^part\.factors=2 .*whole numbers.* part\.factors=\[2\]$"),
        ({"name": 3}, r"^part\.name=3 .*text or null.* part\.name=x$"),
    ],
)
def test_errors_name_key_value_and_type(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build.check(Child, values, "part")


class Whole:
    """Takes parts under names of the caller's choice."""

    def __init__(self, size: int = 1, **parts: Child | None) -> None:
        self.parts = parts


class Wider(Whole):
    def __init__(self, width: int = 1, **options: Any) -> None:
        super().__init__(**options)


@pytest.mark.parametrize("kind", [Whole, Wider])
def test_parts_of_any_name_are_checked_against_their_annotation(kind: type) -> None:
    build.check(kind, {"size": 2, "mine": Child([1], size=1), "yours": None}, "whole")
    for plain in (3, True, 0.5, "x", [1]):
        with pytest.raises(ConfigError, match=rf"^whole\.sise: {kind.__name__} .*size"):
            build.check(kind, {"sise": plain}, "whole")
    for other in ({"weight": 1}, object()):
        with pytest.raises(ConfigError, match=r"^whole\.mine=.* part .* or null$"):
            build.check(kind, {"mine": other}, "whole")
