"""Files from outside: only regular ones, none too large or nested too deeply, whoever reads them."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Answer
from tiers import rest_slow
from tiny import overrides, wav

from las.config import build
from las.data.audio_scan import AudioScanCache
from las.data.synthesis import rendering
from las.data.tokenizers import Characters
from las.lm import arpa, loading
from las.reproduction import recipe, results
from las.runtime.errors import DataError, StorageError
from las.storage import bounded, bundle, checkpoint, lock
from las.storage.checkpoint import FILES

Las = Callable[..., Answer]

DEEP = "[" * 3000
HUGE = 60 << 30


def sparse(path: Path) -> None:
    """60 GB that take no room."""
    path.touch()
    os.truncate(path, HUGE)


STRANGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "sparse": (sparse, r"64,424,509,440 bytes, more than the [0-9,]+ that it may have"),
    "endless": (lambda path: path.symlink_to("/dev/zero"), "a device, not a regular file"),
    "fifo": (os.mkfifo, "a FIFO, not a regular file"),
    "folder": (lambda path: path.mkdir(), "a folder, not a regular file"),
}


def replace(path: Path, kind: str) -> str:
    """Puts something strange in the place of a file; what is said of it."""
    path.unlink()
    make, says = STRANGE[kind]
    make(path)
    return says


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", ["MANIFEST.json", *FILES])
def test_a_checkpoint_of_strange_files_is_refused_unread(name: str, kind: str, trained_copy: Path) -> None:
    directory = trained_copy / "checkpoints/step-00000004"
    says = replace(directory / name, kind)
    with pytest.raises(StorageError, match=rf"{name}: damaged or incomplete checkpoint \({says}\)"):
        checkpoint.find(directory)


@pytest.mark.parametrize("kind", STRANGE)
def test_a_pointer_that_is_no_file_is_named_and_the_newest_is_taken(kind: str, trained_copy: Path, las: Las) -> None:
    says = replace(trained_copy / "checkpoints/best", kind)
    found, (line,) = checkpoint.find(trained_copy)
    assert found.directory.name == "step-00000004" and line.endswith(
        "step-00000004 is used in its place, which may be older"
    )
    answer = las("export", f"checkpoint={trained_copy}", f"output={trained_copy}/x", "strict=true")
    assert answer.code == 5
    assert re.search(rf"checkpoints/best: does not name a checkpoint \({says}\)\. strict=true refuses", answer.err)


def test_the_user_is_told_in_words(trained: Path, trained_copy: Path, las: Las) -> None:
    for directory in (trained_copy / "checkpoints").glob("step-*"):
        replace(directory / "MANIFEST.json", "sparse")
    answer = las("transcribe", f"checkpoint={trained_copy}", f"input={wav(trained, 'mdab0_sx0')}", "search=greedy")
    assert answer.code == 5
    assert "no checkpoint that can be read" in answer.err and answer.err.count("64,424,509,440 bytes, more than") == 2


def test_links_to_files_are_followed(trained_copy: Path) -> None:
    directory = trained_copy / "checkpoints/step-00000004"
    for name in ("MANIFEST.json", *FILES):
        shutil.move(directory / name, trained_copy / name)
        (directory / name).symlink_to(trained_copy / name)
    assert checkpoint.find(directory)[0].state["step"] == 4


def test_a_bundle_is_no_larger_than_models_are(tmp_path: Path) -> None:
    sparse(tmp_path / "model.las")
    with pytest.raises(StorageError, match=r"model\.las: not a bundle.*64,424,509,440 bytes, more than"):
        checkpoint.find(tmp_path / "model.las")


@pytest.mark.parametrize("kind", ["sparse", "endless"])
@pytest.mark.parametrize("name", rest_slow(["result.json", "config.json", "symbols.json", "metrics.jsonl"], keep=3))
def test_the_files_of_a_run_are_regular(name: str, kind: str, trained: Path, trained_copy: Path, las: Las) -> None:
    if name != "result.json":
        (trained_copy / "result.json").unlink()
    says = replace(trained_copy / name, kind).partition(" ")[2]
    answer = las("train", *overrides(trained), f"run_dir={trained_copy}")
    assert answer.code == 5 and name in answer.err
    assert says.partition("[")[0] in answer.err and "damaged" in answer.err


def test_other_files_of_a_run(tmp_path: Path, las: Las) -> None:
    (tmp_path / "hypotheses.dev.jsonl").symlink_to("/dev/zero")
    (tmp_path / "x.arpa").symlink_to("/dev/zero")
    (tmp_path / "x.jsonl").write_text('{"id": "a", "text": "b"}\n')
    answer = las("score", f"reference={tmp_path}/x.jsonl", f"hypothesis={tmp_path}")
    assert answer.code == 3 and "hypotheses.dev.jsonl: cannot be read (a device, not a regular file)" in answer.err
    os.mkfifo(tmp_path / "fifo.arpa")
    for name, kind in (("x.arpa", "a device"), ("fifo.arpa", "a FIFO")):
        with pytest.raises(DataError, match=rf"{name}: the language model cannot be read \({kind}, not a regular file"):
            loading.load(tmp_path / name, Characters("AB"))
        with pytest.raises(DataError, match=f"{name}: cannot be read .{kind}, not a regular file"):
            arpa.read(tmp_path / name)


def test_depth_has_a_bound_below_that_of_python() -> None:
    deepest = "[" * bounded.MAX_DEPTH + "]" * bounded.MAX_DEPTH
    assert bounded.parse(deepest) and bounded.parse('{"a": 1}') == {"a": 1} and bounded.parse("3") == 3
    for text in (f"[{deepest}]", '{"a":' * 101 + "1" + "}" * 101, DEEP + "]" * 3000, DEEP, '{"a":' * 200_000):
        with pytest.raises(ValueError, match="inside each other, more than 100 deep"):
            bounded.parse(text)


def test_half_a_line_at_the_end_is_none_and_a_long_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    assert bounded.stored_lines(path) == []
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert bounded.stored_lines(path) == [{"step": 1}, {"step": 2}]
    for line in ("[1]", "x", f'{{"a": {DEEP}}}', '{"a": "' + 200 * "x" + '"}'):
        path.write_text(f'{{"step": 1}}\n{line}\n')
        monkeypatch.setattr(bounded, "LINE", 100)
        with pytest.raises(StorageError, match=r"metrics\.jsonl:2: damaged.*type the same command again"):
            bounded.stored_lines(path)
        monkeypatch.undo()


LINE = '{"id": "a", "text": "b"}\n'
DEEP_LINE = f'{{"id": "a", "text": {DEEP}}}\n'


def in_words(answer: Answer, code: int, *says: str) -> None:
    """The exit code and the words of a person's error, which holds no traceback and not the whole file."""
    assert answer.code == code, answer.err
    assert len(answer.err) < 1000 and "Traceback" not in answer.err
    for each in says:
        assert each in answer.err, answer.err


