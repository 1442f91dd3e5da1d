"""LibriSpeech: the parts and their counts, what a copy lacks, partial copies, and fetching parts from a server."""

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import local_server
import numpy as np
import pytest
import soundfile
from hydra import compose, initialize_config_dir
from local_server import Site
from omegaconf import OmegaConf

from las.config.build import build
from las.data.corpora import librispeech
from las.data.corpora.librispeech import PARTS, CorpusPart, LibriSpeech
from las.data.tokenizers import Characters
from las.runtime.errors import ConfigError, DataError

CONFIGS = Path(__file__).parents[3] / "configs"
COUNTS = {
    "train-clean-100": 28539,
    "train-clean-360": 104014,
    "train-other-500": 148688,
    "dev-clean": 2703,
    "dev-other": 2864,
    "test-clean": 2620,
    "test-other": 2939,
    "train-clean-5": 1519,
    "dev-clean-2": 1089,
}


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


def test_the_counts_are_those_of_the_corpus() -> None:
    assert {part: known.utterances for part, known in PARTS.items()} == COUNTS
    assert len({known.sha256 for known in PARTS.values()}) == 9
    for part, known in PARTS.items():
        number = 31 if part in ("train-clean-5", "dev-clean-2") else 12
        assert known.url == f"https://www.openslr.org/resources/{number}/{part}.tar.gz"
        assert len(bytes.fromhex(known.sha256)) == 32


def test_the_whole_of_mini_librispeech(tmp_path: Path) -> None:
    tree = tmp_path / "LibriSpeech"
    add(tree, "train-clean-5", 1519)
    add(tree, "dev-clean-2", 1089, speaker=500)
    found = corpus(tmp_path)
    assert found.splits == ("train", "dev_clean_2")
    prepared = found.prepare(tmp_path / "manifests")
    assert {split: len(listed) for split, listed in prepared.items()} == {"train": 1519, "dev_clean_2": 1089}
    first = prepared["train"][0]
    assert (first.id, first.speaker, first.text) == ("19-100-0000", "19", "IT'S LINE A")
    assert first.audio == str(tree / "train-clean-5/19/100/19-100-0000.flac")
    assert first.duration_s == 0.05
    for listed in prepared.values():
        ids = [utterance.id for utterance in listed]
        assert ids == sorted(set(ids))
    assert found.table(prepared)[0].speakers == 76
    assert found.notes() == []


@pytest.mark.parametrize("below", ["corpora", "corpora/LibriSpeech"])
def test_the_root_is_the_tree_or_the_folder_above(tree: Path, below: str) -> None:
    found = corpus(tree.parents[1] / below)
    assert len(found.utterances("train")) == 30
    assert found.tree == tree


def test_names_in_capitals(tmp_path: Path, small: None) -> None:
    tree = tmp_path / "LIBRISPEECH"
    add(tree, "train-clean-5", 30, upper=True)
    add(tree, "dev-clean-2", 10, speaker=500, upper=True)
    assert next(each.id for each in corpus(tmp_path).utterances("dev_clean_2")) == "500-100-0000"


@pytest.mark.parametrize(
    ("name", "train", "splits"),
    [
        ("librispeech_100", ["train-clean-100"], ("dev_clean", "dev_other", "test_clean", "test_other")),
        (
            "librispeech_960",
            ["train-clean-100", "train-clean-360", "train-other-500"],
            ("dev_clean", "dev_other", "test_clean", "test_other"),
        ),
        ("mini_librispeech", ["train-clean-5"], ("dev_clean_2",)),
    ],
)
def test_cards(tmp_path: Path, name: str, train: list[str], splits: tuple[str, ...]) -> None:
    with initialize_config_dir(str(CONFIGS), version_base=None):
        config = OmegaConf.to_container(compose("train", [f"corpus={name}", f"corpus.root={tmp_path}"]).corpus)
    found = build(config, where="corpus")
    assert isinstance(found, LibriSpeech)
    assert found.splits == ("train", *splits)
    assert found.parts["train"] == train
    assert (found.name, found.metric, found.tokens.size) == (name, "wer", 29)
    assert not (found.partial or found.download)


def test_parts_are_trained_on_together(tree: Path) -> None:
    add(tree, "train-clean-100", 20, speaker=900)
    found = corpus(tree, train=["train-clean-5", "train-clean-100"])
    assert [each.speaker for each in found.utterances("train")][::10] == ["19", "19", "20", "900", "900"]


def test_words_are_scored_in_capitals(tree: Path) -> None:
    assert corpus(tree).normalise("it's  Fine") == ["IT'S", "FINE"]


