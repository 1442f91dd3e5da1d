"""Count the files of las that a whole tiny training, and one utterance from audio to text, go through.

`python tests/helpers/journeys.py` prints them by package. A file is visited when one of its functions is entered.
"""

import inspect
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import tiny

from las.cli import main
from las.decoding import transcriber

PACKAGE = Path(main.__file__).parents[1]
MODULE = ("<module>", "<lambda>", "<listcomp>", "<genexpr>")
"""Names of code that runs when a module is imported or belongs to a function around it."""


@contextmanager
def visited() -> Iterator[set[str]]:
    """Collect the files of las, relative to the package, whose functions are entered within the body."""
    files: set[str] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(PACKAGE)) and is_function(frame):
            files.add(name[len(str(PACKAGE)) + 1 :])

    sys.setprofile(enter)
    threading.setprofile(enter)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def is_function(frame: FrameType) -> bool:
    """Tell functions from the bodies of modules and classes."""
    return bool(frame.f_code.co_flags & inspect.CO_NEWLOCALS) and frame.f_code.co_name not in MODULE


def of_training(root: Path) -> set[str]:
    """Train, decode and score on the tiny corpus in `root`."""
    with visited() as files:
        assert main.main(["train", *tiny.overrides(root)]) == 0
    return files


def of_an_utterance(root: Path) -> set[str]:
    """Transcribe one recording by the run of `of_training`, loaded before."""
    loaded = transcriber.load(root / "run")
    with visited() as files:
        loaded.transcribe(tiny.wav(root, "fadg0_sx0"))
    return files


def table(name: str, files: set[str]) -> str:
    """Write files by package as text."""
    packages = Counter(file.partition("/")[0] for file in files)
    listed = "\n".join(f"  {file}" for file in sorted(files))
    return f"{name}: {len(files)} files ({', '.join(f'{p} {n}' for p, n in packages.most_common())})\n{listed}"


if __name__ == "__main__":
    journeys: dict[str, Callable[[Path], set[str]]] = {"training": of_training, "utterance": of_an_utterance}
    with tempfile.TemporaryDirectory() as folder:
        tiny.tree(Path(folder))
        for title, journey in journeys.items():
            print(table(title, journey(Path(folder))))
