"""Tracebacks of errors in one's own classes, shortened to one's own files; LAS_TRACEBACK=1 shows every frame."""

import os
import sysconfig
import traceback
from pathlib import Path
from types import FrameType

from las.config import targets

VARIABLE = "LAS_TRACEBACK"
NOT_OWN = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
"""Folders of las and of Python."""
INSTALLED = {"site-packages", "dist-packages"}
"""Names of the folders that packages are installed in."""


def is_own(error: BaseException) -> bool:
    """Return whether an error went through one's own code: of a trusted package, or outside las and installed ones."""
    return any(_is_own(frame) for frame, _ in traceback.walk_tb(error.__traceback__))


def formatted(error: BaseException) -> str:
    """Format the traceback of an error: of one's own files alone, where it went through some."""
    if os.environ.get(VARIABLE) == "1" or not is_own(error):
        return "".join(traceback.format_exception(error))
    frames = [pair for pair in traceback.walk_tb(error.__traceback__) if _is_own(pair[0])]
    lines = ["Traceback (most recent call last):\n", *traceback.StackSummary.extract(iter(frames)).format()]
    lines += traceback.format_exception_only(error)
    lines.append(f"(frames of las and other packages are left out: {VARIABLE}=1 shows them)\n")
    return "".join(lines)


def _is_own(frame: FrameType) -> bool:
    module, file = str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename
    if module != "las" and not module.startswith("las.") and targets.is_trusted(module):
        return True
    return module != "__main__" and not file.startswith(("<", *NOT_OWN)) and not INSTALLED & set(Path(file).parts)
