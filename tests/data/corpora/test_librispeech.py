"""LibriSpeech: the parts and their counts, what a copy lacks, partial copies, and fetching parts from a server."""

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import local_server
import numpy as np
import pytest
import soundfile
from local_server import Site
from refusals import refused

from las.data.corpora.librispeech import PARTS, CorpusPart, LibriSpeech
from las.data.tokenizers import Characters
from las.runtime.errors import ConfigError


def add(tree: Path, part: str, count: int, speaker: int = 19, upper: bool = False) -> None:
    """`count` utterances of a part, ten in a chapter and two chapters for each speaker; audio is one linked file."""
    template = tree / "template"
    if not template.exists():
        tree.mkdir(parents=True, exist_ok=True)
        soundfile.write(template, np.ones(800, np.int16), 16000, format="FLAC")
    name = str.upper if upper else str
    for start in range(0, count, 10):
        chapter = f"{speaker + start // 20}-{100 + start // 10}"
        folder = tree / name(part) / chapter.replace("-", "/")
        folder.mkdir(parents=True)
        numbers = range(min(10, count - start))
        for number in numbers:
            os.link(template, folder / name(f"{chapter}-{number:04}.flac"))
        lines = [f"{chapter}-{number:04} IT'S  LINE {'ABCDEFGHIJ'[number]}" for number in numbers]
        (folder / name(f"{chapter}.trans.txt")).write_text("\n".join(lines))  # as a real one, without a last newline


