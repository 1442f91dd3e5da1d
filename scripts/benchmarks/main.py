"""The verb `benchmark`: run a suite, print its tables, write JSON lines and the page made from them."""

import shlex
from pathlib import Path

import torch

from benchmarks import records, report
from benchmarks.settings import settings
from benchmarks.suites import SUITES
from las.config import overrides as config_overrides
from las.config.build import compose
from las.runtime.errors import ConfigError, suggest
from las.storage import atomic

EXPERIMENT = "+experiment=ln_encoder_only"
"""The default experiment, the demo's."""


def benchmark(overrides: list[str]) -> list[records.Row]:
    """Measure a suite, or (without one) only rewrite the page: see configs/benchmark.yaml. Returns the rows."""
    config = compose("benchmark", as_composed(overrides))
    suite, output = config["suite"], config["output"]
    if suite is None and config["page"] is None:
        raise ConfigError(f"benchmark needs suite=..., one of {', '.join(SUITES)}")
    for path in (output, config["page"]):
        if path is not None:
            atomic.require_place(Path(path))
    rows: list[records.Row] = []
    if suite is not None:
        if suite not in SUITES:
            raise ConfigError(f"suite={suite}: there is no such suite.{suggest(str(suite), SUITES)}")
        checked = settings(config, suite, command(overrides))
        torch.set_num_threads(checked.threads)
        for group in SUITES[suite].measure(checked):
            records.show(group, SUITES[suite].columns)
            rows += group.rows
            if output is not None:  # what is measured stays, whatever happens to the next group
                records.write(Path(output), rows)
    if config["page"] is not None:
        report.rewrite(Path(config["page"]))
    return rows


def as_composed(overrides: list[str]) -> list[str]:
    """The overrides with the default experiment, unless they name one."""
    named = any(override.startswith("+experiment=") for override in overrides)
    return overrides if named else [EXPERIMENT, *overrides]


def command(overrides: list[str]) -> str:
    """The command line of these overrides, without the quotes that `las.config.overrides.protect` puts around paths."""
    return shlex.join(["python", "scripts/benchmark.py", *map(config_overrides.typed, overrides)])
