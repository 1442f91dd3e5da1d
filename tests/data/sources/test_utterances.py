"""Splits held out of the training part: by speaker where speakers are known, the same for any order."""

import random

import pytest

from las.data.sources import utterances
from las.data.sources.base import Entry

SHARES = {"dev": 0.1, "test": 0.2}


def spoken(speakers: int, each: int, speaker: str = "s{}") -> list[Entry]:
    return [Entry("", "", "", f"{n}-{take}", speaker.format(n)) for n in range(speakers) for take in range(each)]


def test_whole_speakers_are_held_out_in_any_order() -> None:
    entries = spoken(20, 5)
    division, reason = utterances.divide(entries, SHARES, seed=1)
    assert not reason and {split: len(listed) for split, listed in division.items()} == {
        "dev": 10,
        "test": 20,
        "train": 70,
    }
    assert sorted(each for listed in division.values() for each in listed) == sorted(entries)
    assert sum(len({each.speaker for each in listed}) for listed in division.values()) == 20
    shuffled, _ = utterances.divide(random.Random(1).sample(entries, len(entries)), SHARES, seed=1)
    assert {split: sorted(listed) for split, listed in shuffled.items()} == {s: sorted(e) for s, e in division.items()}
    assert utterances.divide(entries, SHARES, seed=2)[0] != division


@pytest.mark.parametrize(
    ("entries", "whole_speakers", "says"),
    [
        (spoken(40, 1, ""), True, "no speaker"),
        (spoken(2, 20), True, "only 2 speakers"),
        ([*spoken(8, 5)[:-1], Entry("", "", "", "x", "")], True, "no speaker"),
        (spoken(8, 5), False, "corpus.hold_out=utterances"),
    ],
)
def test_single_utterances_are_held_out_with_the_reason(entries: list[Entry], whole_speakers: bool, says: str) -> None:
    division, reason = utterances.divide(entries, SHARES, 1, whole_speakers)
    assert says in reason
    assert {split: len(listed) for split, listed in division.items()} == {"dev": 4, "test": 8, "train": 28}


def test_a_speaker_with_nearly_everything_stays_in_train() -> None:
    entries = [*spoken(1, 100, "most"), *(Entry("", "", "", f"b{n}", f"b{n}") for n in range(6))]
    for seed in range(10):
        division, reason = utterances.divide(entries, {"dev": 0.02, "test": 0.02}, seed)
        assert not reason and len(division["train"]) >= 100 and {each.speaker for each in division["train"]} >= {"most"}


def test_at_least_one_utterance_is_held_out() -> None:
    division, _ = utterances.divide(spoken(3, 1, ""), {"dev": 0.01, "test": 0.01}, seed=1)
    assert [len(listed) for listed in division.values()] == [1, 1, 1]