def corpus(root: Path, **settings: object) -> LibriSpeech:
    usual = {"train": ["train-clean-5"], "evaluate": ["dev-clean-2"]}
    return LibriSpeech("mini", str(root), Characters(" 'ABCDEFGHIJKLMNOPQRSTUVWXYZ"), **(usual | settings))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 30, 10 and 5 utterances."""
    for part, count in {"train-clean-5": 30, "dev-clean-2": 10, "test-clean": 5, "train-clean-100": 20}.items():
        monkeypatch.setitem(PARTS, part, PARTS[part]._replace(utterances=count))


@pytest.fixture
def tree(tmp_path: Path, small: None) -> Path:
    tree = tmp_path / "corpora" / "LibriSpeech"
    add(tree, "train-clean-5", 30)
    add(tree, "dev-clean-2", 10, speaker=500)
    return tree


def test_the_whole_of_mini_librispeech(tree: Path, tmp_path: Path) -> None:
    found = corpus(tree)
    prepared = found.prepare(tmp_path / "manifests")
    assert {split: len(listed) for split, listed in prepared.items()} == {"train": 30, "dev_clean_2": 10}
    first = prepared["train"][0]
    assert (first.id, first.speaker, first.text) == ("19-100-0000", "19", "IT'S LINE A")
    assert first.audio == str(tree / "train-clean-5/19/100/19-100-0000.flac") and first.duration_s == 0.05
    for listed in prepared.values():
        ids = [utterance.id for utterance in listed]
        assert ids == sorted(set(ids))
    assert found.table(prepared)[0].speakers == 2 and found.notes() == []
    assert found.normalise("it's  Fine") == ["IT'S", "FINE"]


@pytest.mark.parametrize(("ending", "form"), [(".opus", "OGG"), (".ogg", "OGG"), (".wav", "WAV")])
def test_copies_may_have_other_audio_and_flac_goes_first(tree: Path, ending: str, form: str) -> None:
    path = tree / "train-clean-5/19/100/19-100-0003.flac"
    kind = {"subtype": "OPUS"} if ending == ".opus" else {}
    soundfile.write(path.with_suffix(ending), np.ones(1600, np.int16), 16000, format=form, **kind)
    assert corpus(tree).utterances("train")[3].audio == str(path)
    path.unlink()
    other = corpus(tree).utterances("train")[3]
    assert other.audio == str(path.with_suffix(ending)) and other.duration_s == 0.1


def test_the_root_is_the_tree_or_the_folder_above_with_names_in_any_case(tmp_path: Path, small: None) -> None:
    for name, upper in (("LibriSpeech", False), ("LIBRISPEECH", True)):
        tree = tmp_path / f"upper {upper}" / name
        add(tree, "train-clean-5", 30, upper=upper)
        add(tree, "dev-clean-2", 10, speaker=500, upper=upper)
        for root in (tree, tree.parent):
            found = corpus(root)
            assert found.tree == tree and found.utterances("dev_clean_2")[0].id == "500-100-0000"


def test_parts_are_trained_on_together(tree: Path) -> None:
    add(tree, "train-clean-100", 20, speaker=900)
    found = corpus(tree, train=["train-clean-5", "train-clean-100"])
    assert [each.speaker for each in found.utterances("train")][::10] == ["19", "19", "20", "900", "900"]


def test_missing_files_are_named(tree: Path) -> None:
    for number in range(5):
        (tree / f"train-clean-5/20/102/20-102-000{number}.flac").unlink()
    transcript = tree / "dev-clean-2/500/100/500-100.trans.txt"
    transcript.write_text("500-100-0000 A\n\n500-100-0001 B\n")
    without = "20-102-0000, 20-102-0001, 20-102-0002 and 2 more"
    train, dev = f"train-clean-5: 25 utterances of 30; without audio: {without}", "dev-clean-2: 2 utterances of 10"
    keys = "corpus.download=true|corpus.partial=true"
    refused(f"{tree}: |{train}|{dev}; without text: 500-100-0002, |5 more|{keys}", corpus(tree).utterances, "train")
    transcript.unlink()
    refused("dev-clean-2: 0 utterances of 10; without text: |7 more", corpus(tree).utterances, "train")
    shutil.rmtree(tree / "train-clean-5")
    refused("no training utterances", corpus(tree, partial=True).utterances, "train")


@pytest.mark.parametrize(
    ("line", "says"),
    [(b"500-101-0000 A", "'500-101-0000'|500-100-"), (b"500-100-0000 A", "'500-100-0000'"), (b"500-1 \xff", "UTF-8")],
)
def test_bad_transcripts_are_named(tree: Path, line: bytes, says: str) -> None:
    (tree / "dev-clean-2/500/100/500-100.trans.txt").write_bytes(b"500-100-0000 A\n" + line)
    refused(f"500-100.trans.txt:2: |{says}", corpus(tree).utterances, "train")


@pytest.mark.parametrize("partial", [True, False])
def test_no_tree_at_all(tmp_path: Path, partial: bool) -> None:
    for root in (tmp_path, tmp_path / "absent"):
        refused("train-clean-5, dev-clean-2|19-198-0000.flac", corpus(root, partial=partial).inventory)


@pytest.mark.parametrize("key", ["train", "evaluate"])
def test_unknown_parts_and_none_at_all(tree: Path, key: str) -> None:
    for parts, says in ((["dev-clean", "dev-claen"], "'dev-claen'|mean dev-clean"), ([], "one or more")):
        refused(f"corpus.{key}={parts}|{says}", lambda: corpus(tree, **{key: parts}), kind=ConfigError)  # noqa: B023
    refused("'dev'|mean dev_clean_2", corpus(tree).utterances, "dev", kind=ConfigError)


def test_a_partial_copy_says_what_is_there(tree: Path) -> None:
    shutil.rmtree(tree / "dev-clean-2")
    (tree / "train-clean-5/20/102/20-102-0007.flac").unlink()
    add(tree, "test-clean", 3, speaker=700)
    add(tree, "dev-other", 3, speaker=800)
    found = corpus(tree, evaluate=["dev-clean-2", "test-clean", "test-other"], partial=True)
    assert found.splits == ("train", "dev_clean_2", "test_clean")
    assert found.utterances("dev_clean_2") == found.utterances("train")
    assert len(found.utterances("train")) == 29
    assert len(found.utterances("test_clean")) == 3
    noted = (
        f"mini: |partial|{tree}",
        "train-clean-5: 29 utterances of 30|audio: 20-102-0007",
        "dev-clean-2: |training utterances",
        "test-clean: 3 utterances of 5",
        "test-other: |left out",
        "no part of mini: dev-other",
    )
    for note, words in zip(found.notes(), noted, strict=True):
        assert all(word in note for word in words.split("|"))


def test_manifests_are_made_again_when_a_transcript_changes(tree: Path, tmp_path: Path) -> None:
    before = corpus(tree).prepare(tmp_path / "manifests")
    assert corpus(tree).prepare(tmp_path / "manifests") == before
    path = tree / "dev-clean-2/500/100/500-100.trans.txt"
    path.write_text(path.read_text().replace("LINE A", "MENDED"))
    after = corpus(tree).prepare(tmp_path / "manifests")
    assert after["dev_clean_2"][0].text == "IT'S MENDED"
    assert after["train"] == before["train"]


def test_the_real_sample(shared_data: Path) -> None:
    found = corpus(shared_data / "librispeech_sample", evaluate=["dev-clean-2", "test-clean"], partial=True)
    train, test = found.utterances("train"), found.utterances("test_clean")
    assert (len(train), len({each.speaker for each in train})) == (252, 8)
    ids = "1089-134686-0000 1089-134686-0001 1089-134691-0000 1089-134691-0001"
    assert [each.id for each in test] == ids.split()
    assert test[0].text.startswith("HE HOPED THERE WOULD BE STEW FOR DINNER")
    assert all(each.duration_s > 1 for each in train + test) and found.problems(test) == []


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, small: None) -> Iterator[Site]:
    """A server with the archives of the two small parts, pinned in place of OpenSLR's."""
    with local_server.serving() as site:
        for part, count, speaker in (("train-clean-5", 30, 19), ("dev-clean-2", 10, 500)):
            pin(monkeypatch, site, part, packed(part, count, speaker), count)
        yield site


