"""Prepared manifests are reused exactly as long as they are right, and problems of the data are counted by reason."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from las.data import manifest
from las.data.corpora.base import Corpus, audio_duration
from las.data.manifest import Utterance
from las.data.tokenizers import Characters
from las.runtime.errors import ConfigError

RATE = 16000


class Folder(Corpus):
    """A corpus for these tests: every wav of a folder, its name is its text; `reads` counts the work done."""

    splits = ("train", "dev")
    metric = "wer"

    def __init__(self, root: Path, alphabet: str = "abc") -> None:
        super().__init__("folder", Characters(alphabet))
        self.root = root
        self.reads = 0

    def settings(self) -> dict:
        return super().settings() | {"root": str(self.root)}

    def inventory(self) -> list[str]:
        return sorted(path.name for path in self.root.glob("*.wav"))

    def utterances(self, split: str) -> list[Utterance]:
        self.known_split(split)
        self.reads += 1
        paths = sorted(self.root.glob("*.wav"))
        return [Utterance(p.stem, str(p), 0, 0.0, audio_duration(p), p.stem, p.stem[0]) for p in paths]

    def normalise(self, text: str) -> list[str]:
        return text.split()


@pytest.fixture
def corpus(tmp_path: Path) -> Folder:
    root = tmp_path / "corpus"
    root.mkdir()
    for index, name in enumerate(("a", "ab", "bc")):
        speech(root / f"{name}.wav", 1000 * (index + 1))
    return Folder(root)


def speech(path: Path, count: int, channels: int = 1, sample_rate: int = RATE) -> Path:
    soundfile.write(path, np.ones((count, channels), np.int16), sample_rate)
    return path


def test_preparing_twice_reads_the_corpus_once(corpus: Folder, tmp_path: Path) -> None:
    first = corpus.prepare(tmp_path / "prepared")
    assert corpus.reads == 2
    again = Folder(corpus.root)
    assert again.prepare(tmp_path / "prepared") == first == {split: corpus.utterances(split) for split in corpus.splits}
    assert again.reads == 0
    (folder,) = (tmp_path / "prepared").iterdir()
    assert folder.name.startswith("folder-")
    assert sorted(path.name for path in folder.iterdir()) == ["dev.jsonl", "index.json", "train.jsonl"]
    assert manifest.read(folder / "train.jsonl") == first["train"]


def test_other_settings_have_their_own_manifests(corpus: Folder, tmp_path: Path) -> None:
    corpus.prepare(tmp_path / "prepared")
    other = Folder(corpus.root, alphabet="abcd")
    other.prepare(tmp_path / "prepared")
    assert other.reads == 2
    assert len(list((tmp_path / "prepared").iterdir())) == 2


def test_a_file_more_or_less_is_noticed(corpus: Folder, tmp_path: Path) -> None:
    corpus.prepare(tmp_path / "prepared")
    speech(corpus.root / "c.wav", 500)
    assert len(corpus.prepare(tmp_path / "prepared")["train"]) == 4


@pytest.mark.parametrize("name", ["train.jsonl", "dev.jsonl", "index.json"])
@pytest.mark.parametrize("damage", ["cut", "missing", "last line"])
def test_damaged_manifests_are_made_again(corpus: Folder, tmp_path: Path, name: str, damage: str) -> None:
    prepared = corpus.prepare(tmp_path / "prepared")
    (path,) = (tmp_path / "prepared").glob(f"*/{name}")
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else content[: content[:-1].rindex(b"\n") + 1])
    assert corpus.prepare(tmp_path / "prepared") == prepared
    assert corpus.reads == 4
    assert path.read_bytes() == content


def test_audio_that_could_not_be_read_is_tried_again(corpus: Folder, tmp_path: Path) -> None:
    path = corpus.root / "ab.wav"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    utterance = corpus.prepare(tmp_path / "prepared")["train"][1]
    assert (utterance.id, utterance.duration_s) == ("ab", 0.0)
    (problem,) = corpus.problems(corpus.prepare(tmp_path / "prepared")["train"])
    assert problem[:2] == ("ab", str(path))
    assert "promises 2000 samples, 28 are there" in problem.reason
    path.write_bytes(whole)
    utterances = corpus.prepare(tmp_path / "prepared")["train"]
    assert utterances[1].duration_s == 2000 / RATE
    assert corpus.problems(utterances) == []


def test_every_kind_of_problem_has_its_reason_and_the_rest_has_none(corpus: Folder, tmp_path: Path) -> None:
    good = corpus.utterances("train")
    not_finite = tmp_path / "nan.wav"
    soundfile.write(not_finite, np.full(1000, np.nan, np.float32), RATE, "FLOAT")
    flac = speech(tmp_path / "cut.flac", RATE)
    flac.write_bytes(flac.read_bytes()[:-20])
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("no audio at all")
    cases = {
        "missing": ({"audio": str(tmp_path / "absent.wav")}, "does not exist"),
        "folder": ({"audio": str(tmp_path)}, "is a folder"),
        "empty": ({"audio": str(tmp_path / "empty.wav")}, "is empty"),
        "text": ({"audio": str(tmp_path / "text.wav")}, "not audio"),
        "not finite": ({"audio": str(not_finite)}, "1000 samples are not finite"),
        "damaged": ({"audio": str(flac)}, "damaged|cut short"),
        "rate": ({"audio": str(speech(tmp_path / "8k.wav", 4000, sample_rate=8000))}, "at 8000 Hz.*at 16000 Hz"),
        "channels": ({"audio": str(speech(tmp_path / "2ch.wav", 4000, 2))}, "2 channels, expected 1"),
        "end": ({"duration_s": 5.0}, "ends at 0.062 s, the utterance at 5.000 s"),
        "short": ({"duration_s": 0.02}, "too short: 0.020 s"),
        "no text": ({"text": ""}, "transcript is empty"),
        "symbol": ({"text": "abz"}, "unknown symbol 'z' in the text 'abz'"),
        "long": ({"text": "abcabc"}, "6 symbols, more than the 5 states"),
    }
    bad = [dataclasses.replace(good[0], id=name, **changes) for name, (changes, _) in cases.items()]
    mixed = [*good[:1], *bad, *good[1:]]
    for num_workers in (1, 4):
        found = corpus.problems(mixed, num_states=lambda num_samples: num_samples // 200, num_workers=num_workers)
        assert [problem.utterance_id for problem in found] == list(cases)
        for problem, utterance, (_, reason) in zip(found, bad, cases.values(), strict=True):
            assert problem.file == utterance.audio
            assert re.search(reason, problem.reason), problem
    assert corpus.problems(good, num_states=lambda num_samples: num_samples // 200) == []


def test_the_table_counts_what_is_there(corpus: Folder) -> None:
    (row, empty) = corpus.table({"train": corpus.utterances("train"), "dev": []})
    assert row[:2] == ("train", 3)
    assert row.hours == pytest.approx(6000 / RATE / 3600)
    assert (row.speakers, row.symbols, row.shortest_s, row.longest_s) == (2, 5, 1000 / RATE, 3000 / RATE)
    assert empty == ("dev", 0, 0.0, 0, 0, 0.0, 0.0)


def test_the_table_counts_unknown_symbols_as_well(corpus: Folder) -> None:
    """They are named by the check, all at once; the table stops at none of them."""
    (row,) = Folder(corpus.root, alphabet="ab").table({"train": corpus.utterances("train")})
    assert row.symbols == 5


def test_an_unknown_split_names_the_nearest(corpus: Folder) -> None:
    with pytest.raises(ConfigError, match=r"folder has no split 'devel'\. Did you mean dev or train\?"):
        corpus.utterances("devel")
