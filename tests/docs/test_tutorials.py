"""Tutorials run as they are printed: their Python in one session, their commands in the same folder."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from console import Answer
from places import REPOSITORY

TUTORIALS = {
    title: text
    for page in sorted((REPOSITORY / "docs").glob("*.md"))
    for title, text in re.findall(r"^## Tutorial: (.*?)\n(.*?)(?=^## |\Z)", page.read_text("utf-8"), re.M | re.S)
}
"""Their texts by title: each is a section of the page of its subject."""
LIMITS = {
    "train": [
        *("corpus.train_utterances=64", "corpus.dev_utterances=4", "corpus.test_utterances=4"),
        *("corpus.train_speakers=8", "corpus.dev_speakers=2", "corpus.test_speakers=2"),
        *("trainer.max_steps=20", "trainer.validate_every=10"),
    ],
    "analyze": ["num_utterances=2"],
}
"""Sizes that a tutorial has no use for; what is typed is what is printed."""


@pytest.mark.slow
@pytest.mark.pictures
@pytest.mark.parametrize("title", TUTORIALS)
def test_a_tutorial_runs(
    title: str,
    las: Callable[..., Answer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```$", TUTORIALS[title], re.MULTILINE | re.DOTALL)
    assert blocks
    for language, block in blocks:
        if language == "python":
            exec(compile(block, title, "exec"), names)
            continue
        for line in block.splitlines():
            program, *words = shlex.split(line)
            assert program == "las"
            las(*words, *([] if "corpus=files" in words else LIMITS.get(words[0], []))).succeeds_quietly()
    if "errors" in names:
        errors = names["errors"]
        assert all(errors[cell] < 0.1 * errors["lstm"] for cell in errors.keys() - {"lstm"})
