"""The verb doctor: every check asked, what is wrong named with what to type, and the exit code."""

import importlib
import importlib.metadata
import os
import shutil
import types
from pathlib import Path

import pytest
import tiny
import torch
from console import Las

from las.cli import doctor
from las.nn.kernels.cpp import build as cpp_build
from las.runtime import devices, machine
from las.runtime.machine import NOTE, OK, PROBLEM, Check

NAMES = ["python", "packages", "torch", "torchaudio", "audio files", "cpu kernel", "bfloat16", "GPU", "kernels"]
NAMES += ["extras", "own packages", "memory", "cores", "limits", "run folder", "disk"]


def test_a_table_of_every_check(las: Las, tmp_path: Path) -> None:
    answer = las("doctor", f"run_dir={tmp_path / 'not yet' / 'there'}").succeeds()
    lines = answer.out.splitlines()
    assert [line[:13].strip() for line in lines[: len(NAMES)]] == NAMES
    assert all(line[15:22].strip() in (OK, NOTE) for line in lines[: len(NAMES)])
    if torch.cuda.is_available():
        assert "ln_global on cuda: " in answer.out
    else:
        assert "ln_global on cpu: " in answer.out and "NVIDIA GPU" in answer.out
    assert lines[-1].startswith("ready") and not (tmp_path / "not yet").exists()


def test_a_problem_is_an_error_that_names_it(las: Las, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Check:
        raise ZeroDivisionError("words")

    monkeypatch.setattr(machine, "cores", broken)
    monkeypatch.setattr(machine, "MIN_MEMORY", 1e18)
    answer = las("doctor", f"run_dir={tmp_path}").fails(1, "2 memory, cores")
    assert "problem  ZeroDivisionError: words" in answer.out and "\nmemory: " in answer.out


def test_old_pythons_and_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "OLDEST_PYTHON", (9, 0))
    assert doctor.python().verdict == PROBLEM
    wanted = ["numpy>=1", "rich>=999", "nowhere>=1", "alsonowhere; extra == 'x'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: wanted)
    found = doctor.packages()
    assert found.verdict == PROBLEM and found.command == "pip install 'rich>=999' 'nowhere>=1'"
    assert "nowhere missing" in found.found
    monkeypatch.setattr(importlib.metadata, "requires", missing)  # sources that are not installed
    assert doctor.packages()[1::2] == (NOTE, "pip install --editable .")


def test_what_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*given: str) -> types.ModuleType:
        raise ImportError("libx.so is missing")

    monkeypatch.setattr(importlib, "import_module", missing)
    monkeypatch.setattr(devices, "torchaudio", missing)
    for name, check in zip(doctor.INSTALLS, (doctor.torch, doctor.torchaudio, doctor.audio_files), strict=True):
        assert doctor.ask_for(name, check)[1:] == (PROBLEM, "libx.so is missing", doctor.INSTALLS[name])
    assert doctor.gpu().verdict == doctor.kernels().verdict == NOTE


def test_a_library_without_sphere(monkeypatch: pytest.MonkeyPatch) -> None:
    import soundfile

    monkeypatch.setattr(soundfile, "available_formats", lambda: {"WAV": "", "FLAC": ""})
    assert "lacks NIST" in doctor.audio_files().found


def test_without_a_compiler_a_slower_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise cpp_build.Unavailable("there is no C++ compiler")

    monkeypatch.setattr(cpp_build, "load", none)
    found = doctor.cpu_kernel()
    assert found.verdict == NOTE and "kernel=plain" in found.found and found.command


def test_a_gpu_that_torch_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor, "_driver", lambda: "H200, driver 580.1")
    assert doctor.gpu().verdict == PROBLEM
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    seen = types.SimpleNamespace(name="H200", total_memory=141e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: seen)
    assert doctor.gpu().found.startswith("2 x H200, 141 GB, H200, driver 580.1")


def test_the_driver_is_what_nvidia_smi_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._driver() == ""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA H200, 580.1'\necho 'NVIDIA H200, 580.1'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert doctor._driver() == "NVIDIA H200, driver 580.1"


def test_memory_is_the_less_of_machine_and_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   4000000 kB\n",
        "memory.max": "max",
        "memory.current": "5",
    }
    for name, text in files.items():
        (tmp_path / Path(name).name).write_text(text)
    place = {"/proc/meminfo": tmp_path / "meminfo", "/sys/fs/cgroup": tmp_path}
    monkeypatch.setattr(machine, "Path", lambda name: place.get(name, Path(name)))
    assert machine.available_memory() == 4_096_000_000
    (tmp_path / "memory.max").write_text("1000\n")
    assert machine.available_memory() == 995 and machine.memory().verdict == PROBLEM
    (tmp_path / "meminfo").unlink()
    assert machine.memory().verdict == NOTE


def test_more_threads_than_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    monkeypatch.setattr(machine, "Path", lambda name: tmp_path / "cpu.max")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    found = machine.cores()
    assert found.verdict == NOTE and found.command == "trainer.threads=1" and "OMP_NUM_THREADS=2" in found.found


def test_limits_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    free = resource.RLIM_INFINITY
    allowed = {resource.RLIMIT_NOFILE: 100, resource.RLIMIT_FSIZE: free, resource.RLIMIT_AS: free}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (allowed[which], free))
    assert machine.limits().command == "ulimit -n 4096"
    allowed[resource.RLIMIT_FSIZE] = 1000
    assert machine.limits().command == "ulimit -f unlimited"


def test_a_disk_without_links_or_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    found = machine.run_folder(tmp_path)
    assert found.verdict == PROBLEM and "Operation not permitted" in found.found and list(tmp_path.iterdir()) == []
    monkeypatch.setattr(machine, "MIN_SPEED", 1e18)
    assert machine.disk(tmp_path).verdict == NOTE
    monkeypatch.setattr(shutil, "disk_usage", lambda place: types.SimpleNamespace(free=5))
    assert machine.disk(tmp_path).verdict == PROBLEM


def test_extras_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    found = doctor.extras()
    assert found.verdict == NOTE and found.command == "pip install 'las-asr[synth]'" and "kenlm" in found.found


def test_the_longest_batch_of_a_training(corpus: Path, las: Las) -> None:
    answer = las("doctor", "dry_run=true", *tiny.overrides(corpus)).succeeds()
    (line,) = [line for line in answer.out.splitlines() if line.startswith("longest batch")]
    assert "4 of 0.6 s, 2 s with padding" in line and not (corpus / "run").exists()
    assert "0.004 suits" in answer.out
