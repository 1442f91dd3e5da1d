"""Splits held out of the training part: by speaker where speakers are known, the same for any order."""

import random

from las.data import held_out
from las.data.held_out import Speech

SHARES = {"dev": 0.1, "test": 0.2}


def spoken(speakers: int, each: int) -> list[Speech]:
    return [Speech(f"{speaker}-{number}", f"s{speaker}") for speaker in range(speakers) for number in range(each)]


def test_whole_speakers_are_held_out_in_any_order() -> None:
    speech = spoken(20, 5)
    division = held_out.divide(speech, SHARES, seed=1)
    assert division.by_speaker
    assert {split: len(ids) for split, ids in division.ids.items()} == {"dev": 10, "test": 20}
    for ids in division.ids.values():
        assert ids == {each.id for each in speech if each.speaker in {f"s{name.split('-')[0]}" for name in ids}}
    assert not division.ids["dev"] & division.ids["test"]
    shuffled = random.Random(1).sample(speech, len(speech))
    assert held_out.divide(shuffled, SHARES, seed=1) == division
    assert held_out.divide(speech, SHARES, seed=2) != division


def test_single_utterances_where_speakers_are_unknown_or_too_few() -> None:
    for speech in ([Speech(str(n), "") for n in range(40)], spoken(2, 20), [*spoken(8, 5)[:-1], Speech("x", "")]):
        division = held_out.divide(speech, SHARES, seed=1)
        assert not division.by_speaker
        assert {split: len(ids) for split, ids in division.ids.items()} == {"dev": 4, "test": 8}


def test_a_speaker_with_nearly_everything_stays_in_train() -> None:
    speech = [*(Speech(f"a{n}", "a") for n in range(100)), *(Speech(f"b{n}", f"b{n}") for n in range(6))]
    for seed in range(10):
        division = held_out.divide(speech, {"dev": 0.02, "test": 0.02}, seed)
        assert division.by_speaker and not any(name.startswith("a") for ids in division.ids.values() for name in ids)


def test_at_least_one_utterance_is_held_out() -> None:
    division = held_out.divide([Speech(str(n), "") for n in range(3)], {"dev": 0.01, "test": 0.01}, seed=1)
    assert [len(ids) for ids in division.ids.values()] == [1, 1]


def test_single_utterances_are_held_out_where_asked_for() -> None:
    division = held_out.divide(spoken(20, 5), SHARES, seed=1, whole_speakers=False)
    assert division.reason == "of corpus.hold_out=utterances"
    assert {split: len(ids) for split, ids in division.ids.items()} == {"dev": 10, "test": 20}
