"""Compilation of csrc/ to a shared library: at first use, once for each kind of machine, in the user's cache.

The compiler is called directly: a source with a plain C interface needs neither torch's headers (a minute of compiling,
and a library for each version of torch) nor ninja. Several processes may build at once: each does so in a folder of
its own and moves the library out of it.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from las.runtime import progress

SOURCES = Path(__file__).parents[1] / "csrc"
MAIN = "recurrence.cpp"
# OpenMP's library is the one that torch has loaded already, so both share one pool of threads.
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fopenmp", "-fPIC", "-shared")
COMPILERS = ("c++", "g++", "clang++")


class Unavailable(Exception):
    """The library cannot be built or loaded; the message says why in one line."""


@cache
def library() -> ctypes.CDLL:
    """Return the library, built at the first call; raises `Unavailable`, again at every call, as `load` does."""
    return load()


@cache
def unavailable() -> str:
    """Return the reason why there is no library; empty if there is one."""
    try:
        library()
    except Unavailable as error:
        return str(error)
    return ""


def load(sources: Path = SOURCES) -> ctypes.CDLL:
    """Return the library of these sources, built if it is not in the cache.

    Raises:
        Unavailable: if there is no compiler, it fails, or the cache cannot be written.
    """
    compiler = find_compiler()
    library = cache_folder() / f"recurrence-{_key(compiler, sources)}.so"
    try:
        if not library.exists():
            build(compiler, sources, library)
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise Unavailable(f"the compiled kernel cannot be kept or loaded: {error}") from error


def find_compiler() -> str:
    """Return the C++ compiler that the environment variable CXX names, or else the first one on the PATH."""
    candidates = (os.environ["CXX"],) if os.environ.get("CXX") else COMPILERS
    compiler = next(filter(None, map(shutil.which, candidates)), None)
    if compiler is None:
        raise Unavailable(f"there is no C++ compiler ({', '.join(candidates)}): install g++, e.g. apt install g++")
    return compiler


def cache_folder() -> Path:
    """Directory of compiled libraries."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "las"


def build(compiler: str, sources: Path, library: Path) -> None:
    """Compile into `library`; raises `Unavailable` with the path of the compiler's messages if that fails."""
    progress.say("building the cpu kernel of the LSTM, about 10 s, once")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=library.parent) as folder:
        built, messages, log = Path(folder, library.name), Path(folder, "log"), library.with_suffix(".log")
        command = [compiler, *FLAGS, str(sources / MAIN), "-o", str(built)]
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
        if result.returncode:
            messages.write_text(f"{' '.join(command)}\n{result.stdout}{result.stderr}", encoding="utf-8")
            os.replace(messages, log)
            raise Unavailable(f"{compiler} failed: see {log}")
        os.replace(built, library)


def _key(compiler: str, sources: Path) -> str:
    """Hash of everything that the library depends on.

    Machines may share home folders, so it includes the compiler's predefined macros: they name its version, the system
    and every instruction set of this machine.
    """
    command = [compiler, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull]
    macros = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    digest = hashlib.sha256(f"{compiler} {FLAGS}".encode() + macros.stdout)
    for path in sorted([*sources.glob("*.cpp"), *sources.glob("*.h")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]
