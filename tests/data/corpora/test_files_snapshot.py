"""A second start reads the manifests and no source, unless something has changed."""

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import soundfile
from refusals import refused
from tiny import sound

from las.data.corpora.files import FilesCorpus
from las.data.manifest import Utterance
from las.data.quality import QualityLimits
from las.data.sources import formats
from las.training import data_preparation

ROWS = [(f"{number}.wav", ("Yes!", "no one")[number // 4 % 2], f"s{number % 4}") for number in range(12)]


class Start(NamedTuple):
    """Result of a start: utterances by split, what was printed, vocabulary, rate, and how many sources were read."""

    splits: dict[str, list[Utterance]]
    printed: str
    vocabulary: str
    sample_rate: int
    num_read: int


Starting = Callable[..., Start]


def write_table(path: Path, rows: list[tuple[str, str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("audio", "text", "speaker"), *rows])


@pytest.fixture
def start(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Starting:
    monkeypatch.chdir(tmp_path)
    for number, (name, _, _) in enumerate(ROWS):
        sound(tmp_path / name, 0.2 + 0.01 * number, number)
    write_table(tmp_path / "all.csv", ROWS)
    sources: list[Path] = []
    read = formats.read

    def counted(path: Path, *rest: object) -> object:
        sources.append(path)
        return read(path, *rest)

    monkeypatch.setattr(formats, "read", counted)

    def run(data_dir: str = "data", **options: object) -> Start:
        sources.clear()
        corpus = FilesCorpus("files", **{"train": "all.csv", "resampled": f"{data_dir}/resampled", **options})
        data = data_preparation.prepare(corpus, Path(data_dir), QualityLimits())
        tokens = corpus.tokens
        return Start(data.splits, capsys.readouterr().out, tokens.vocabulary_hash, corpus.sample_rate, len(sources))

    return run


@pytest.mark.parametrize("unit", ["characters", "words", "bpe"])
def test_the_second_start_is_the_first_without_its_sources(start: Starting, unit: str) -> None:
    first, second = start(unit=unit, pieces=9), start(unit=unit, pieces=9)
    assert (first.num_read, second.num_read) == (1, 0)
    assert second == first._replace(num_read=0)
    assert "dev: held out" in second.printed


def _edited(pattern: str, edit: Callable[[str], str]) -> Callable[[Path], None]:
    """Edit the text of the file of a pattern."""

    def change(folder: Path) -> None:
        (path,) = folder.glob(pattern)
        path.write_text(edit(path.read_text()))

    return change


CHANGES: dict[str, Callable[[Path], object]] = {
    "a text": _edited("all.csv", lambda text: text.replace("Yes!", "Yes yes!", 1)),
    "longer audio": lambda folder: sound(folder / "0.wav", 0.5, 0),
    "a time": lambda folder: os.utime(folder / "0.wav", ns=(0, 0)),
    "a manifest": _edited("data/manifests/files-*/dev.jsonl", lambda text: text.replace("no one", "no two")),
    "no manifests": lambda folder: [path.unlink() for path in (folder / "data/manifests").glob("files-*/*.jsonl")],
    "the snapshot": _edited("data/manifests/files.sources.json", lambda text: text[:-20]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_is_read_again(start: Starting, tmp_path: Path, change: str) -> None:
    start()
    CHANGES[change](tmp_path)
    again, afresh = start(), start(data_dir="elsewhere")
    assert (again.num_read, afresh.num_read) == (1, 1)
    assert (again.splits, again.vocabulary) == (afresh.splits, afresh.vocabulary)
    assert start().num_read == 0


def test_other_options_read_the_sources_again(start: Starting) -> None:
    assert [start(seed=seed).num_read for seed in (1, 2, 2, 1)] == [1, 1, 0, 1]


def test_a_missing_file_is_named_at_the_second_start(start: Starting, tmp_path: Path) -> None:
    start()
    (tmp_path / "3.wav").unlink()
    refused("(1):|all.csv:5: 3.wav", start)


def test_the_copies_by_name_are_those_of_the_last_preparation(start: Starting, tmp_path: Path) -> None:
    path = tmp_path / "data/manifests/files/train.jsonl"
    start()
    before = path.read_bytes()
    path.unlink()
    assert start().num_read == 0
    assert path.read_bytes() == before


def test_folders_are_searched_and_files_resampled_at_every_start(start: Starting, tmp_path: Path) -> None:
    folder = tmp_path / "speech"
    for number in range(6):
        path = folder / f"s{number}" / "1.wav"
        path.parent.mkdir(parents=True)
        sound(path, 0.3, number)
        path.with_suffix(".txt").write_text("one two\n")
    assert [start(train="speech").num_read for _ in range(2)] == [1, 1]
    sound(folder / "s0" / "2.wav", 0.3, 7)
    (folder / "s0" / "2.txt").write_text("one two\n")
    assert sum(map(len, start(train="speech").splits.values())) == 7

    samples, _ = soundfile.read(tmp_path / "0.wav")
    soundfile.write(tmp_path / "0.wav", samples, 8000)
    assert [start().num_read for _ in range(2)] == [1, 1]
