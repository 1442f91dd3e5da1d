"""The page about one's own recordings: its examples are files that are read, and its tables are those of the code."""

import re
from pathlib import Path

import page_examples
import pytest
import yaml
from page_examples import FORMATS, PAGE
from places import REPOSITORY

from las.data.sources import fields, formats
from las.data.sources.base import ReadingOptions

TEXT = PAGE.read_text("utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    page_examples.write(folder)
    return folder


@pytest.mark.parametrize("source", FORMATS)
def test_every_example_is_read_as_what_it_shows(source: str, folder: Path) -> None:
    name, read = formats.read(folder / source, None, ReadingOptions({}, None))
    assert name == FORMATS[source] and read.remarks == []
    assert len(read.entries) in (3, 4) and all(Path(entry.audio).is_file() and entry.text for entry in read.entries)


def test_every_format_is_shown_and_listed() -> None:
    listed = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`\w+`(?:, `\w+`)?) \|", TEXT, re.MULTILINE)))
    assert listed[: len(formats.READERS)] != [] and set(formats.READERS) <= set(listed)
    assert set(FORMATS.values()) == set(formats.READERS) - {"manifest"}


def test_the_usual_names_of_columns_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `(audio|text|id|speaker|channel)` \| ([^|]*) \|", TEXT, re.MULTILINE))
    assert {role: tuple(names.split(", ")) for role, names in rows.items()} == {
        role: fields.USUAL[role] for role in ("audio", "text", "id", "speaker", "channel")
    }
    times = next(line for line in TEXT.splitlines() if line.startswith("| `start`"))
    assert f"| {'; '.join(', '.join(fields.USUAL[role]) for role in ('start', 'end', 'duration'))} |" in times


def test_every_option_is_on_the_page() -> None:
    card = yaml.safe_load((REPOSITORY / "configs/corpus/files.yaml").read_text("utf-8"))
    for key in card.keys() - {"defaults", "_target_", "resampled", "text", "columns"}:
        assert f"corpus.{key}" in TEXT, key
    for key in card["text"].keys() - {"_target_"}:
        assert f"corpus.text.{key}=" in TEXT, key
