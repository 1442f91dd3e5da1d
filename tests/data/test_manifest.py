"""Manifests come back as they were written, and everything else is an error with file and line."""

import dataclasses
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from las.data import manifest
from las.data.manifest import Interval, Utterance
from las.runtime.errors import DataError

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
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple]) -> None:
    path = tmp_path_factory.mktemp("manifests") / "train.jsonl"
    utterances = built(drawn)
    assert manifest.write(path, utterances) == manifest.content_hash(utterances)
    assert manifest.read(path) == utterances
    assert len(path.read_bytes().splitlines()) == len(utterances)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@given(first=FIELDS, second=FIELDS)
def test_equal_hashes_mean_equal_utterances(first: list[tuple], second: list[tuple]) -> None:
    for one, other in ((first, second), (first, first), (first, first[::-1])):
        same_hash = manifest.content_hash(built(one)) == manifest.content_hash(built(other))
        assert same_hash == (unplaced(built(one)) == unplaced(built(other)))


@given(drawn=FIELDS)
def test_lines_are_canonical_json(tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple]) -> None:
    path = tmp_path_factory.mktemp("manifests") / "train.jsonl"
    manifest.write(path, built(drawn))
    for text, each in zip(path.read_text("ascii").splitlines(), built(drawn), strict=True):
        values = dataclasses.asdict(each)
        values["alignment"] = [list(interval.values()) for interval in values["alignment"]]
        assert text == json.dumps(values, separators=(",", ":"))


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


def test_where_the_audio_lies_does_not_count_in_the_hash() -> None:
    moved = dataclasses.replace(ONE, audio=f"elsewhere/{ONE.audio}")
    assert manifest.content_hash([moved]) == manifest.content_hash([ONE])


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Utterance)])
def test_every_field_and_the_order_count_in_the_hash(field: str) -> None:
    other = {"channel": 1, "start_s": 0.25, "duration_s": 2.0, "alignment": ()}.get(field, "other")
    changed = dataclasses.replace(ONE, **{field: other})
    assert manifest.content_hash([changed]) != manifest.content_hash([ONE])
    assert manifest.content_hash([ONE, changed]) != manifest.content_hash([changed, ONE])


def line(**changes: object) -> str:
    entry = dataclasses.asdict(ONE) | {"alignment": [[0.0, 0.5, "h#"]]} | changes
    return json.dumps({key: value for key, value in entry.items() if value is not ...})


@pytest.mark.parametrize(
    ("second_line", "says"),
    [
        ('{"id": "x"', "not a line of JSON"),
        ("[" * 100_000, "not a line of JSON"),
        ("[]", "expected an object"),
        (line(text=...), "missing text"),
        (line(transcript="a"), "unknown key transcript"),
        (line(duration_s="long"), "duration_s has the value 'long'"),
        (line(channel=True), "channel has the value True"),
        (line(channel=-1), "not negative"),
        (line(start_s=float("nan")), "finite"),
        (line(duration_s=-1.0), "not negative"),
        (line(alignment=[[0.5, 0.1, "aa"]]), "alignment holds"),
        (line(alignment=["aa"]), "alignment holds"),
        (line(id="first"), "already on line 1"),
    ],
)
def test_a_bad_line_is_named(tmp_path, second_line: str, says: str) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_text(line(id="first") + "\n" + second_line + "\n", "utf-8")
    with pytest.raises(DataError, match=says) as raised:
        manifest.read(path)
    assert str(raised.value).startswith(f"{path}:2: ")


def test_alignment_may_be_left_out_and_empty_lines_do_not_matter(tmp_path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_text(line(alignment=...) + "\n\n", "utf-8")
    assert manifest.read(path) == [dataclasses.replace(ONE, alignment=())]


def test_whole_seconds_are_read_as_seconds(tmp_path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_text(line(duration_s=2, start_s=0) + "\n", "utf-8")
    assert manifest.content_hash(manifest.read(path)) == manifest.content_hash(
        [dataclasses.replace(ONE, duration_s=2.0)]
    )


def test_a_missing_manifest_says_what_to_type(tmp_path) -> None:
    with pytest.raises(DataError, match=r"absent\.jsonl.*las prepare"):
        manifest.read(tmp_path / "absent.jsonl")


def test_what_cannot_be_read_back_is_not_written(tmp_path) -> None:
    path = tmp_path / "train.jsonl"
    manifest.write(path, [ONE])
    with pytest.raises(DataError, match="two utterances"):
        manifest.write(path, [ONE, ONE])
    with pytest.raises(DataError, match="not a finite number"):
        manifest.write(path, [dataclasses.replace(ONE, start_s=float("inf"))])
    assert manifest.read(path) == [ONE]


def test_a_failed_write_leaves_the_old_manifest_and_nothing_else(tmp_path, monkeypatch) -> None:
    path = tmp_path / "train.jsonl"
    manifest.write(path, [ONE])

    def disk_full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space"):
        manifest.write(path, [dataclasses.replace(ONE, text="other")])
    assert manifest.read(path) == [ONE]
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.jsonl"]
