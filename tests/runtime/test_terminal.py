"""Output on terminals that lack some characters: escapes in place of tracebacks, and JSON that is still JSON."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from las.cli import main

NAME = "größe 你好 \U0001f600 "
"""Letters of latin-1, of none of its pages, and one beyond 16 bits."""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A reference and a hypothesis of other words, in files with unusual names."""
    paths = tmp_path / f"{NAME}r.jsonl", tmp_path / f"{NAME}h.jsonl"
    for path, text in zip(paths, (NAME, "groß 你好 \U0001f600"), strict=True):
        path.write_text(json.dumps({"id": "ä", "text": text}), "utf-8")
    return str(paths[0]), str(paths[1])


def printed(encoding: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    """Exit code and what a terminal of an encoding shows of both streams."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2)]
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", streams[0])
        patched.setattr(sys, "stderr", streams[1])
        code = main.main(list(arguments))
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode(encoding) for stream in streams)
    return code, out, err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_tables_json_and_errors_are_printed(
    encoding: str, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, hypothesis = f"reference='{files[0]}'", f"hypothesis='{files[1]}'"
    code, out, err = printed(encoding, monkeypatch, "score", reference, hypothesis)
    assert (code, err) == (0, "") and "most frequent confusions" in out
    code, out, err = printed(encoding, monkeypatch, "score", reference, hypothesis, "json=true")
    assert (code, err) == (0, "")
    assert ["größe", "groß", 1] in json.loads(out)["confusions"]
    code, out, err = printed(encoding, monkeypatch, "score", reference, f"hypothesis='{files[1]}x'")
    assert code == 3 and "las score: " in err and ("größe" in err) == (encoding != "ascii")
    assert printed(encoding, monkeypatch, "show", "cell=ln_global")[0] == 0


def test_a_name_that_is_no_text_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = printed("utf-8", monkeypatch, "score", "reference=\udcff.trn", "hypothesis=x.trn")
    assert code == 3 and r"\udcff.trn" in err


def test_the_command_itself_under_the_plainest_locale(files: tuple[str, str]) -> None:
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    }
    command = [sys.executable, "-m", "las", "score", f"reference='{files[0]}'", f"hypothesis='{files[1]}'"]
    done = subprocess.run(command, env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"") and b"gr\\u00f6\\u00dfe" in done.stdout
