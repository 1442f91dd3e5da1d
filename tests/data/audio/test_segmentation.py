"""Cutting long audio: cores tile it, pauses are found, cuts without one have overlap, little is held."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refused

from las.data.audio.streaming import AudioSegment, Segmenter
from las.runtime.errors import ConfigError

RATE = 1000


def noise(seconds: float, level: float, seed: int = 0) -> torch.Tensor:
    return level * torch.randn(round(seconds * RATE), generator=torch.Generator().manual_seed(seed))


def cut(samples: torch.Tensor, block: int = 700, **options: float) -> list[AudioSegment]:
    return list(Segmenter(RATE, **options)(samples.split(block)))


def require_tiling(pieces: list[AudioSegment], samples: torch.Tensor) -> None:
    """Cores lie side by side from the start to the end, and each piece holds the samples it says it does."""
    ends = [0.0, *(piece.core_end_s for piece in pieces)]
    assert [piece.core_start_s for piece in pieces] == ends[:-1]
    assert ends[-1] == len(samples) / RATE
    for piece in pieces:
        start = round(piece.start_s * RATE)
        assert torch.equal(piece.samples, samples[start : start + len(piece.samples)])
        assert piece.start_s <= piece.core_start_s
        assert start + len(piece.samples) >= round(piece.core_end_s * RATE)


@given(
    st.lists(st.tuples(st.floats(0.05, 12), st.sampled_from([0.0, 1e-4, 0.01, 0.3])), min_size=1, max_size=8),
    st.integers(100, 9000),
    st.integers(100, 9000),
    st.sampled_from([0.3, 1.0, 1.7]),
)
@example([(4.0, 0.3), (0.5, 0.0), (3.0, 0.3)], 1, 700, 1.0)
@settings(max_examples=40)
def test_cores_tile_any_audio_in_any_blocks_and_are_no_longer_than_asked(
    parts: list[tuple[float, float]], block: int, other: int, overlap_s: float
) -> None:
    samples = torch.cat([noise(seconds, level, i) for i, (seconds, level) in enumerate(parts)])
    options = dict(longest_s=6.0, shortest_s=1.0, overlap_s=overlap_s)
    pieces = cut(samples, block, **options)
    require_tiling(pieces, samples)
    assert [piece[1:] for piece in cut(samples, other, **options)] == [piece[1:] for piece in pieces]
    lengths = [piece.core_end_s - piece.core_start_s for piece in pieces]
    assert max(lengths) <= 6.0
    assert min(lengths) >= 1.0 or len(pieces) == 1


def test_short_audio_stays_whole_pauses_or_not() -> None:
    samples = torch.cat([noise(3, 0.3), noise(1, 0.0), noise(3, 0.3)])
    (piece,) = cut(samples, longest_s=8.0)
    assert torch.equal(piece.samples, samples)
    assert cut(torch.zeros(0)) == []


@pytest.mark.parametrize(
    ("lengths", "starts"),  # of speech and pauses in turn, in seconds; every long pause is cut, else the longest
    [((3, 1, 2.5, 1, 4, 1, 3.5, 1), [0, 3.5, 7, 12]), ((3, 0.35, 2, 0.5, 6), [0, 5.6])],
)
def test_pauses_are_cut_in_their_middle(lengths: tuple[float, ...], starts: list[float]) -> None:
    samples = torch.cat([noise(length, (0.3, 1e-4)[i % 2], i) for i, length in enumerate(lengths)])
    pieces = cut(samples, longest_s=8.0)
    assert [piece.core_start_s for piece in pieces] == pytest.approx(starts, abs=0.02)
    assert all(piece.start_s == piece.core_start_s for piece in pieces)  # nothing is heard twice


def test_without_a_pause_the_softest_place_is_cut_and_both_sides_hear_it() -> None:
    samples = noise(14, 0.3)
    samples[6000:6200] *= 0.3  # 10 dB for 0.2 s: no pause
    first, second = cut(samples, longest_s=8.0, overlap_s=1.0)
    assert first.core_end_s == pytest.approx(6.1, abs=0.05)
    assert (first.start_s, len(first.samples)) == (0.0, round((first.core_end_s + 1) * RATE))
    assert second.start_s == pytest.approx(first.core_end_s - 1)


def test_little_is_held() -> None:
    """However long the audio is: what is not held any more can be freed."""
    asked = []

    def blocks() -> Iterator[torch.Tensor]:
        for index in range(2000):
            asked.append(index)
            yield noise(1, 0.3, index)

    cutter = Segmenter(RATE, longest_s=8.0, overlap_s=1.0)
    for count, piece in enumerate(itertools.islice(cutter(blocks()), 100)):
        assert len(piece.samples) <= 10 * RATE
        assert len(asked) <= piece.core_end_s + 8 + 1 + 1, count
    assert piece.samples.untyped_storage().nbytes() <= 4 * 10 * RATE  # its own, not a view of more


def test_silence_is_what_never_is_louder() -> None:
    cutter = Segmenter(RATE, silence_db=-60.0)
    assert cutter.is_silent(torch.zeros(3000)) and cutter.is_silent(noise(3, 1e-4)) and cutter.is_silent(torch.zeros(0))
    click = torch.zeros(3000)
    click[1500] = 0.5
    assert not cutter.is_silent(click)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"longest_s": 3.0, "shortest_s": 2.0}, "longest_s=3.0|shortest_s=2.0"),
        ({"longest_s": float("inf")}, "longest_s=inf"),
        ({"overlap_s": 0.0}, "overlap_s=0.0|0.1 seconds"),
        ({"pause_s": float("nan")}, "pause_s=nan"),
    ],
)
def test_settings_that_make_no_sense_are_named(options: dict[str, float], says: str) -> None:
    refused(says, lambda: Segmenter(RATE, **options), kind=ConfigError)
