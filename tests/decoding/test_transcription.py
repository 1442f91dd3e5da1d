"""Words of tokens, their times, and words of pieces that overlap: nothing lost, nothing twice."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from las.data import tokenizers
from las.data.audio import streaming
from las.decoding import transcription
from las.decoding.transcription import TimedToken, TimedWord
from las.nn.token_times import monotonic_times

LETTERS = tokenizers.Characters(" 'ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def timed(
    symbols: Sequence[str], start_s: float = 0.0, each_s: float = 0.1, confidence: float = 0.5
) -> list[TimedToken]:
    return [
        TimedToken(symbol, start_s + index * each_s, start_s + (index + 1) * each_s, confidence)
        for index, symbol in enumerate(symbols)
    ]


def word(text: str, start_s: float, end_s: float) -> TimedWord:
    return TimedWord(text, (TimedToken(text, float(start_s), float(end_s), 1.0),))


def test_a_diffuse_row_does_not_pull_the_others_along() -> None:
    weights = torch.eye(6)[[0, 1, 2, 3]]
    weights[0] = torch.tensor([0.18, 0.16, 0.16, 0.16, 0.16, 0.18])  # its mean lies behind the next two tokens
    times = monotonic_times(weights, state_s=0.1, duration_s=0.6)
    assert [start_s for start_s, _ in times] == pytest.approx([0.0, 0.1, 0.2])
    assert monotonic_times(weights[:1], 0.1, 0.6) == [], "the end alone"


@pytest.mark.parametrize("seed", range(20))
def test_times_of_any_attention_tile_and_never_run_backwards(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    weights = torch.softmax(5 * torch.randn(8, 11, generator=draw), dim=1)
    duration_s = 0.9  # less than 11 states of 0.1 s: the last one is partly padding
    times = monotonic_times(weights, 0.1, duration_s)
    assert (times[0][0], times[-1][1], len(times)) == (0.0, duration_s, 7)
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(times))
    assert all(start <= end for start, end in times)


@given(st.text(" 'ABC", max_size=30))
def test_words_of_letters_are_what_stands_between_spaces(text: str) -> None:
    ids = LETTERS.encode(text)
    found = transcription.of_tokens(timed(text), ids, LETTERS)
    assert [each.text for each in found] == text.split()
    assert all("".join(token.symbol for token in each.tokens) == each.text for each in found)


def test_words_of_sentence_pieces(tmp_path: Path) -> None:
    model = tokenizers.train_sentence_pieces(["hello world", "low word hold"] * 4, tmp_path / "m", 12)
    text = "world hello low"
    ids = model.encode(text)
    found = transcription.of_tokens(timed([model.symbols[i] for i in ids]), ids, model)
    assert [each.text for each in found] == text.split()
    assert [token.symbol for each in found for token in each.tokens if token.symbol != "▁"] == [
        model.symbols[i] for i in ids if model.symbols[i] != "▁"
    ]


def test_the_confidence_of_a_word_is_the_geometric_mean() -> None:
    (found,) = transcription.of_tokens(
        [TimedToken("A", 0.0, 1.0, 0.9), TimedToken("B", 1.0, 2.0, 0.4)], LETTERS.encode("AB"), LETTERS
    )
    assert found.confidence == pytest.approx(0.6)
    assert (found.start_s, found.end_s, found.centre_s) == (0, 2, 1)
    assert TimedWord("A", (TimedToken("A", 0.0, 1.0, 0.0),)).confidence < 1e-20


def test_the_common_word_nearest_to_the_border_joins() -> None:
    left = [word("ONE", 0, 1), word("TWO", 4.2, 4.6), word("THREE", 4.8, 5.3), word("FOX", 5.5, 6.0)]
    right = [word("HOO", 4.0, 4.5), word("THREE", 4.7, 5.2), word("FOUR", 5.5, 6.0), word("FIVE", 7, 8)]
    found = transcription.stitch(left, right, 5.0, 1.0)
    assert [each.text for each in found] == ["ONE", "TWO", "THREE", "FOUR", "FIVE"]


def test_where_nothing_agrees_a_word_belongs_to_its_side() -> None:
    left, right = [word("A", 4.0, 4.4), word("X", 5.3, 5.6)], [word("Y", 4.2, 4.6), word("B", 5.2, 5.6)]
    assert [each.text for each in transcription.stitch(left, right, 5.0, 1.0)] == ["A", "B"]


RATE = 1000


def speech(seed: int) -> tuple[list[TimedWord], torch.Tensor]:
    """Words of noise, some right after another, and what they sound like."""
    draw = random.Random(seed)
    said, at = [], 0.3
    for _ in range(draw.randint(20, 80)):
        length = draw.uniform(0.15, 0.8)
        said.append(word(draw.choice("ABCDE"), at, at + length))
        at += length + (draw.choice([0.0, 0.0, 0.0, 0.05, 0.2, 0.5, 1.0]))
    samples = 1e-3 * torch.randn(round((at + 0.3) * RATE), generator=torch.Generator().manual_seed(seed))
    for each in said:
        samples[round(each.start_s * RATE) : round(each.end_s * RATE)] *= 300
    return said, samples


def ear(piece: streaming.AudioSegment, said: list[TimedWord], draw: random.Random) -> list[TimedWord]:
    """What a recogniser hears in a piece: whole words, at about their times, and something else where one is cut."""
    end_s = piece.start_s + len(piece.samples) / RATE
    found = []
    for each in said:
        start, end = max(each.start_s, piece.start_s), min(each.end_s, end_s)
        if end - start > 0.05:
            whole = (start, end) == (each.start_s, each.end_s)
            off = draw.uniform(-0.1, 0.1)
            found.append(word(each.text if whole else "?", start + off, end + off))
    return found


@settings(max_examples=100, derandomize=True)
@given(st.integers(0, 10_000))
def test_pieces_of_any_speech_give_every_word_once(seed: int) -> None:
    """A word is at most 0.8 s long and pieces hear 1 s beyond a cut: each is whole in the piece it belongs to."""
    said, samples = speech(seed)
    draw, found = random.Random(seed), []
    cutter = streaming.Segmenter(RATE, longest_s=5.0, shortest_s=1.0, overlap_s=1.0)
    for piece in cutter(samples.split(777)):
        found = transcription.stitch(
            found, ear(piece, said, draw), piece.core_start_s, piece.core_start_s - piece.start_s
        )
    assert [each.text for each in found] == [each.text for each in said]
