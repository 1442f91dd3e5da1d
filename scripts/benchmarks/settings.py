"""The checked settings of configs/benchmark.yaml, and the description of the machine in every row."""

import os
from dataclasses import dataclass, field

import torch

from benchmarks import records
from benchmarks.baselines import BASELINES
from benchmarks.candidates import COMPILED
from benchmarks.shapes import ON_CPU, ON_CUDA, SHAPES, Shape
from las.config import folders
from las.config.build import Config, check_value, config_directory, shown
from las.nn.kernels import choice
from las.runtime import devices
from las.runtime.errors import ConfigError, suggest
from las.runtime.precision import operand_type
from las.storage import run_directory

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
ON_DEVICE = {"cpu": ("float32", 7, ON_CPU), "cuda": ("bfloat16", 50, ON_CUDA)}
"""Defaults by device: type, repeats, shapes."""
TRAINED = ("model", "recipe", "growth", "loader")
"""Suites of updates, whose products have the type that `trainer.precision` says."""

KEYS = {
    "shapes": list[str] | None,
    "cells": list[str],
    "kernels": list[str] | None,
    "baselines": list[str] | None,
    "dtype": str | None,
    "repeats": int | None,
    "budget_s": float,
    "threads": int | None,
    "recipe": str,
    "tier": str,
    "seconds": list[float],
    "split": str,
    "batch_size": int,
    "max_batch_s": float | None,
    "consumer_ms": float,
    "trained_batches": int,
    "steps": int,
}


@dataclass(frozen=True)
class Settings:
    """A checked config; `config` is the whole one, with that of a training for the suites that need a model."""

    config: Config
    suite: str
    command: str
    device: torch.device
    dtype: torch.dtype
    threads: int
    repeats: int
    budget_s: float
    shapes: dict[str, Shape]
    cells: list[str]
    kernels: list[str]
    baselines: list[str]
    commit: str | None = field(default_factory=run_directory.commit)

    def row(self, implementation: str, cell: str, shape: str) -> records.Row:
        """The columns that all rows share: the measured implementation, the machine, the versions, the command."""
        return {
            "suite": self.suite,
            "implementation": implementation,
            "cell": cell,
            "shape": shape,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": self.device.type,
            "machine": records.machine(self.device),
            "threads": self.threads,
            "torch": torch.__version__,
            "commit": self.commit,
            "command": self.command,
        } | (records.versions() if self.device.type == "cuda" else {})


def settings(config: Config, suite: str, command: str) -> Settings:
    """The settings of a config. Raises ConfigError for wrong types, and for unknown names with the nearest ones."""
    for key, kind in KEYS.items():
        check_value(key, config[key], kind)
    device = devices.pick(config["device"])
    dtype, repeats, names = ON_DEVICE[device.type]
    if suite != "lstm":
        products = operand_type(config["trainer"]["precision"] if suite in TRAINED else "fp32")
        dtype = str(products).removeprefix("torch.")
        if config["dtype"] not in (None, dtype):
            instead = "give trainer.precision instead" if suite in TRAINED else "only suite=lstm measures other types"
            raise ConfigError(f"dtype={config['dtype']}: {instead}; suite={suite} measures {dtype} here")
    if len(config["seconds"]) != 2:
        raise ConfigError(f"seconds={config['seconds']} should be two durations, [shortest,longest]")
    if not 0 < config["seconds"][0] <= config["seconds"][1]:
        raise ConfigError(f"seconds={shown(config['seconds'])} should be above 0, the shortest first")
    for key in ("budget_s", "consumer_ms", "max_batch_s"):
        if config[key] is not None and config[key] <= 0:
            raise ConfigError(f"{key}={config[key]} must be above 0")
    devices.check_threads("threads", config["threads"])
    for key in ("repeats", "threads", "batch_size", "trained_batches", "steps"):
        if config[key] is not None and config[key] < 1:
            raise ConfigError(f"{key}={config[key]} must be at least 1")
    kernels = _known("kernels", config["kernels"], list(choice.KERNELS))
    (dtype,) = _known("dtype", [config["dtype"] or dtype], list(DTYPES))
    return Settings(
        config=config,
        suite=suite,
        command=command,
        device=device,
        dtype=DTYPES[dtype],
        threads=config["threads"] or _threads(config, suite),
        repeats=config["repeats"] or repeats,
        budget_s=float(config["budget_s"]),
        shapes={name: SHAPES[name] for name in _known("shapes", config["shapes"] or list(names), list(SHAPES))},
        cells=_cells(config["cells"]),
        kernels=kernels,
        baselines=_known("baselines", config["baselines"], [*BASELINES, COMPILED]),
    )


def _threads(config: Config, suite: str) -> int:
    """The number of threads: a training's for suites that train a model, else one for each processor."""
    trains = suite in ("model", "recipe", "loader", "safety")
    return devices.threads(config["trainer"]["threads"]) if trains else os.cpu_count() or 1


def _cells(given: str | list[str]) -> list[str]:
    """The names `cell` or `cell/norm` of options of configs/. Raises ConfigError for one that does not exist."""
    groups = {group: list(folders.options(config_directory(), group)) for group in ("cell", "norm")}
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        cell, _, norm = name.partition("/")
        _known("cells", [cell], groups["cell"])
        _known("norms of cells", [norm] if norm else [], groups["norm"])
    return names


def _known(key: str, names: str | list[str] | None, existing: list[str]) -> list[str]:
    """The given names, or all existing ones if none are given. Raises ConfigError for a name that does not exist."""
    chosen = existing if names is None else [names] if isinstance(names, str) else list(names)
    for name in chosen:
        if name not in existing:
            raise ConfigError(f"{key}: {name!r} does not exist.{suggest(name, existing)} (all: {', '.join(existing)})")
    return chosen