def test_missing_files_are_named(tree: Path) -> None:
    for number in range(5):
        (tree / f"train-clean-5/20/102/20-102-000{number}.flac").unlink()
    shutil.rmtree(tree / "dev-clean-2" / "500")
    with pytest.raises(DataError) as raised:
        corpus(tree).utterances("train")
    assert str(raised.value).splitlines() == [
        f"{tree}: this is not the whole of LibriSpeech:",
        "  train-clean-5: 25 utterances of 30; without audio: 20-102-0000, 20-102-0001, 20-102-0002 and 2 more",
        "  dev-clean-2: 0 utterances of 10",
        "Copy what is missing; corpus.download=true fetches parts of which there is no folder; corpus.partial=true "
        "accepts a sample and prints its counts",
    ]


def test_missing_transcripts_are_named(tree: Path) -> None:
    (tree / "dev-clean-2/500/100/500-100.trans.txt").write_text("500-100-0000 A\n\n500-100-0001 B\n")
    with pytest.raises(DataError, match=r"dev-clean-2: 2 utterances of 10; without text: 500-100-0002, .* and 5 more"):
        corpus(tree).utterances("train")
    (tree / "dev-clean-2/500/100/500-100.trans.txt").unlink()
    with pytest.raises(DataError, match=r"dev-clean-2: 0 utterances of 10; without text: .* and 7 more"):
        corpus(tree).utterances("train")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"500-101-0000 A", r"500-100.trans.txt:2: the id '500-101-0000' does not begin with 500-100-"),
        (b"500-100-0000 A", r"500-100.trans.txt:2: the id '500-100-0000' is there already"),
        (b"500-100-0001 \xff", r"500-100.trans.txt:2: not UTF-8"),
    ],
)
def test_bad_transcripts_are_named(tree: Path, line: bytes, says: str) -> None:
    (tree / "dev-clean-2/500/100/500-100.trans.txt").write_bytes(b"500-100-0000 A\n" + line)
    with pytest.raises(DataError, match=says):
        corpus(tree).utterances("train")


def test_no_tree_at_all(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "absent"):
        for partial in (True, False):
            with pytest.raises(DataError, match="found none of train-clean-5, dev-clean-2") as raised:
                corpus(root, partial=partial).inventory()
            assert "19-198-0000.flac" in str(raised.value)


@pytest.mark.parametrize("key", ["train", "evaluate"])
def test_unknown_parts_and_none_at_all(tree: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"corpus.{key}=.*'dev-claen' is none. Did you mean dev-clean"):
        corpus(tree, **{key: ["dev-clean", "dev-claen"]})
    with pytest.raises(ConfigError, match=rf"corpus.{key}=\[\]: expected one or more"):
        corpus(tree, **{key: []})
    with pytest.raises(ConfigError, match=r"no split 'dev'\. Did you mean dev_clean_2"):
        corpus(tree).utterances("dev")


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
    assert found.notes() == [
        f"mini: a partial copy of LibriSpeech in {tree}",
        "train-clean-5: 29 utterances of 30; without audio: 20-102-0007",
        "dev-clean-2: not in this copy: scored on the training utterances",
        "test-clean: 3 utterances of 5",
        "test-other: not in this copy, left out",
        "also there, but no part of mini: dev-other",
    ]


def test_a_partial_copy_needs_training_utterances(tree: Path) -> None:
    shutil.rmtree(tree / "train-clean-5")
    with pytest.raises(DataError, match="no training utterances"):
        corpus(tree, partial=True).utterances("train")


def test_manifests_are_made_again_when_a_transcript_changes(tree: Path, tmp_path: Path) -> None:
    before = corpus(tree).prepare(tmp_path / "manifests")
    assert corpus(tree).prepare(tmp_path / "manifests") == before
    path = tree / "dev-clean-2/500/100/500-100.trans.txt"
    path.write_text(path.read_text().replace("LINE A", "MENDED"))
    after = corpus(tree).prepare(tmp_path / "manifests")
    assert after["dev_clean_2"][0].text == "IT'S MENDED"
    assert after["train"] == before["train"]


def test_unreadable_audio_has_no_duration(tree: Path) -> None:
    path = tree / "dev-clean-2/500/100/500-100-0003.flac"
    path.unlink()
    path.write_bytes(b"fLaC")
    listed = corpus(tree).utterances("dev_clean_2")
    assert [each.id for each in listed if each.duration_s == 0] == ["500-100-0003"]


