"""Files from outside: only regular ones, none too large or nested too deeply, whoever reads them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Answer, Las
from tiers import rest_slow
from tiny import overrides, wav

from las.config import build
from las.runtime.errors import StorageError
from las.storage import bounded, checkpoint
from las.storage.checkpoint import FILES

DEEP = "[" * 3000
DEEP_YAML = f"rows: {DEEP[:600]}{']' * 600}\n"
RUN_FILES = ["result.json", "config.json", "symbols.json", "metrics.jsonl"]


def sparse(path: Path) -> None:
    """60 GB that take no room."""
    path.touch()
    os.truncate(path, 60 << 30)


STRANGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "sparse": (sparse, "64,424,509,440 bytes"),
    "endless": (lambda path: path.symlink_to("/dev/zero"), "a device"),
    "fifo": (os.mkfifo, "a FIFO"),
    "folder": (lambda path: path.mkdir(), "a folder"),
}
DEEP_FILE = {"deep": (lambda path: path.write_text(f'{{"a": {DEEP}\n'), "100 deep")}


def replace(path: Path, kind: str) -> str:
    """Put something strange in the place of a file, and return what is said of it."""
    path.unlink()
    make, says = (STRANGE | DEEP_FILE)[kind]
    make(path)
    return says


def in_words(answer: Answer, code: int, *says: str) -> None:
    """Require the exit code and words of a person's error, with no traceback and not the whole file in it."""
    assert answer.code == code, answer.err
    assert len(answer.err) < 1000 and "Traceback" not in answer.err
    assert all(each in answer.err for each in says), answer.err


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", ["MANIFEST.json", *FILES])
def test_a_checkpoint_of_strange_files_is_refused_unread(name: str, kind: str, trained_copy: Path) -> None:
    directory = trained_copy / "checkpoints/step-00000004"
    says = replace(directory / name, kind)
    with pytest.raises(StorageError, match=rf"{name}: damaged.*\({says}"):
        checkpoint.find(directory)


@pytest.mark.parametrize("kind", STRANGE)
def test_a_pointer_that_is_no_file_is_named_and_the_newest_is_taken(kind: str, trained_copy: Path, las: Las) -> None:
    says = replace(trained_copy / "checkpoints/best", kind)
    found, (line,) = checkpoint.find(trained_copy)
    assert found.directory.name == "step-00000004" and says in line
    answer = las("export", f"checkpoint={trained_copy}", f"output={trained_copy}/x", "strict=true")
    in_words(answer, 5, "checkpoints/best", says, "strict=true")


def test_checkpoints_that_are_all_strange_and_links(trained: Path, trained_copy: Path, las: Las) -> None:
    directory = trained_copy / "checkpoints/step-00000004"
    elsewhere = shutil.copytree(directory, trained_copy / "elsewhere")
    for path in elsewhere.iterdir():
        (directory / path.name).unlink()
        (directory / path.name).symlink_to(path)
    assert checkpoint.find(directory)[0].state["step"] == 4
    for each in (trained_copy / "checkpoints").glob("step-*"):
        replace(each / "MANIFEST.json", "sparse")
    answer = las("transcribe", f"checkpoint={trained_copy}", f"input={wav(trained, 'mdab0_sx0')}", "search=greedy")
    in_words(answer, 5, "no checkpoint")
    assert answer.err.count("64,424,509,440 bytes") == 2


@pytest.mark.parametrize("kind", ["sparse", "endless", "deep"])
@pytest.mark.parametrize("name", rest_slow(RUN_FILES, keep=3))
def test_the_files_of_a_run_are_regular_and_shallow(
    name: str, kind: str, trained: Path, trained_copy: Path, las: Las
) -> None:
    if name != "result.json":
        (trained_copy / "result.json").unlink()
    says = replace(trained_copy / name, kind)
    in_words(las("train", *overrides(trained), f"run_dir={trained_copy}"), 5, name, says, "damaged")


def test_a_bundle_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    sparse(tmp_path / "model.las")
    with pytest.raises(StorageError, match=r"model\.las: .*64,424,509,440 bytes"):
        checkpoint.find(tmp_path / "model.las")


def test_depth_has_a_bound_below_that_of_python() -> None:
    deepest = "[" * bounded.MAX_DEPTH + "]" * bounded.MAX_DEPTH
    assert bounded.parse(deepest) and bounded.parse('{"a": 1}') == {"a": 1} and bounded.parse("3") == 3
    for text in (f"[{deepest}]", '{"a":' * 101 + "1" + "}" * 101, DEEP + "]" * 3000, DEEP, '{"a":' * 200_000):
        with pytest.raises(ValueError, match="100 deep"):
            bounded.parse(text)


def test_half_a_line_at_the_end_is_none_and_a_long_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    assert bounded.stored_lines(path) == []
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert bounded.stored_lines(path) == [{"step": 1}, {"step": 2}]
    monkeypatch.setattr(bounded, "LINE", 100)
    for line in ("[1]", "x", f'{{"a": {DEEP}}}', '{"a": "' + 200 * "x" + '"}'):
        path.write_text(f'{{"step": 1}}\n{line}\n')
        with pytest.raises(StorageError, match=r"metrics\.jsonl:2: damaged"):
            bounded.stored_lines(path)


def test_deep_manifests_and_readings_are_made_again(corpus: Path, las: Las) -> None:
    prepare = ("prepare", *overrides(corpus))
    assert las(*prepare).code == 0
    written = {path: path.read_bytes() for path in (corpus / "data").rglob("*.json*")}
    names = {path.name for path in written}
    assert {"index.json", "train.jsonl"} <= names and len(names) >= 5, names
    for path in written:
        path.write_text(DEEP + "\n")
    las(*prepare).succeeds()
    for path, content in written.items():
        assert path.read_bytes().splitlines()[-1] == content.splitlines()[-1], path


def test_deep_configs_and_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, las: Las) -> None:
    value = f"name={DEEP[:600]}{']' * 600}"
    in_words(las("train", value), 2, "name=[[[", "too deep")
    in_words(las("train", "-m", value), 2, "too deep")
    shutil.copytree(build.config_directory(), tmp_path / "configs")
    (tmp_path / "configs/search/deep.yaml").write_text(DEEP_YAML)
    monkeypatch.setattr(build, "config_directory", lambda: tmp_path / "configs")
    in_words(las("train", "search=deep"), 2, f"{tmp_path}/configs", "too deep")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' is there twice"),
        (f'{{"a": {"9" * 400}}}', "400 digits"),
        (f'{{"a": -{"9" * 5000}}}', "5,001 digits"),
    ],
)
def test_json_is_read_strictly(text: str, says: str) -> None:
    for given in (text, text.encode(), text.encode("utf-8-sig")):
        with pytest.raises(ValueError, match=says):
            bounded.parse(given)
    (_, first), (_, second) = bounded.parse_lines([b'\xef\xbb\xbf{"a": 1}\n', text.encode()])
    assert first == {"a": 1} and isinstance(second, ValueError) and says in str(second)
