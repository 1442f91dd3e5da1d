"""Manifests come back as they were written, and everything else is an error with file and line."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from las.data import manifest
from las.data.manifest import Interval, Utterance

ONE = Utterance("fcjf0_si648", "a.wav", 0, 0.0, 1.5, "sil aa sil", "fcjf0", (Interval(0.0, 0.5, "h#"),))
TIMES = st.floats(0, 1e6)
# Plain values: the shape checker looks at random items of tuples, which hypothesis forbids while it draws.
INTERVALS = st.tuples(TIMES, TIMES, st.text())
FIELDS = st.lists(
    st.tuples(
        st.text(), st.text(), st.integers(0, 7), TIMES, TIMES, st.text(), st.text(), st.lists(INTERVALS, max_size=4)
    ),
    unique_by=lambda fields: fields[0],
    max_size=5,
)


def built(drawn: list[tuple]) -> list[Utterance]:
    return [
        Utterance(*fields, alignment=tuple(Interval(min(a, b), max(a, b), symbol) for a, b, symbol in intervals))
        for *fields, intervals in drawn
    ]


def unplaced(utterances: list[Utterance]) -> list[Utterance]:
    """The same utterances with audio files named without their folders."""
    return [dataclasses.replace(each, audio=Path(each.audio).name) for each in utterances]


@given(drawn=FIELDS)
def test_what_is_written_is_canonical_json_and_read(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple]
) -> None:
    path = tmp_path_factory.mktemp("manifests") / "train.jsonl"
    utterances = built(drawn)
    assert manifest.write(path, utterances) == manifest.content_hash(utterances)
    assert manifest.read(path) == utterances
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    for text, each in zip(path.read_text("ascii").splitlines(), utterances, strict=True):
        values = dataclasses.asdict(each)
        values["alignment"] = [list(interval.values()) for interval in values["alignment"]]
        assert text == json.dumps(values, separators=(",", ":"))


@given(first=FIELDS, second=FIELDS)
def test_equal_hashes_mean_equal_utterances(first: list[tuple], second: list[tuple]) -> None:
    for one, other in ((first, second), (first, first), (first, first[::-1])):
        same_hash = manifest.content_hash(built(one)) == manifest.content_hash(built(other))
        assert same_hash == (unplaced(built(one)) == unplaced(built(other)))


def test_a_manifest_with_these_lines_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    expected = manifest.write(path, [ONE])
    before = path.stat().st_ino, path.stat().st_mtime_ns
    assert manifest.write(path, [ONE]) == expected and (path.stat().st_ino, path.stat().st_mtime_ns) == before
    for others in ([ONE, dataclasses.replace(ONE, id="b")], [dataclasses.replace(ONE, text="sil")], []):
        manifest.write(path, others)
        assert manifest.read(path) == others


@pytest.mark.parametrize("audio", ["a.wav", "b/a.wav", "b/a.wav/", "b/.", "..", "", "/", "x.tar#512+9/a.wav"])
def test_the_hash_has_the_name_of_a_file_as_paths_have_it(audio: str) -> None:
    named = dataclasses.replace(ONE, audio=Path(audio).name)
    assert manifest.content_hash([dataclasses.replace(ONE, audio=audio)]) == manifest.content_hash([named])


def line(**changes: object) -> str:
    entry = dataclasses.asdict(ONE) | {"alignment": [[0.0, 0.5, "h#"]]} | changes
    return json.dumps({key: value for key, value in entry.items() if value is not ...})


BAD_LINES = [
    ('{"id": "x"', "line of JSON"),
    ("[" * 100_000, "line of JSON"),
    ("[]", "an object"),
    (line(text=...), "missing text"),
    (line(transcript="a"), "unknown key transcript"),
    (line(duration_s="long"), "duration_s|'long'"),
    (line(channel=True), "channel|True"),
    (line(channel=-1), "channel|not negative"),
    (line(start_s=float("nan")), "start_s|finite"),
    (line(duration_s=-1.0), "duration_s|not negative"),
    (line(alignment=[[0.5, 0.1, "aa"]]), "alignment holds"),
    (line(alignment=["aa"]), "alignment holds"),
    (line(id="first"), "'first'|line 1"),
]


@pytest.mark.parametrize(("second_line", "says"), BAD_LINES)
def test_a_bad_line_is_named(tmp_path, second_line: str, says: str) -> None:
    (tmp_path / "dev.jsonl").write_text(line(id="first") + "\n" + second_line + "\n", "utf-8")
    refused(f"{tmp_path / 'dev.jsonl'}:2: |{says}", manifest.read, tmp_path / "dev.jsonl")


def test_alignment_may_be_left_out_empty_lines_do_not_matter_and_seconds_may_be_whole(tmp_path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_text(line(alignment=..., duration_s=2, start_s=0) + "\n\n", "utf-8")
    expected = dataclasses.replace(ONE, alignment=(), duration_s=2.0)
    assert manifest.content_hash(manifest.read(path)) == manifest.content_hash([expected])
    refused("absent.jsonl|las prepare", manifest.read, tmp_path / "absent.jsonl")


def test_what_cannot_be_read_back_is_not_written(tmp_path) -> None:
    path = tmp_path / "train.jsonl"
    manifest.write(path, [ONE])
    refused(f"two utterances|{ONE.id}", manifest.write, path, [ONE, ONE])
    refused(f"{ONE.id}|finite", manifest.write, path, [dataclasses.replace(ONE, start_s=float("inf"))])
    assert manifest.read(path) == [ONE]
