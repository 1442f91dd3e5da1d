"""A run whose files are damaged in any way is one line of the list, and hides none of the others."""

import contextlib
import csv
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from las.cli import runs
from las.reproduction import recipe, results
from las.reproduction.jobs import Job
from las.runtime import progress
from las.runtime.errors import LasError

SPLIT = {"phone_error_rate": 0.25, "interval": [0.2, 0.3], "words": 8}
LEVEL = {"token_accuracy": 0.3, "error": 0.9, "sentence": ""}
REACHED = {"name": "a", "corpus": "timit", "seed": 3, "steps": 7, "parameters": 9, "commit": "c", "select": "dev_error"}
VALIDATION = {"time": 9.0, "event": "validation", "step": 1, "dev_loss": 1.0, "dev_error": 0.5, "token_accuracy": 0.1}
FILES: dict[str, Any] = {
    "result.json": REACHED | {"steps_to_converge": 7, "splits": {"dev": SPLIT, "test": SPLIT}, "chance_level": LEVEL},
    "config.json": {"name": "a", "corpus": {"name": "timit", "tokens": {}}, "seed": 3, "trainer": {"max_steps": 9}},
    "environment.json": {"commit": "c"},
    "lock.json": {"pid": 2**22 + 1, "host": "here", "born": "1", "since": 1.0},
    "metrics.jsonl": [
        {"time": 1.0, "event": "train", "step": 1, "loss": 1.0, "gradient_norm": 1.0, "learning_rate": 0.1},
        VALIDATION | {"alignment": {"entropy": 0.5, "diagonality": 0.5, "coverage": 1.0}},
    ],
}
STRANGE = st.recursive(
    st.none() | st.booleans() | st.sampled_from([math.nan, math.inf, -1, 10**400, 1e308, "\ud800", "\x1b[2J\n", "", 0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dev", "wer", "time"]), inner),
    max_leaves=5,
)
"""Values that no run has: of another kind, not finite, too large, not printable, lists for objects."""


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Paths of all values inside a value, its own first."""
    yield ()
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from ((key, *path) for path in places(inner))


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """The value with another one at a path; `...` removes it."""
    if not path:
        return by
    copy = value.copy()
    if len(path) == 1 and by is ... and isinstance(copy, dict):
        del copy[path[0]]
    else:
        copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


def encoded(name: str, value: Any) -> bytes:
    lines = value if name.endswith("l") and isinstance(value, list) else [value]
    return "".join(json.dumps(line) + "\n" for line in lines).encode("ascii")


@st.composite
def damage(draw: st.DrawFn) -> Callable[[Path], object]:
    """A damage to one file of a run folder."""
    name = draw(st.sampled_from(list(FILES)))
    how = draw(st.sampled_from(["value", "value", "value", "missing", "bytes", "cut", *STRANGE_FILES]))
    content = encoded(name, FILES[name])
    if how in ("value", "missing"):
        path = draw(st.sampled_from(list(places(FILES[name]))[1:]))
        by = draw(STRANGE) if how == "value" or not isinstance(path[-1], str) else ...
        content = encoded(name, replaced(FILES[name], path, by))
    elif how == "bytes":
        content = draw(st.binary(max_size=30) | st.sampled_from([b"[" * 9999, b"\xff\xfe{", b"9" * 5000, b"null"]))
    elif how == "cut":
        content = content[: draw(st.integers(0, len(content)))]

    def apply(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make = STRANGE_FILES.get(how, lambda path: path.write_bytes(content))
        make(folder / name)

    return apply


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


STRANGE_FILES: dict[str, Callable[[Path], object]] = {
    "folder": Path.mkdir,
    "fifo": os.mkfifo,
    "link": lambda path: path.symlink_to(path),
    "sparse": sparse,
}


def write(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, value in FILES.items():
        (folder / name).write_bytes(encoded(name, value))
    return folder


@contextlib.contextmanager
def listed_with(apply: Callable[[Path], None]) -> Iterator[Path]:
    """Three runs, of which the middle one is damaged."""
    with tempfile.TemporaryDirectory() as root:
        folders = [write(Path(root) / name) for name in ("a", "b", "c")]
        apply(folders[1])
        yield Path(root)


@given(damage())
@settings(max_examples=60)
def test_a_damaged_run_is_one_line_and_the_others_are_listed(apply: Callable[[Path], None]) -> None:
    with listed_with(apply) as root:
        table = runs.listing(root, "-test", None, "table")
        lines = table.encode("utf-8").decode().splitlines()
        assert lines[-1] == "3 runs" and sum(line.startswith(f"{root}/") for line in lines[4:]) <= 1
        sound = [line for line in lines[1:4] if line.endswith((f"{root}/a", f"{root}/c"))]
        assert len(sound) == 2 and all("PER 25.0 % [20.0, 30.0]" in line for line in sound)
        data = json.loads(runs.listing(root, "minutes", None, "json"))
        (bad,) = (run for run in data if run["folder"] == f"{root}/b")
        assert (bad["state"] == "damaged") == bool(bad["problem"])
        assert len(list(csv.DictReader(runs.listing(root, None, "minutes>=0", "csv").splitlines()))) >= 2
        runs.listing(root, "step", "name=a*", "md")
        runs.watch(root, 0.1)


@given(damage(), damage())
@settings(max_examples=10)
def test_a_damaged_run_is_an_error_of_comparing_and_reproducing(
    one: Callable[[Path], None], other: Callable[[Path], None]
) -> None:
    row = recipe.read("bo18_table3").rows[0]
    with listed_with(one) as root, progress.silent():
        for apply in (lambda folder: None, other):
            shutil.rmtree(root / "c")
            apply(write(root / "c"))
            with contextlib.suppress(LasError):
                runs.compare(root / "c", root / "b", root / "page.html")
            job = Job(row, 1, 1, (), {"trainer": {"max_steps": 9}}, root / "b")
            if not results.fault(job):
                assert job.result is None or isinstance(results.outcome(job, job.result).steps, int)


def test_a_folder_that_cannot_be_listed_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a")
    write(tmp_path / "elsewhere/b")
    write(tmp_path / "runs/real")
    (tmp_path / "runs/linked").symlink_to(tmp_path / "elsewhere")
    for name, target in (("again", "runs"), ("above", ".."), ("a_run", "runs/real")):
        (tmp_path / "elsewhere" / name).symlink_to(tmp_path / target)
    (tmp_path / "runs/gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "runs/closed").mkdir()
    real = os.scandir

    def scandir(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    data = json.loads(runs.listing(tmp_path / "runs", None, None, "json"))
    assert [Path(run["folder"]).name for run in data] == ["closed", "b", "real"]
