"""Formats of transcriptions: what other programs read, to the letter."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from las.decoding import captions
from las.decoding.transcription import SegmentTranscript, TimedToken, TimedWord, Transcription
from las.scoring import ctm


def recording(name: str, *said: tuple[str, float, float]) -> Transcription:
    words = tuple(TimedWord(text, (TimedToken(text, start_s, end_s, 0.5),)) for text, start_s, end_s in said)
    tokens = tuple(token for word in words for token in word.tokens)
    heard = SegmentTranscript(tokens, words, -1.5, "eos", torch.zeros(len(words) + 1, 4, dtype=torch.float16))
    return Transcription(name, 3.0, words, (heard,), 40.0)


HELLO = recording("a/hello there.wav", ("HELLO", 0.1, 0.5), ("WORLD", 0.6, 1.25))
LATER = recording("b/later.wav", ("<LATER>", 3661.0, 3661.5), ("&", 3663.0, 3663.0625))


def test_text_is_the_text_of_one_and_a_table_of_many() -> None:
    assert captions.text([HELLO]) == "HELLO WORLD\n"
    assert captions.text([HELLO, LATER]) == "a/hello there.wav\tHELLO WORLD\nb/later.wav\t<LATER> &\n"


def test_time_marks_read_back(tmp_path: Path) -> None:
    (tmp_path / "x.ctm").write_text(captions.time_marks([HELLO, LATER]))
    found = ctm.read(tmp_path / "x.ctm")
    assert found[:2] == [
        ctm.CTMWord("hello_there", "1", 0.1, 0.4, "HELLO", 0.5),
        ctm.CTMWord("hello_there", "1", 0.6, 0.65, "WORLD", 0.5),
    ]
    assert [word.file for word in found[2:]] == ["later", "later"]


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["/d/s1/0001.wav", "/d/s2/0001.wav", "/d/s2/0002.wav"], ["s1-0001", "s2-0001", "0002"]),
        (["1/a/x.wav", "2/a/x.wav", "1/b/X.wav"], ["1-a-x", "2-a-x", "b-X"]),
        (["x.wav", "x.flac"], ["x-wav", "x-flac"]),
        (["a b.wav", "a_b.wav"], ["a_b-wav-1", "a_b-wav-2"]),
        ([";comment.wav"], ["_comment"]),
    ],
)
def test_names_of_recordings_are_short_and_tell_them_apart(ids: list[str], names: list[str]) -> None:
    assert captions.recording_names(ids) == names


paths = st.lists(st.sampled_from(("a", "A", "a b", "a_b", "a-b", "b", "b-wav", "b.wav", "..", "/a", "")), min_size=1)


@given(st.lists(paths.map("/".join), max_size=8))
def test_no_two_recordings_have_one_name_in_either_case_of_letters(ids: list[str]) -> None:
    names = captions.recording_names(ids)
    assert len({name.lower() for name in names}) == len(ids)
    assert all(re.fullmatch(r"[^\s;]\S*", name) for name in names if name)


def test_time_marks_have_the_channel_counted_from_one_and_names_among_all_ids(tmp_path: Path) -> None:
    first, second = (recording(f"{folder}/x.wav", ("A", 0.0, 0.5)) for folder in "ab")
    second = Transcription.from_state(dataclasses.replace(second, channel=1).to_state())
    marks = captions.time_marks([first, second])
    assert [line.split()[:2] for line in marks.splitlines()] == [["a-x", "1"], ["b-x", "2"]]
    assert captions.writer("ctm", ["a/x.wav", "b/x.wav"])([first]) == marks.splitlines(keepends=True)[0]


def test_subrip() -> None:
    assert captions.subrip([LATER]) == (
        "1\n01:01:01,000 --> 01:01:01,500\n<LATER>\n\n2\n01:01:03,000 --> 01:01:03,062\n&\n"
    )
    assert captions.subrip([recording("silence")]) == ""


def test_web_vtt() -> None:
    assert captions.web_vtt([HELLO]) == "WEBVTT\n\n00:00:00.100 --> 00:00:01.250\nHELLO WORLD\n"
    assert "&lt;LATER&gt;\n" in captions.web_vtt([LATER]) and "\n&amp;\n" in captions.web_vtt([LATER])
    assert captions.web_vtt([recording("silence")]) == "WEBVTT\n"


def test_captions_are_short_and_keep_every_word() -> None:
    said = [("WORD" * (1 + index % 4), 0.3 * index, 0.3 * index + 0.25) for index in range(200)]
    shown = list(captions.cues(recording("x", *said).words))
    assert [word.text for cue in shown for word in cue] == [text for text, _, _ in said]
    for cue in shown:
        assert len(" ".join(word.text for word in cue)) <= captions.LONGEST_TEXT
        assert cue[-1].end_s - cue[0].start_s <= captions.LONGEST_S
    lines = captions.subrip([recording("x", *said)]).split("\n\n")[0].splitlines()[2:]
    assert len(lines) == 2 and max(map(len, lines)) <= captions.LONGEST_TEXT // 2 + 16
    (long,) = captions.cues(recording("x", ("W" * 100, 0.0, 9.0)).words)
    assert len(long) == 1


def test_a_pause_begins_a_caption() -> None:
    words = recording("x", ("A", 0.0, 0.5), ("B", 1.2, 1.5), ("C", 2.4, 2.5)).words
    assert [[word.text for word in cue] for cue in captions.cues(words)] == [["A", "B"], ["C"]]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "00:00:00.000"), (59.9996, "00:01:00.000"), (7261.5, "02:01:01.500")]
)
def test_the_clock(seconds: float, shown: str) -> None:
    assert captions.clock(seconds, ".") == shown
