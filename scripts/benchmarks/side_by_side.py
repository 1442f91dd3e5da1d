"""Compilation in processes side by side, into the caches that the measuring process reads."""

import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from las.runtime import progress

T = TypeVar("T")
MOST = 16
"""Processes at once: each has a context of its own on the GPU."""


def compiled(compile_one: Callable[[T], None], tasks: Iterable[T]) -> None:
    """Call a function of a module with each task, in new processes. The measurement itself says what is wrong."""
    asked = list(dict.fromkeys(tasks))
    count = max(1, min(MOST, os.cpu_count() or 1, len(asked)))
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        for task, result in [(task, pool.submit(compile_one, task)) for task in asked]:
            if error := result.exception():
                progress.say(f"not compiled ahead: {task}: {type(error).__name__}")