@pytest.mark.parametrize("which", ["reference", "hypothesis"])
def test_deep_transcripts(which: str, tmp_path: Path, las: Las) -> None:
    files = {"reference": LINE, "hypothesis": LINE} | {which: LINE.replace("a", "c") + DEEP_LINE}
    for name, text in files.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
    answer = las("score", *(f"{name}={tmp_path}/{name}.jsonl" for name in files))
    in_words(answer, 3, f"{which}.jsonl:2: not a line of JSON", "more than 100 deep")


@pytest.mark.parametrize("name", ["result.json", "config.json", "symbols.json", "metrics.jsonl"])
def test_deep_files_of_a_run(name: str, trained: Path, trained_copy: Path, las: Las) -> None:
    if name != "result.json":
        (trained_copy / "result.json").unlink()
    (trained_copy / name).write_text('{"step": 1}\n' * name.startswith("metrics") + f'{{"a": {DEEP}\n')
    answer = las("train", *overrides(trained), f"run_dir={trained_copy}")
    in_words(answer, 5, f"{name}:2: " if name.startswith("metrics") else f"{name}: ", "damaged", "100 deep")


@pytest.mark.parametrize("name", ["MANIFEST.json", "state.json", "config.json"])
def test_deep_files_of_a_checkpoint(name: str, trained_copy: Path, las: Las) -> None:
    directory = trained_copy / "checkpoints/step-00000004"
    (directory / name).write_text(f'{{"a": {DEEP}')
    if name != "MANIFEST.json":  # as if its writer had vouched for it
        listed = json.loads((directory / "MANIFEST.json").read_text())
        size, digest = (directory / name).stat().st_size, checkpoint._sha256(directory / name)
        listed["files"][name] = {"bytes": size, "sha256": digest}
        (directory / "MANIFEST.json").write_text(json.dumps(listed))
    in_words(las("export", f"checkpoint={directory}", f"output={trained_copy}/x"), 5, "step-00000004", "100 deep")


def test_a_deep_config_in_a_bundle(tmp_path: Path, las: Las) -> None:
    deep: list[object] = []
    for _ in range(150):  # less than what Python refuses by itself
        deep = [deep]
    bundle.write(tmp_path / "x.las", {}, {"step": 1, "corpus": {}}, {"name": "x", "model": deep})
    in_words(
        las("export", f"checkpoint={tmp_path}/x.las", f"output={tmp_path}/y"), 5, "x.las: not a bundle", "100 deep"
    )


