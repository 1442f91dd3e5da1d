"""Test and measure on a GPU, then print the verdict on every target of speed: `make gpu`.

With an NVIDIA GPU: the tests of kernels and of trainings on a GPU, then layers, a training step and a search measured
there, into docs/performance/gpu_*.jsonl, and docs/performance.md is written anew. Without one the same happens on the
CPU, in small and into build/gpu, where tensors claim to be on a GPU as far as a test can do that; the last lines say
what that leaves unchecked. The exit status is that of the tests: a missed target is a line of the table.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from benchmarks import records, targets
from benchmarks.records import Group

from las.runtime import progress

REPOSITORY = Path(__file__).parents[2]
TESTS = ["tests/nn/kernels", "tests/nn/test_rnn.py", "tests/training/test_on_a_gpu.py"]
MEASURED = {
    "lstm": [
        *("suite=lstm", "cells=[lstm,ln_global]", "kernels=[triton,plain]"),
        *("baselines=[lstm,lstm_packed,lstm_best,lstm_graph]", "budget_s=2"),  # others take minutes
    ],
    "model": ["suite=model", "trainer.batch_size=32"],
    "decode": ["suite=decode"],
}
"""Keys of what is measured on a GPU, by the name of its file."""
IN_SMALL = {
    "lstm": ["suite=lstm", "cells=[lstm,ln_global]", "shapes=[C5]", "baselines=[lstm]", "repeats=1", "threads=1"],
    "model": ["suite=model", "trainer.batch_size=2", "repeats=1", "trainer.threads=1"],
    "decode": ["suite=decode", "search.size=2", "search.max_length=3", "repeats=1", "threads=1"],
}
"""The same without a GPU."""
UNCHECKED = (
    "device code of the kernels: compiled for GPUs and interpreted, not run",
    "CUDA graphs, cuDNN, copies on a side stream, NCCL",
    "every time and every byte of memory on a GPU",
)


def main() -> int:
    """Run everything. Returns the exit status of the tests."""
    there = torch.cuda.is_available()
    name = torch.cuda.get_device_name() if there else "none: the same on the CPU, in small"
    progress.say(f"GPU: {name}")
    status = run(["-m", "pytest", *TESTS, "-m", "not faults" if there else "not slow"])
    folder = REPOSITORY / ("docs/performance" if there else "build/gpu")
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"gpu_{suite}.jsonl" for suite in MEASURED]
    for file, keys in zip(files, (MEASURED if there else IN_SMALL).values(), strict=True):
        run(["scripts/benchmark.py", *keys, f"output={file}"], check=True)
    if there:
        run(["scripts/benchmark.py", "page=docs/performance.md"], check=True)
    show(files)
    for line in () if there else UNCHECKED:
        progress.say(f"not checked without a GPU: {line}")
    return status


def run(arguments: Sequence[str], check: bool = False) -> int:
    """Run Python with arguments in the checkout, print the command, and return its exit status."""
    progress.say(f"$ python {' '.join(arguments)}")
    return subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, check=check).returncode


def show(files: Sequence[Path]) -> None:
    """Print the targets of a GPU with the verdicts of measured rows."""
    reached = targets.verdicts(targets.ON_CUDA, [row for file in files for row in records.read(file)])
    records.show(Group("targets on a GPU", targets.rows(reached)), targets.COLUMNS)


if __name__ == "__main__":
    sys.exit(main())
