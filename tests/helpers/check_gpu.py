"""Measure what a GPU does, then print the verdict on every target of speed: `make gpu`.

`python tests/helpers/check_gpu.py layers step` runs these parts, without arguments it runs all. They need torch with
Triton, torchaudio, numpy, jaxtyping and rich; what lacks more says so. Rows are written as they come, into
docs/performance/gpu_*.jsonl or the folder of --output, and a part begins no measurement after its seconds; several
parts run in a process each, which is ended if it hangs. Without a GPU the same happens on the CPU, in small and into
build/gpu. The exit status tells whether results and tests are right: a missed target is a line of the table.
"""

import argparse
import contextlib
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "scripts")]
try:
    import soundfile  # noqa: F401
except (ImportError, OSError):  # modules that read audio import it; no file is read here
    absent = types.ModuleType("soundfile")
    absent.SoundFile, absent.SoundFileError = object, OSError  # type: ignore[attr-defined]
    sys.modules["soundfile"] = absent

import torch  # noqa: E402
from benchmarks import gpu_layers, gpu_search, gpu_step, gpu_train, records, targets  # noqa: E402
from benchmarks.ledger import Ledger  # noqa: E402
from benchmarks.records import Group  # noqa: E402
from benchmarks.settings import Settings  # noqa: E402

from las.runtime import devices, progress  # noqa: E402
from las.storage import run_directory  # noqa: E402

TESTS = ["tests/nn/kernels", "tests/nn/test_rnn.py", "tests/training/test_on_a_gpu.py"]
TESTED = "tests"
"""Name of the part that runs them."""
GRACE_S = 40.0
"""Seconds to start a part and to end its last measurement."""
NEEDED_BY_TESTS = ("pytest", "hypothesis", "hydra")


class Part(NamedTuple):
    """A measurement, the suite of its rows, and the seconds in which it may begin new ones."""

    measure: Callable[[Ledger], None]
    suite: str
    budget_s: float


PARTS = {
    "layers": Part(gpu_layers.measure, "lstm", 100.0),
    "step": Part(gpu_step.measure, "model", 85.0),
    "search": Part(gpu_search.measure, "decode", 40.0),
    "train": Part(gpu_train.measure, "train", 75.0),
}
"""Parts by name, the newest question first: 300 seconds together."""
UNCHECKED = (
    "device code of the kernels: compiled for GPUs and interpreted, not run",
    "CUDA graphs, cuDNN, copies on a side stream, NCCL",
    "every time and every byte of memory on a GPU",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are named. Returns 1 if results differ or a test fails."""
    parser = argparse.ArgumentParser(description="Measure what a GPU does; without one the same on the CPU, in small.")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)} or {TESTED}; all by default")
    parser.add_argument("--output", type=Path, help="folder of the rows")
    parser.add_argument("--commit", default=run_directory.commit(), help="commit of the code, where git does not tell")
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - {*PARTS, TESTED}:
        parser.error(f"{', '.join(sorted(unknown))}: the parts are {', '.join(PARTS)} and {TESTED}")
    there = torch.cuda.is_available()
    folder = (given.output or REPOSITORY / ("docs/performance" if there else "build/gpu")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    parts = given.parts or [*PARTS, TESTED]
    if parts != [TESTED] and len(parts) == 1:
        return 0 if measured(parts[0], folder, given.commit) else 1
    progress.say(f"GPU: {torch.cuda.get_device_name() if there else 'none: the same on the CPU, in small'}")
    shared = ["--output", str(folder), *(["--commit", given.commit] if given.commit else [])]
    script, right = str(Path(__file__).resolve()), True
    for name in PARTS:
        if name in parts:
            right = run([script, name, *shared], GRACE_S + PARTS[name].budget_s) == 0 and right
    if TESTED in parts:
        right = tested(there) and right
    if there and folder == REPOSITORY / "docs/performance" and importlib.util.find_spec("hydra"):
        run(["scripts/benchmark.py", "page=docs/performance.md"])
    for line in () if there else UNCHECKED:
        progress.say(f"not checked without a GPU: {line}")
    return 0 if right else 1


def measured(name: str, folder: Path, commit: str | None) -> bool:
    """Measure a part, and print its targets; returns whether results are right."""
    part, file = PARTS[name], f"gpu_{name}.jsonl"
    there = torch.cuda.is_available()
    devices.allow_tf32(True)  # as trainings do
    settings = Settings(
        config={},
        suite=part.suite,
        command=f"python tests/helpers/check_gpu.py {name}",
        device=torch.device("cuda" if there else "cpu"),
        dtype=torch.float32,
        threads=torch.get_num_threads(),
        repeats=7 if there else 1,
        budget_s=0.4,
        shapes={},
        cells=[],
        kernels=[],
        baselines=[],
        commit=commit,
    )
    ledger = Ledger(folder / file, REPOSITORY / "docs/performance" / file, settings, part.budget_s)
    part.measure(ledger)
    ledger.close(name)
    reached = targets.verdicts([each for each in targets.ON_CUDA if each.suite == part.suite], ledger.rows)
    if reached:
        records.show(Group(f"targets of {name}", targets.rows(reached)), targets.COLUMNS)
    return not ledger.failed


def tested(there: bool) -> bool:
    """Run the tests of kernels and of trainings on a GPU; returns whether all pass."""
    if lacking := [name for name in NEEDED_BY_TESTS if not importlib.util.find_spec(name)]:
        progress.say(f"not run: tests, for which {', '.join(lacking)} would have to be installed")
        return True
    return run(["-m", "pytest", *TESTS, "-m", "not faults" if there else "not slow"]) == 0


def run(arguments: Sequence[str], limit_s: float | None = None) -> int:
    """Run Python with arguments in the checkout, print the command, and return its exit status; 1 if it hangs."""
    progress.say(f"$ python {shlex.join(arguments)}")
    process, began = subprocess.Popen([sys.executable, *arguments], cwd=REPOSITORY, start_new_session=True), time.time()
    try:
        status = process.wait(limit_s)
        progress.say(f"wall seconds: {time.time() - began:.0f}")
        return status
    except subprocess.TimeoutExpired:
        progress.say(f"ended after {limit_s:.0f} s, in which it did not come to its end")
        return 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own processes too


if __name__ == "__main__":
    sys.exit(main())