def test_a_deep_lock_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / lock.NAME).write_text(DEEP)
    with lock.held(tmp_path):
        assert json.loads((tmp_path / lock.NAME).read_text())["pid"] == os.getpid()


def test_deep_manifests_and_readings_are_made_again(corpus: Path, las: Las) -> None:
    prepare = ("prepare", *overrides(corpus))
    assert las(*prepare).code == 0
    written = {path: path.read_bytes() for path in (corpus / "data").rglob("*.json*")}
    names = {path.name for path in written}
    assert {"index.json", "train.jsonl"} <= names and len(names) >= 5, names
    for path in written:
        path.write_text(DEEP + "\n")
    answer = las(*prepare)
    assert answer.code == 0, answer.err
    for path, content in written.items():
        assert path.read_bytes().splitlines()[-1] == content.splitlines()[-1], path


def test_deep_readings_are_none(tmp_path: Path) -> None:
    (tmp_path / "readings.jsonl").write_text(f'[2, "x", [1, 2], {DEEP}\n[2, "y", 3]\n')
    assert AudioScanCache.remembered(tmp_path / "readings.jsonl")._entries == {"y": [3]}


def test_the_record_of_a_made_corpus(tmp_path: Path, las: Las) -> None:
    root = tmp_path / "corpus"
    root.mkdir()
    (root / rendering.RECORD).write_text(DEEP)
    answer = las("prepare", "corpus=synthetic", f"corpus.root={root}", f"data_dir={tmp_path}")
    in_words(answer, 3, f"{rendering.RECORD}: cannot be read", "100 deep")


def test_rows_of_a_benchmark(tmp_path: Path, las: Las) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page/lstm.jsonl").write_text(DEEP + "\n")
    in_words(las("benchmark", f"page={tmp_path}/page.md"), 3, "lstm.jsonl, line 1: not JSON", "100 deep")


def test_what_analyses_found(trained: Path, trained_copy: Path, las: Las) -> None:
    folder = trained_copy / "notes"
    folder.mkdir()
    (folder / "alignments.jsonl").write_text(f'{{"step": 1}}\n{{"step": {DEEP}\n')
    places = [f"checkpoint={trained_copy}", f"output={folder}", f"data_dir={trained / 'data'}"]
    in_words(las("analyze", "what=alignments", *places), 5, "alignments.jsonl:2: damaged", "100 deep")


def test_results_of_recipes(tmp_path: Path) -> None:
    (tmp_path / "x-smoke-an4.json").write_text(DEEP)
    with pytest.raises(StorageError, match=r"x-smoke-an4\.json: damaged.*100 deep"):
        results.read(tmp_path / "x-smoke-an4.json")


def test_a_deep_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, las: Las) -> None:
    shutil.copytree(recipe.directory(), tmp_path / "recipes")
    (tmp_path / "recipes/deep.yaml").write_text(f"rows: {DEEP[:600]}{']' * 600}\n")
    monkeypatch.setattr(recipe, "directory", lambda: tmp_path / "recipes")
    in_words(las("reproduce", "recipe=deep"), 2, "deep.yaml: sections and lists inside each other, too deep")


def test_deep_configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, las: Las) -> None:
    shutil.copytree(build.config_directory(), tmp_path / "configs")
    (tmp_path / "configs/search/deep.yaml").write_text(f"size: {DEEP[:600]}{']' * 600}\n")
    monkeypatch.setattr(build, "config_directory", lambda: tmp_path / "configs")
    in_words(
        las("train", "search=deep"),
        2,
        f"an option of {tmp_path}/configs: lists and sections inside each other, too deep",
    )


def test_deep_overrides(las: Las) -> None:
    value = DEEP[:600] + "]" * 600
    in_words(las("train", f"name={value}"), 2, "name=[[[", "too deep for a config")
    in_words(las("train", "-m", f"name={value}"), 2, "too deep for a config")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' is there twice"),
        (f'{{"a": {"9" * 400}}}', "a number of 400 digits"),
        (f'{{"a": -{"9" * 5000}}}', "a number of 5,001 digits"),
    ],
)
def test_json_is_read_strictly(text: str, says: str) -> None:
    for given in (text, text.encode(), text.encode("utf-8-sig")):
        with pytest.raises(ValueError, match=says):
            bounded.parse(given)
    (_, first), (_, second) = bounded.parse_lines([b'\xef\xbb\xbf{"a": 1}\n', text.encode()])
    assert first == {"a": 1} and isinstance(second, ValueError) and says in str(second)
