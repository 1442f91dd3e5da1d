"""Numbers that change during training: lines, jumps, and what they count."""

import pytest

from las import build
from las.errors import ConfigError
from las.ramp import Ramp


def test_lines_from_point_to_point_and_constants_outside() -> None:
    ramp = Ramp(points=[[10, 0.0], [20, 0.4], [40, 0.2]])
    places = {1: 0.0, 10: 0.0, 15: 0.2, 20: 0.4, 30: 0.3, 40: 0.2, 10**6: 0.2}
    assert [ramp.at(place, sub_epoch=99) for place in places] == pytest.approx(list(places.values()))


def test_two_points_at_a_place_are_a_jump() -> None:
    """Label smoothing as Park et al. 2019 use it for LibriSpeech with schedule L: off when the decay begins."""
    ramp = Ramp(points=[[140_000, 0.1], [140_000, 0.0]])
    assert [ramp.at(step, 1) for step in (1, 139_999, 140_000, 140_001)] == [0.1, 0.1, 0.0, 0.0]


def test_places_may_count_sub_epochs() -> None:
    ramp = Ramp(points=[[1, 0.0], [5, 0.4]], unit="sub_epochs")
    assert [ramp.at(10**6, sub_epoch) for sub_epoch in (1, 2, 5, 6)] == pytest.approx([0.0, 0.1, 0.4, 0.4])


def test_one_point_is_a_constant() -> None:
    assert {Ramp(points=[[5, 0.1]]).at(step, 1) for step in (1, 5, 6)} == {0.1}


def test_a_config_may_hold_one() -> None:
    ramp = build.build({"_target_": "las.ramp.Ramp", "points": [[1, 0.0], [3, 1]], "unit": "steps"})
    assert ramp.at(2, 1) == 0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"points": []}, "one at least"),
        ({"points": [[1.0, 2.0, 3.0]]}, "give pairs"),
        ({"points": [[5.0, 0.1], [4.0, 0.2]]}, "must be in order"),
        ({"points": [[1.0, 0.1]], "unit": "epochs"}, "unit=epochs: .* Did you mean sub_epochs or steps"),
    ],
)
def test_points_that_make_no_line_are_refused(options: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Ramp(**options)