def test_the_real_sample(shared_data: Path) -> None:
    found = corpus(shared_data / "librispeech_sample", evaluate=["dev-clean-2", "test-clean"], partial=True)
    train, test = found.utterances("train"), found.utterances("test_clean")
    assert (len(train), len({each.speaker for each in train})) == (252, 8)
    assert [each.id for each in test] == [
        "1089-134686-0000",
        "1089-134686-0001",
        "1089-134691-0000",
        "1089-134691-0001",
    ]
    assert test[0].text.startswith("HE HOPED THERE WOULD BE STEW FOR DINNER")
    assert all(each.duration_s > 1 for each in train + test)
    assert found.problems(test) == []


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, small: None) -> Iterator[Site]:
    """A server with the archives of the two small parts, pinned in place of OpenSLR's."""
    with local_server.serving() as site:
        for part, count, speaker in (("train-clean-5", 30, 19), ("dev-clean-2", 10, 500)):
            content = packed(
                part, lambda tree, part=part, count=count, speaker=speaker: add(tree, part, count, speaker)
            )
            pin(monkeypatch, site, part, content, count)
        yield site


def packed(part: str, fill: Callable[[Path], None]) -> bytes:
    """A tar.gz of a tree, made in memory and in a folder that is removed again."""
    import tempfile

    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder) / "LibriSpeech")
        with tarfile.open(fileobj=buffer, mode="w:gz", dereference=True) as file:
            for path in sorted(Path(folder).rglob("*")):
                if path.is_file() and path.name != "template":
                    data = path.read_bytes()
                    info = tarfile.TarInfo(str(path.relative_to(folder)))
                    info.size = len(data)
                    file.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def pin(monkeypatch: pytest.MonkeyPatch, site: Site, part: str, content: bytes, count: int) -> None:
    site.files[f"/{part}.tar.gz"] = content
    sha256 = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(PARTS, part, CorpusPart(count, f"{site.url}/{part}.tar.gz", len(content), sha256))


def test_parts_that_are_not_there_are_fetched(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "new"
    found = corpus(root, download=True)
    prepared = found.prepare(tmp_path / "manifests")
    assert {split: len(listed) for split, listed in prepared.items()} == {"train": 30, "dev_clean_2": 10}
    assert sorted(path.name for path in (root / "LibriSpeech").iterdir()) == ["dev-clean-2", "train-clean-5"]
    assert prepared["train"][0].audio == str(root / "LibriSpeech/train-clean-5/19/100/19-100-0000.flac")
    assert "train-clean-5: unpacking" in capsys.readouterr().out
    assert corpus(root, download=True).prepare(tmp_path / "manifests") == prepared
    assert corpus(root).prepare(tmp_path / "manifests") == prepared
    assert len(site.asked) == 2


def test_parts_that_are_there_are_left_alone(site: Site, tree: Path) -> None:
    shutil.rmtree(tree / "dev-clean-2")
    before = (tree / "train-clean-5").stat().st_mtime_ns
    assert len(corpus(tree, download=True).utterances("dev_clean_2")) == 10
    assert site.asked == [("/dev-clean-2.tar.gz", "")]
    assert (tree / "train-clean-5").stat().st_mtime_ns == before


def test_nothing_is_fetched_unless_asked(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"corpus\.download=true fetches"):
        corpus(tmp_path).utterances("train")
    assert site.asked == []


def test_unpacking_that_was_interrupted_starts_again(site: Site, tree: Path) -> None:
    shutil.rmtree(tree / "dev-clean-2")
    (tree / ".unpacking-dev-clean-2").mkdir()
    (tree / ".unpacking-dev-clean-2" / "rest").write_text("")
    assert len(corpus(tree, download=True).utterances("dev_clean_2")) == 10
    assert not (tree / ".unpacking-dev-clean-2").exists()


def test_archives_that_are_wrong(site: Site, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(tree / "dev-clean-2")
    content = site.files["/dev-clean-2.tar.gz"]
    site.files["/dev-clean-2.tar.gz"] = content[:-1] + b"?"
    with pytest.raises(DataError, match=r"dev-clean-2\.tar\.gz: not the file that was expected: its sha256"):
        corpus(tree, download=True).utterances("train")
    other = packed("dev-clean", lambda tree: add(tree, "dev-clean", 10))
    pin(monkeypatch, site, "dev-clean-2", other, 10)
    with pytest.raises(DataError, match="there is no LibriSpeech/dev-clean-2 in it"):
        corpus(tree, download=True).utterances("train")
    assert not (tree / "dev-clean-2").exists()
    assert librispeech.PARTS is librispeech.PARTS
