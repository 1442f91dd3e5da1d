"""Prepared manifests are reused exactly as long as they are right, and problems of the data are counted by reason."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from las.data import manifest
from las.data.corpora.base import Corpus, audio_duration
from las.data.manifest import Utterance
from las.data.tokenizers import Characters

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
    (folder / "train.jsonl").write_bytes((folder / "dev.jsonl").read_bytes().partition(b"\n")[2])
    assert corpus.prepare(tmp_path / "prepared") == first


def test_other_settings_and_other_files_have_their_own_manifests(corpus: Folder, tmp_path: Path) -> None:
    corpus.prepare(tmp_path / "prepared")
    other = Folder(corpus.root, alphabet="abcd")
    other.prepare(tmp_path / "prepared")
    assert other.reads == 2 and len(list((tmp_path / "prepared").iterdir())) == 2
    speech(corpus.root / "c.wav", 500)
    assert len(corpus.prepare(tmp_path / "prepared")["train"]) == 4


def test_audio_that_could_not_be_read_is_tried_again(corpus: Folder, tmp_path: Path) -> None:
    path = corpus.root / "ab.wav"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    utterance = corpus.prepare(tmp_path / "prepared")["train"][1]
    assert (utterance.id, utterance.duration_s) == ("ab", 0.0)
    (problem,) = corpus.problems(corpus.prepare(tmp_path / "prepared")["train"])
    assert problem[:2] == ("ab", str(path)) and "28 are there" in problem.reason
    path.write_bytes(whole)
    utterances = corpus.prepare(tmp_path / "prepared")["train"]
    assert utterances[1].duration_s == 2000 / RATE
    assert corpus.problems(utterances) == []
