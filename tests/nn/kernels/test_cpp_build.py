"""The compiled recurrence is built once for each machine, tried before use, and refused with a reason."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from kernel_cases import compiles
from torch import Tensor

from las.nn.cells.base import LSTMCell
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.kernels import choice
from las.nn.kernels.base import PLAIN
from las.nn.kernels.cpp import build as cpp_build
from las.nn.kernels.cpp import layer as cpu
from las.nn.rnn import BidirectionalLayer
from las.runtime.errors import ConfigError

INPUT, ZERO = 6, torch.zeros(1)
CPU = choice.KERNELS["cpu"]


def refusal(cell: LSTMCell, like: Tensor = ZERO) -> str:
    return choice.refusal(CPU, cell, like)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache of libraries, and nothing remembered of earlier builds."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(choice, "_failures", {})
    remembered = cpp_build.library, cpp_build.unavailable, cpu.bfloat16_unit
    for each in remembered:
        each.cache_clear()
    yield tmp_path
    for each in remembered:
        each.cache_clear()


# When it is used


class Doubled(LNGlobalLSTMCell):
    """A subclass with another equation."""

    def gates(self, input_gates: Tensor, hidden: Tensor) -> Tensor:
        return 2 * super().gates(input_gates, hidden)


def test_kernels_refuse_what_they_do_not_know() -> None:
    known = LNGlobalLSTMCell(3, 4)
    assert choice.refusal(choice.KERNELS["triton"], known, ZERO) == "needs an NVIDIA GPU"
    for kernel in (CPU, choice.KERNELS["triton"]):
        assert "equations" in choice.refusal(kernel, Doubled(3, 4), ZERO)
    assert "meta" in refusal(known, torch.zeros(1, device="meta"))
    assert "complex64" in refusal(known, torch.zeros(1, dtype=torch.complex64))


def works_without(reason: str) -> None:
    """Layers work, the other kernels are used, and asking for this one says why it cannot be had."""
    layer = BidirectionalLayer(LNGlobalLSTMCell, INPUT, 5)
    frames, lengths = torch.randn(2, 4, INPUT), torch.tensor([4, 2])
    cell = layer.forwards.cell
    assert refusal(cell) == reason and "\n" not in reason
    assert choice.select_kernel(cell, frames) is PLAIN
    assert f"cpu: {reason}" in choice.explain(cell, frames)
    for _ in range(3):
        layer(frames, lengths).sum().backward()
    with choice.use_kernel("cpu"), pytest.raises(ConfigError, match="kernel=cpu cannot compute"):
        layer(frames, lengths)


def test_without_a_compiler(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fresh))
    reason = refusal(LNGlobalLSTMCell(3, 4))
    assert "no C++ compiler" in reason and "install g++" in reason
    works_without(reason)


def test_a_compiler_that_fails_is_asked_once(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = fresh / "c++"
    broken.write_text(f'#!/bin/sh\necho "$@" >> {fresh}/calls\necho "no room" >&2\nexit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fresh}:{os.environ['PATH']}")
    reason = refusal(LNGlobalLSTMCell(3, 4))
    log = Path(reason.rpartition(" ")[2])
    assert "failed" in reason and "no room" in log.read_text("utf-8")
    works_without(reason)
    builds = [line for line in (fresh / "calls").read_text("utf-8").splitlines() if "recurrence.cpp" in line]
    assert len(builds) == 1
    assert {path.suffix for path in log.parent.iterdir()} == {".log"}


@pytest.mark.parametrize("code", [0, 1])
def test_planted_links_are_not_followed(code: int, fresh: Path) -> None:
    """Neither by the compiler, which writes through links, nor for its messages."""
    theirs, library = fresh / "thesis.txt", fresh / "cache" / "recurrence-0.so"
    theirs.write_text("hers")
    library.parent.mkdir()
    for planted in (library.with_suffix(f".{os.getpid()}.so"), library.with_suffix(".log")):
        planted.symlink_to(theirs)
    compiler = fresh / "c++"
    compiler.write_text(f'#!/bin/sh\nfor out; do :; done\necho library > "$out"\nexit {code}\n')
    compiler.chmod(0o755)
    with pytest.raises(cpp_build.Unavailable, match="failed: see ") if code else contextlib.nullcontext():
        cpp_build.build(str(compiler), cpp_build.SOURCES, library)
    assert theirs.read_text() == "hers" and library.exists() == (code == 0)
    assert not any(path.is_dir() for path in library.parent.iterdir())


@compiles
@pytest.mark.slow
def test_a_library_that_computes_something_else_is_refused(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = shutil.copytree(cpp_build.SOURCES, fresh / "sources", ignore=shutil.ignore_patterns("*.py", "__py*"))
    text = (sources / "vectors.h").read_text("utf-8")
    right = "return less_one / (less_one + T(2));"
    assert right in text
    (sources / "vectors.h").write_text(text.replace(right, "return less_one / (less_one + T(2.01));"), "utf-8")
    monkeypatch.setattr(cpp_build, "FLAGS", tuple(flag for flag in cpp_build.FLAGS if flag != "-O3"))  # quicker
    load = cpp_build.load
    monkeypatch.setattr(cpp_build, "load", lambda: load(sources))
    reason = refusal(LNGlobalLSTMCell(3, 4))
    assert "fails its self-test" in reason and "LNGlobalLSTMCell differs" in reason
    works_without(reason)


@compiles
def test_a_cache_that_cannot_be_written(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh / "file"))
    reason = refusal(LNGlobalLSTMCell(3, 4))
    assert "cannot be kept" in reason and str(fresh / "file") in reason
    works_without(reason)


# How it is built


def tiny(folder: Path, answer: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / cpp_build.MAIN).write_text(f'extern "C" int answer() {{ return {answer}; }}\n')
    return folder


@compiles
def test_it_is_built_once_and_again_when_a_source_changes(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for answer in (1, 1, 2, 2, 1):
        assert cpp_build.load(tiny(fresh / "sources", answer)).answer() == answer
    assert capsys.readouterr().out.count("building the cpu") == 2
    assert len(list(cpp_build.cache_folder().iterdir())) == 2


@compiles
def test_processes_that_build_at_once_do_not_disturb_each_other(fresh: Path) -> None:
    sources = tiny(fresh / "sources", 42)
    program = (
        "import sys; from pathlib import Path; from las.nn.kernels.cpp import build; "
        "assert build.load(Path(sys.argv[1])).answer() == 42"
    )
    command = [sys.executable, "-c", program, str(sources)]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(list(cpp_build.cache_folder().iterdir())) == 1


def test_another_machine_has_another_library(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key follows the macros that the compiler predefines."""
    sources, keys = tiny(fresh / "sources", 1), set()
    for instructions in ("AVX2", "AVX512F"):
        compiler = fresh / "c++"
        compiler.write_text(f"#!/bin/sh\necho '#define __{instructions}__ 1'\n")
        compiler.chmod(0o755)
        keys.add(cpp_build._key(str(compiler), sources))
    assert len(keys) == 2


def test_cxx_names_the_compiler(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(cpp_build.Unavailable, match="no-such-compiler"):
        cpp_build.find_compiler()
