"""The verb `doctor`: checks of the installation, and of whether a training's longest batches fit into memory.

It works without torch and other packages, and names the command that fixes each problem.
"""

import importlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from las.config import targets
from las.config.build import Config, build, check_value, compose
from las.nn.kernels.cpp import build as cpp_build
from las.runtime import machine, progress
from las.runtime.errors import LasError
from las.runtime.machine import GB, NOTE, OK, PROBLEM, Check

OLDEST_PYTHON = (3, 11)
TORCH = "pip install torch (https://pytorch.org/get-started/locally names the one for a GPU)"
INSTALLS = {"torch": TORCH, "torchaudio": "pip install torchaudio", "audio files": "pip install soundfile"}
"""Commands by the checks that fail where a library cannot be imported."""


def python() -> Check:
    """Check the version of Python and that processes can be forked, which synthesis needs."""
    version = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Check("python", PROBLEM, version, "install Python 3.11 or newer")
    if not hasattr(os, "fork"):
        return Check("python", NOTE, f"{version}: no fork, so the synthetic corpora cannot be made here")
    return Check("python", OK, version)


def packages() -> Check:
    """Check that the packages las requires are installed, in versions it accepts."""
    from packaging.requirements import Requirement

    try:
        listed_by_las = importlib.metadata.requires("las-asr") or []
    except importlib.metadata.PackageNotFoundError:
        return Check("packages", NOTE, "las is not installed: it runs from its sources", "pip install --editable .")
    wrong, required = [], 0
    for requirement in map(Requirement, listed_by_las):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        required += 1
        version = _version(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            wrong.append((requirement, version))
    if wrong:
        listed = ", ".join(f"{requirement.name} {version or 'missing'}" for requirement, version in wrong)
        requirements = " ".join(f"'{requirement}'" for requirement, _ in wrong)
        return Check("packages", PROBLEM, listed, f"pip install {requirements}")
    return Check("packages", OK, f"the {required} that las requires")


def torch() -> Check:
    """Check that torch can be imported; reports the CUDA version that it was built for."""
    torch: Any = importlib.import_module("torch")
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU only"
    return Check("torch", OK, f"{torch.__version__}, {built}")


def torchaudio() -> Check:
    """Check that the Python part of torchaudio, which is all that las uses, can be imported."""
    from las.runtime import devices  # imports torch

    module = devices.torchaudio()
    has_extension = hasattr(sys.modules["torchaudio._extension"], "__file__")
    return Check(
        "torchaudio", OK, f"{module.__version__}{'' if has_extension else ', its Python part, which is enough'}"
    )


def audio_files() -> Check:
    """Check that libsndfile reads the formats of the corpora."""
    soundfile: Any = importlib.import_module("soundfile")
    missing = {"WAV", "FLAC", "NIST"} - set(soundfile.available_formats())
    version = f"soundfile {soundfile.__version__} with {soundfile.__libsndfile_version__}"
    if missing:
        return Check("audio files", PROBLEM, f"{version} lacks {', '.join(missing)}", "pip install -U soundfile")
    return Check("audio files", OK, f"{version}: wav, flac, SPHERE")


def cpu_kernel() -> Check:
    """Check that the C++ recurrence is compiled, or can be."""
    try:
        cpp_build.load()
        return Check("cpu kernel", OK, f"compiled by {cpp_build.find_compiler()}, kept in {cpp_build.cache_folder()}")
    except cpp_build.Unavailable as error:
        return Check("cpu kernel", NOTE, f"{error}. LSTMs take kernel=plain, up to 3 times slower", "apt install g++")


def bfloat16() -> Check:
    """Name the instructions that multiply matrices on the CPU with `precision=bf16`."""
    try:
        layer: Any = importlib.import_module("las.nn.kernels.cpp.layer")
        return Check("bfloat16", OK, INSTRUCTIONS[layer.bfloat16_unit()])
    except (ImportError, OSError, cpp_build.Unavailable):
        return Check("bfloat16", NOTE, "cannot be checked without torch and the cpu kernel")


INSTRUCTIONS = (
    "rounded and multiplied in fp32, so that trainer.precision=bf16 saves no time on this CPU",
    "multiplied by AVX512-BF16 on this CPU",
    "multiplied by AMX on this CPU",
)
"""What `las.nn.kernels.cpp.layer.bfloat16_unit` counts."""


def gpu() -> Check:
    """Check the GPU, its driver, and Triton."""
    driver = _driver()
    try:
        torch: Any = importlib.import_module("torch")
    except (ImportError, OSError):
        return Check("GPU", NOTE, f"cannot be checked without torch{driver and f'; nvidia-smi finds {driver}'}")
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        count, triton = torch.cuda.device_count(), _version("triton")
        description = f"{count} x {properties.name}, {properties.total_memory / GB:.0f} GB, {driver or 'no nvidia-smi'}"
        if triton is None:
            return Check("GPU", NOTE, f"{description}, no Triton: LSTMs take a slower kernel", "pip install triton")
        return Check("GPU", OK, f"{description}, Triton {triton}")
    if driver:
        return Check("GPU", PROBLEM, f"nvidia-smi finds {driver}, torch {torch.__version__} cannot use it", TORCH)
    return Check("GPU", OK, "none: trainings run on the CPU")


def kernels() -> Check:
    """List what computes LSTM layers here (`kernel=...`) and what C++ computes besides, and why others do not."""
    try:
        torch: Any = importlib.import_module("torch")
        choice: Any = importlib.import_module("las.nn.kernels.choice")
        cells: Any = importlib.import_module("las.nn.cells.ln_global")
        for module in COMPILED:
            importlib.import_module(module)
    except (ImportError, OSError):
        return Check("kernels", NOTE, "cannot be checked without torch")
    cell = cells.LNGlobalLSTMCell(16, 16).to("cuda" if torch.cuda.is_available() else "cpu")
    like = next(cell.parameters())
    found = f"ln_global on {like.device.type}: {choice.available(cell)}; {choice.compiled_here(like)}"
    return Check("kernels", OK, found)


COMPILED = (
    *("las.nn.speller", "las.nn.dropout", "las.nn.gammatone"),
    *("las.decoding.beam_expansion", "las.nn.ctc_prefix"),
)
"""Modules with parts in C++."""

EXTRAS = {
    "espeakng-loader": ("synth", "the synthetic corpora"),
    "matplotlib": ("plots", "pictures"),
    "kenlm": ("lm", "binary language models"),
    "kaldi-decoder": ("hmm", "words from acoustic models"),
    "submitit": ("slurm", "sweeps through SLURM"),
}
"""Optional packages: for each the extra that installs it, and its purpose."""


def extras() -> Check:
    """Check the optional packages; the default corpus needs one of them."""
    versions = {package: _version(package) for package in EXTRAS}
    installed = [f"{package} {version}" for package, version in versions.items() if version]
    lacking = [f"{package} ({purpose})" for package, (_, purpose) in EXTRAS.items() if versions[package] is None]
    sclite = shutil.which("sclite")
    installed.append(f"sclite in {sclite}" if sclite else "no sclite: las scores by itself")
    text = ", ".join(installed) + (f"; without {', '.join(lacking)}" if lacking else "")
    if versions["espeakng-loader"] is None:
        return Check("extras", NOTE, text, "pip install 'las-asr[synth]'")
    return Check("extras", OK, text)


def own_packages() -> Check:
    """Return packages that offer classes for configs (entry points `las.plugins`), and those that are trusted."""
    available, trusted = targets.installed(), targets.trusted()
    offered = f"available: {', '.join(available)}" if available else "no package offers classes for configs"
    advice = f"to use their classes: --trust {','.join(available)}" if set(available) - set(trusted) else ""
    return Check("own packages", OK, f"{offered}{f'; trusted: {chr(44).join(trusted)}' if trusted else ''}", advice)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _driver() -> str:
    """Return the GPUs and the driver by nvidia-smi; empty where there is none."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    first_line = next(iter(done.stdout.splitlines()), "")
    name, _, version = first_line.partition(", ")
    return f"{name}, driver {version}" if version else ""


STYLES = {OK: "green", NOTE: "yellow", PROBLEM: "red"}


def doctor(overrides: list[str]) -> list[Check]:
    """Run all checks, print a table and the command that fixes each problem; see configs/doctor.yaml.

    Raises LasError when there is a problem.
    """
    config = compose("doctor", overrides)
    check_value("dry_run", config["dry_run"], bool)
    folder = Path(config["run_dir"])
    probes: dict[str, Callable[[], Check]] = {
        "python": python,
        "packages": packages,
        "torch": torch,
        "torchaudio": torchaudio,
        "audio files": audio_files,
        "cpu kernel": cpu_kernel,
        "bfloat16": bfloat16,
        "GPU": gpu,
        "kernels": kernels,
        "extras": extras,
        "own packages": own_packages,
        "memory": machine.memory,
        "cores": machine.cores,
        "limits": machine.limits,
        "run folder": lambda: machine.run_folder(folder),
        "disk": lambda: machine.disk(folder),
    }
    checks = [ask_for(name, ask) for name, ask in probes.items()]
    if config["dry_run"]:
        checks += dry_run(config)
    show(checks)
    problems = [check for check in checks if check.verdict == PROBLEM]
    if problems:
        raise LasError(
            f"{len(problems)} of {len(checks)} checks found a problem: {', '.join(c.name for c in problems)}"
        )
    progress.say("ready" if config["dry_run"] else "ready. next: las demo, or las doctor dry_run=true for a training")
    return checks


def ask_for(name: str, ask: Callable[[], Check]) -> Check:
    """Run one check; an exception is reported as a problem."""
    try:
        return ask()
    except Exception as error:  # the other checks must still run
        if name in INSTALLS and isinstance(error, ImportError | OSError):
            return Check(name, PROBLEM, str(error), INSTALLS[name])
        return Check(name, PROBLEM, f"{type(error).__name__}: {error}")


def dry_run(config: Config) -> Iterator[Check]:
    """Check the learning rate, and try the longest batches, of the training that the config describes.

    Raises the errors of its parts and corpus.
    """
    from las.cli.dry_run import checks
    from las.data.corpora.base import Corpus
    from las.training import schedules, setup  # needs torch, which may be missing

    corpus: Corpus = build(config["corpus"], where="corpus")
    training_config = {key: value for key, value in config.items() if key != "dry_run"}
    _, parts = setup.build_all(training_config, corpus)
    line = schedules.remark(training_config, setup.num_parameters(parts.model))
    suits = f"{training_config['optim'].get('lr')} suits the size of the model, as far as its option says"
    yield Check("learning rate", NOTE if line else OK, line or suits)
    train = corpus.prepare(Path(config["data_dir"]) / "manifests")[corpus.splits[0]]
    yield from checks(training_config, parts, corpus, train)


def show(checks: list[Check]) -> None:
    """Print a table on a terminal and plain lines elsewhere, then the commands to type, problems first."""
    if progress.console.is_terminal:
        table = Table("", "", "found")
        for check in checks:
            table.add_row(check.name, f"[{STYLES[check.verdict]}]{check.verdict}[/]", check.found.replace("[", r"\["))
        progress.console.print(table)
    else:
        for check in checks:
            progress.say(f"{check.name:13}  {check.verdict:7}  {check.found}")
    for verdict in (PROBLEM, NOTE):
        for check in checks:
            if check.verdict == verdict and check.command:
                progress.say(f"{check.name}: {check.command}")
