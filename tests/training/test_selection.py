"""Parameters by patterns of their names."""

import pytest
from torch import nn

from las.runtime.errors import ConfigError
from las.training import gradients

NAMES = [
    "listener.layers.0.forwards.cell.bias",
    "listener.front.weight",
    "speller.cells.0.bias",
    "speller.out.weight",
]
NAMED = [(name, nn.Parameter()) for name in NAMES]


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        (["*"], [0, 1, 2, 3]),
        (["listener.*"], [0, 1]),
        (["*.cell.*"], [0]),
        (["*.bias", "speller.*"], [0, 2, 3]),
        (["speller.out.weight"], [3]),
        ([], []),
    ],
)
def test_each_parameter_that_a_pattern_matches_is_chosen_once_in_order(patterns: list[str], chosen: list[int]) -> None:
    found = gradients.choose(NAMED, patterns, "here")
    assert [id(each) for each in found] == [id(NAMED[index][1]) for index in chosen]


def test_a_pattern_that_matches_nothing_is_an_error_with_the_nearest_names() -> None:
    with pytest.raises(ConfigError, match=r"here: no .* 'listner\.\*'\. Did you mean listener\.front"):
        gradients.choose(NAMED, ["*.bias", "listner.*"], "here")
