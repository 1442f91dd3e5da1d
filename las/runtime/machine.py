"""Checks of the machine: memory, cores, limits, disk. Needs no torch."""

import fcntl
import importlib
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from las.runtime.errors import ConfigError

OK, NOTE, PROBLEM = "ok", "note", "problem"
GB = 1e9
MIN_MEMORY, MIN_DISK = 2 * GB, 1 * GB
MIN_SPEED = 20e6  # bytes per second
MIN_FILES = 256  # open at once
TEST_BYTES = 32 << 20  # written to measure the speed of a disk


class Check(NamedTuple):
    """Result of one check: finding, verdict (`ok`, `note`, `problem`), and the command that helps."""

    name: str
    verdict: str
    found: str
    command: str = ""


def memory() -> Check:
    """Check the memory that is free for this process."""
    free = available_memory()
    if free is None:
        return Check("memory", NOTE, "this system does not say how much is free")
    verdict = OK if free >= MIN_MEMORY else PROBLEM
    return Check("memory", verdict, f"{free / GB:.1f} GB free", "" if verdict == OK else "stop other programs")


def available_memory() -> int | None:
    """Bytes this process can still allocate on the machine and in its container; None if the system does not say."""
    listed = Path("/proc/meminfo")
    if not listed.exists():
        return None
    lines = dict(line.split(":") for line in listed.read_text().splitlines())
    free = 1024 * int(lines["MemAvailable"].split()[0])
    group = Path("/sys/fs/cgroup")
    limit, used = (_number(group / f"memory.{name}") for name in ("max", "current"))
    return free if limit is None or used is None else min(free, max(limit - used, 0))


def cores() -> Check:
    """Check the number of cores, those this process may use, and the threads it would start."""
    existing_cores = os.cpu_count() or 1
    usable = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else existing_cores)
    words = _words(Path("/sys/fs/cgroup/cpu.max"))
    if len(words) == 2 and words[0] != "max":
        usable = min(usable, int(words[0]) / int(words[1]))
    threads = int(os.environ.get("OMP_NUM_THREADS") or 0) if os.environ.get("OMP_NUM_THREADS", "0").isdecimal() else 0
    finding = f"{existing_cores}, {usable:g} of them usable"
    finding += f", OMP_NUM_THREADS={threads}" if threads else ""
    wanted = threads or min(2, existing_cores)
    if wanted > max(usable, 1):
        return Check("cores", NOTE, f"{finding}: {wanted} threads would wait for each other", "trainer.threads=1")
    return Check("cores", OK, finding)


def limits() -> Check:
    """Check the limits that the shell sets for a process."""
    try:
        resource: Any = importlib.import_module("resource")
    except ImportError:
        return Check("limits", OK, "none on this system")
    files, size, address_space = (
        resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in ("NOFILE", "FSIZE", "AS")
    )
    free = resource.RLIM_INFINITY
    finding = f"{'any number of' if files == free else f'{files:,}'} open files"
    for what, value, command in (("file size", size, "ulimit -f"), ("address space", address_space, "ulimit -v")):
        if value != free:
            return Check("limits", PROBLEM, f"{finding}, {what} at most {value:,} bytes", f"{command} unlimited")
    if files != free and files < MIN_FILES:
        return Check("limits", PROBLEM, f"only {finding}", "ulimit -n 4096")
    return Check("limits", OK, finding)


def run_folder(folder: Path) -> Check:
    """Check that the file system has what checkpoints and locks need: links, renames, locks, flushed folders."""
    nearest = existing(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".las-doctor-", dir=nearest) as name:
            first, second = Path(name, "a"), Path(name, "b")
            first.write_text("a")
            os.link(first, second)
            os.replace(first, second)
            with second.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            descriptor = os.open(name, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    except OSError as error:
        return Check("run folder", PROBLEM, f"{nearest}: {error.strerror or error}", "run_dir=... on another disk")
    return Check("run folder", OK, f"{nearest.resolve()}: links, renames, locks")


def disk(folder: Path) -> Check:
    """Check the free space of a disk and its write speed, by writing and flushing one file."""
    nearest = existing(folder)
    free = shutil.disk_usage(nearest).free
    if free < MIN_DISK:
        return Check("disk", PROBLEM, f"{free / GB:.1f} GB free", "run_dir=... on another disk, or remove old runs")
    with tempfile.TemporaryFile(dir=nearest) as file:
        block = os.urandom(TEST_BYTES)
        began = time.perf_counter()
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
        speed = TEST_BYTES / (time.perf_counter() - began)
    finding = f"{free / GB:.0f} GB free, {speed / 1e6:.0f} MB/s"
    if speed < MIN_SPEED:
        return Check("disk", NOTE, f"{finding}: checkpoints will take long", "run_dir=... on another disk")
    return Check("disk", OK, finding)


def existing(folder: Path) -> Path:
    """Folder itself, or the nearest existing one above it."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _number(path: Path) -> int | None:
    """Return the number that a file holds; None for `max` and for a missing file."""
    words = _words(path)
    return int(words[0]) if words and words[0].isdecimal() else None


def require_free(host: str, port: int) -> None:
    """Raise ConfigError unless a server can be bound to this address."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        refusal = f"host={host} port={port}: no page can be served there ({error.strerror})"
        raise ConfigError(f"{refusal}: try port={port % 65535 + 1}, or host=127.0.0.1") from error
