"""Search of folders: links are followed, circles and second paths are left out and named, nothing is lost silently."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import sound

from las.data.augmentation.distortion import AudioFolder
from las.data.corpora import hub5, isip_transcripts, telephone_calls
from las.data.sources import formats
from las.data.sources.base import ReadingOptions
from las.decoding.transcription import find_audio
from las.hmm import imported, textgrid
from las.storage import folders


def names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folders.search(folder).files]


def tree(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    return root


def test_linked_folders_and_files_are_found(tmp_path: Path) -> None:
    tree(tmp_path / "elsewhere", "c/3.wav", "c/deep/4.wav", "5.wav")
    here = tree(tmp_path / "here", "a/1.wav", "b/2.wav")
    (here / "c").symlink_to(tmp_path / "elsewhere/c")
    (here / "b/5.wav").symlink_to(tmp_path / "elsewhere/5.wav")
    assert names(here) == ["a/1.wav", "b/2.wav", "b/5.wav", "c/3.wav", "c/deep/4.wav"]
    (tmp_path / "way").symlink_to(here)
    assert names(tmp_path / "way") == names(here)
    assert folders.search(here).remarks() == []


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    here = tree(tmp_path / "here", "b/1.wav", "b/._1.wav", "b/._2.wav")
    (here / "a").symlink_to("b")
    (here / "b/up").symlink_to(here)
    (here / "b/out").symlink_to(tmp_path)
    (here / "gone").symlink_to(tmp_path / "nowhere")
    (here / "itself").symlink_to("itself")
    os.mkfifo(here / "pipe.wav")
    found = folders.search(here)
    assert [path.name for path in found.files] == ["1.wav"]
    reasons = {
        "macOS": "(2): b/._1.wav, b/._2.wav",
        "links": "(2): gone, itself",
        "neither": "(1): pipe.wav",
        "another path": "(2): a, b/up",
        "hold this one": "(1): b/out",
    }
    assert len(found.remarks()) == len(reasons)
    for reason, listed in reasons.items():
        assert any(reason in remark and remark.endswith(listed) for remark in found.remarks())


def test_a_folder_that_is_absent_or_cannot_be_read_is_named(tmp_path: Path, monkeypatch) -> None:
    found = folders.search(tmp_path / "no/where")
    (remark,) = found.remarks()
    assert found.files == [] and remark.startswith(f"{tmp_path}/no/where: left out") and "No such file" in remark
    here = tree(tmp_path, "a/1.wav", "b/2.wav")
    scandir = os.scandir

    def refuse(folder: str) -> object:
        if Path(folder).name == "b":
            raise PermissionError(13, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    found = folders.search(here)
    (remark,) = found.remarks()
    assert [path.name for path in found.files] == ["1.wav"] and "(Permission denied)" in remark and "b" in remark


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8))
def test_any_links_among_folders_give_each_file_once(tmp_path_factory, links: list[tuple[int, int]]) -> None:
    """Folders 0 to 5, each inside the one before or beside it, with a file each and links to each other."""
    root = tmp_path_factory.mktemp("links")
    place = [root / "0", root / "0/1", root / "0/1/2", root / "3", root / "3/4", root / "5"]
    for number, folder in enumerate(place):
        folder.mkdir()
        (folder / f"{number}.wav").touch()
    for number, (one, other) in enumerate(links):
        (place[one] / f"link{number}").symlink_to(place[other])
    found = folders.search(root)
    assert sorted(path.name for path in found.files) == [f"{number}.wav" for number in range(6)]
    assert [path.parent for path in found.files] == sorted(place)
    assert sum(map(len, found.left_out.values())) == len(links)


def test_every_search_of_a_folder_follows_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real, here = tmp_path / "real", tmp_path / "here"
    tree(real, "sw02001.sph", "sw2001A-ms98-a-trans.text", "en20000410_hub5.glm", "hub5.stm")
    (real / "u1.textgrid").write_text(textgrid.text({"phones": [textgrid.Interval(0.0, 1.0, "AH")]}, 1.0))
    here.mkdir()
    sound(real / "x.WAV", 0.1)
    (here / "linked").symlink_to(real)
    (real / "round").symlink_to(here)
    assert telephone_calls.find(here).keys() == {"sw02001"}
    assert isip_transcripts.find(here).keys() == {"sw02001-A"}
    assert hub5._only_file(here, hub5._GLM, "").name == "en20000410_hub5.glm"
    assert imported.phones(here).keys() == {textgrid.file_name("u1")}
    (real / "x.Txt").write_text("one")
    assert [entry.text for entry in formats.read(here, None, ReadingOptions({}, None))[1].entries] == ["one"]
    noises = AudioFolder(here)
    assert [path.name for path in noises.paths] == ["sw02001.sph", "x.WAV"]
    (remark,) = noises.remarks
    assert remark.endswith("(1): linked/round")
    (real / "sw02001.sph").unlink()
    for asked in (here, here / "**/*.WAV"):
        assert find_audio(str(asked)) == [here / "linked/x.WAV"]
        assert f"{asked}: left out" in capsys.readouterr().out
