"""What is asked of an utterance, at the limits, and which transcripts stand out."""

import pytest

from las.data import quality
from las.data.audio.files import AudioInfo
from las.data.audio_levels import Reading, Sound, stretch
from las.data.manifest import Utterance
from las.data.quality import Limits, Requirements
from las.data.tokenizers import Characters
from las.runtime.errors import DataError

ASKED = Requirements(Characters(" AB"), 16000, 1, Limits(longest_s=10.0, clipped=0.01), lambda num_samples: 3)


def utterance(duration_s: float = 1.0, text: str = "AB", name: str = "a") -> Utterance:
    return Utterance(name, "x.wav", 0, 0.5, duration_s, text, "speaker")


def reading(of: Utterance, peak: float = 0.5, clipped: float = 0.0) -> Reading:
    return Reading(AudioInfo(16000, 16000 * 60, 1), {stretch(of): Sound(peak, clipped)})


@pytest.mark.parametrize(
    ("duration_s", "peak", "clipped", "kind"),
    [
        (0.0249, 0.5, 0.0, "too short"),
        (0.025, 0.5, 0.0, None),
        (10.0, 0.5, 0.0, None),
        (10.01, 0.5, 0.0, "too long"),
        (1.0, 0.0, 0.0, "silent"),
        (1.0, 1e-9, 0.0, None),
        (1.0, 1.0, 0.01, None),
        (1.0, 1.0, 0.0101, "clipped"),
        (59.6, 0.5, 0.0, "ends too early"),
    ],
)
def test_audio_at_the_limits(duration_s: float, peak: float, clipped: float, kind: str | None) -> None:
    asked = utterance(duration_s)
    try:
        quality.require_audio(asked, reading(asked, peak, clipped), ASKED)
        found = None
    except DataError as error:
        found = error.kind
    assert found == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [("ABA", None), ("ABAB", "more symbols than states"), (" A ", None), ("A\tB", "control characters")],
)
def test_transcripts_at_the_limits(text: str, kind: str | None) -> None:
    try:
        quality.require_text(utterance(text=text), ASKED)
        found = None
    except DataError as error:
        found = error.kind
    assert found == kind
    assert quality.is_well_formed(text) == (kind != "control characters")


def test_outliers_are_further_than_three_times_from_the_median() -> None:
    """The median is 4 symbols per second; the worst comes first, equally bad ones by id."""
    rates = {"m": 4, "n": 4, "o": 4, "slow": 1, "edge": 12, "fast": 13, "fastest": 40, "tardy": 1}
    utterances = [utterance(1.0, "A" * rate, name) for name, rate in rates.items()]
    spoilt = [utterance(1.0, "  ", "no text"), utterance(0.0, "A", "no audio")]
    found = quality.outliers([*utterances, *spoilt], Characters(" A"))
    assert [each.utterance_id for each in found] == ["fastest", "slow", "tardy", "fast"]
    assert found[0] == ("fastest", 40, 1.0, 4.0)
    assert quality.outliers(spoilt, Characters(" A")) == []


def test_only_what_can_be_decoded_is_forgiven_in_dev_and_test() -> None:
    blocking = {"missing", "cut short", "damaged", "too short", "sample rate", "decomposed Unicode"}
    assert not quality.TRAINING_ONLY & blocking
    assert {"empty transcript", "silent", "too long"} <= quality.TRAINING_ONLY
