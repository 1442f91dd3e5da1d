"""What is asked of an utterance, at the limits, and which transcripts stand out."""

from collections.abc import Callable

import pytest
import torch

from las.data import quality
from las.data.audio.files import AudioInfo
from las.data.audio.worker import AudioLevels, AudioScan
from las.data.audio_scan import segment_key
from las.data.manifest import Utterance
from las.data.quality import QualityCriteria, QualityLimits
from las.data.tokenizers import Characters
from las.nn import ctc
from las.runtime.errors import DataError

ASKED = QualityCriteria(Characters(" AB"), 16000, 1, QualityLimits(longest_s=10.0, clipped=0.01), lambda num_samples: 3)


def utterance(duration_s: float = 1.0, text: str = "AB", name: str = "a") -> Utterance:
    return Utterance(name, "x.wav", 0, 0.5, duration_s, text, "speaker")


def reading(of: Utterance, peak: float = 0.5, clipped: float = 0.0) -> AudioScan:
    return AudioScan(AudioInfo(16000, 16000 * 60, 1), {segment_key(of): AudioLevels(peak, clipped)})


def kind_of(require: Callable[[], object]) -> str | None:
    """Kind of the problem that a requirement raises."""
    try:
        require()
    except DataError as error:
        return error.kind
    return None


@pytest.mark.parametrize(
    ("duration_s", "peak", "clipped", "kind"),
    [(0.0249, 0.5, 0.0, "too short"), (0.025, 0.5, 0.0, None), (10.0, 0.5, 0.0, None), (10.01, 0.5, 0.0, "too long"),
     (1.0, 0.0, 0.0, "silent"), (1.0, 1e-9, 0.0, None), (1.0, 1.0, 0.01, None), (1.0, 1.0, 0.0101, "clipped"),
     (59.6, 0.5, 0.0, "ends too early")],
)  # fmt: skip
def test_audio_at_the_limits(duration_s: float, peak: float, clipped: float, kind: str | None) -> None:
    asked = utterance(duration_s)
    assert kind_of(lambda: quality.require_audio(asked, reading(asked, peak, clipped), ASKED)) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [("ABA", None), ("ABAB", "more symbols than states"), (" A ", None), ("A\tB", "control characters")],
)
def test_transcripts_at_the_limits(text: str, kind: str | None) -> None:
    assert kind_of(lambda: quality.require_text(utterance(text=text), ASKED)) == kind
    assert quality.is_well_formed(text) == (kind != "control characters")


@pytest.mark.parametrize(("text", "states"), [("ABAB", 4), ("AAAA", 7), ("AABB", 6), ("A AA", 5), ("AA", 3)])
def test_ctc_needs_a_state_between_equal_neighbours(text: str, states: int) -> None:
    """As `ctc_loss` does: with a state less, an utterance has probability zero, which adds nothing to the loss."""
    asked = ASKED._replace(num_states=lambda num_samples: states)
    quality.require_text(utterance(text=text), asked)
    assert -float(ctc_loss(text, states, asked)) < 0
    fewer = asked._replace(num_states=lambda num_samples: states - 1)
    assert float(ctc_loss(text, states - 1, asked)) == 0
    kind = kind_of(lambda: quality.require_text(utterance(text=text), fewer))
    assert kind in quality.TRAINING_ONLY
    if states > len(text):
        assert kind == "CTC"
        quality.require_text(utterance(text=text), fewer._replace(ctc=False))


def ctc_loss(text: str, states: int, asked: QualityCriteria) -> torch.Tensor:
    torch.manual_seed(1)
    scores = torch.randn(1, states, asked.tokens.size).log_softmax(-1)
    targets = torch.tensor([asked.tokens.encode(text)])
    return ctc.loss(ctc.CTCOutput(scores, torch.tensor([states])), targets, torch.tensor([len(text)]))


def test_outliers_are_further_than_three_times_from_the_median() -> None:
    """The median is 4 symbols per second; the worst comes first, equally bad ones by id."""
    rates = {"m": 4, "n": 4, "o": 4, "slow": 1, "edge": 12, "fast": 13, "fastest": 40, "tardy": 1}
    utterances = [utterance(1.0, "A" * rate, name) for name, rate in rates.items()]
    spoilt = [utterance(1.0, "  ", "no text"), utterance(0.0, "A", "no audio")]
    found = quality.outliers([*utterances, *spoilt], Characters(" A"))
    assert [each.utterance_id for each in found] == ["fastest", "slow", "tardy", "fast"]
    assert found[0] == ("fastest", 40, 1.0, 4.0)
    assert quality.outliers(spoilt, Characters(" A")) == []