def packed(part: str, count: int, speaker: int) -> bytes:
    """A tar.gz of a tree with a part, made in memory and in a folder that is removed again."""
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        add(Path(folder) / "LibriSpeech", part, count, speaker)
        (Path(folder) / "LibriSpeech" / "template").unlink()
        with tarfile.open(fileobj=buffer, mode="w:gz", dereference=True) as file:
            file.add(Path(folder) / "LibriSpeech", "LibriSpeech")
    return buffer.getvalue()


def pin(monkeypatch: pytest.MonkeyPatch, site: Site, part: str, content: bytes, count: int) -> None:
    site.files[f"/{part}.tar.gz"] = content
    sha256 = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(PARTS, part, CorpusPart(count, f"{site.url}/{part}.tar.gz", len(content), sha256))


def test_parts_that_are_not_there_are_fetched(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree, folder = tmp_path / "new" / "LibriSpeech", tmp_path / "manifests"
    prepared = corpus(tree.parent, download=True).prepare(folder)
    assert {split: len(listed) for split, listed in prepared.items()} == {"train": 30, "dev_clean_2": 10}
    assert sorted(path.name for path in tree.iterdir()) == ["dev-clean-2", "train-clean-5"]
    assert prepared["train"][0].audio == str(tree / "train-clean-5/19/100/19-100-0000.flac")
    assert "train-clean-5: unpacking" in capsys.readouterr().out
    for download in (True, False):
        assert corpus(tree.parent, download=download).prepare(folder) == prepared
    assert len(site.asked) == 2


def test_parts_that_are_there_are_left_alone_and_an_interrupted_unpacking_starts_again(site: Site, tree: Path) -> None:
    shutil.rmtree(tree / "dev-clean-2")
    before = (tree / "train-clean-5").stat().st_mtime_ns
    (tree / ".unpacking-dev-clean-2").mkdir()
    (tree / ".unpacking-dev-clean-2" / "rest").write_text("")
    assert len(corpus(tree, download=True).utterances("dev_clean_2")) == 10
    assert site.asked == [("/dev-clean-2.tar.gz", "")] and not (tree / ".unpacking-dev-clean-2").exists()
    assert (tree / "train-clean-5").stat().st_mtime_ns == before


def test_archives_that_are_wrong(site: Site, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(tree / "dev-clean-2")
    site.files["/dev-clean-2.tar.gz"] = site.files["/dev-clean-2.tar.gz"][:-1] + b"?"
    refused("dev-clean-2.tar.gz|sha256", corpus(tree, download=True).utterances, "train")
    pin(monkeypatch, site, "dev-clean-2", packed("dev-clean", 10, 19), 10)
    refused("no LibriSpeech/dev-clean-2", corpus(tree, download=True).utterances, "train")
    assert not (tree / "dev-clean-2").exists()
