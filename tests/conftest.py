"""Fixtures for every test, the options of the make targets, and the shape checker (`make shapes`)."""

import gc
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from console import Answer
from hypothesis import settings
from jaxtyping import install_import_hook
from places import SHARED_DATA

if TYPE_CHECKING:
    import faults

LATEST = pytest.StashKey[float]()
"""The time at which the last test may start."""

# Without a deadline per example: the first call into torch may take a second on a busy machine.
# The same examples at every run, so a failure is the change's; `--hypothesis-profile=explore` draws other ones.
settings.register_profile("explore", deadline=None)
settings.register_profile("las", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("las")


@pytest.fixture
def shared_data() -> Path:
    """Real speech for tests; it lies beside the checkout where it may, and is not part of the project."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"real speech is not available: {SHARED_DATA} does not exist")
    return SHARED_DATA


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Drawing curves and attention takes longer than a tiny training: only tests marked `pictures` do it, and no
    fixture of another one."""
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("pictures") is None:
            if "las.cli.train" in sys.modules:
                patch.setattr("las.cli.train.plots.curves_picture", lambda metrics, path, *_: path.touch())
                patch.setattr("las.training.tasks.tokens.TokenValidator.log_attention", lambda *_: None)
            if "las.reproduction.charts" in sys.modules:
                patch.setattr("las.reproduction.charts.svg", lambda figure: "<svg/>")
        if "thawed" not in getattr(item, "fixturenames", ()):  # every training asks, and counting takes milliseconds
            patch.setattr(gc, "get_freeze_count", lambda: 1)
        return (yield)


@pytest.fixture(autouse=True)
def threads_of_torch() -> Iterator[None]:
    """Sets torch's threads back to OMP_NUM_THREADS: with two in each worker, on two cores, they wait spinning."""
    yield
    if "torch" in sys.modules and (number := os.environ.get("OMP_NUM_THREADS")):
        sys.modules["torch"].set_num_threads(int(number))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a terminal: what a shell starts in the background ignores it from the beginning."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def las(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs `las <arguments>` in this process, and `scripts/benchmark.py` for `benchmark`."""
    import benchmark

    from las.cli import main

    def run(*arguments: str) -> Answer:
        capsys.readouterr()
        with patch.dict(main.VERBS, benchmark=benchmark.VERB) if arguments[:1] == ("benchmark",) else nullcontext():
            code = main.main(list(arguments))
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with the tiny corpus in it; runs and manifests of the test go there too."""
    import tiny

    return tiny.tree(tmp_path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny corpus and a finished run in `run`: read only, `trained_copy` may be changed."""
    import tiny

    from las.cli import train

    root = tiny.tree(tmp_path_factory.mktemp("trained"))
    train.train(tiny.overrides(root))
    return root


@pytest.fixture
def trained_copy(trained: Path, tmp_path: Path) -> Path:
    """The finished run of `trained` in a folder of its own, with the same corpus."""
    return shutil.copytree(trained / "run", tmp_path / "run")


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> "faults.Tally":
    """Counts the trials of a fault, for the table of `make faults`."""
    import faults

    return faults.Tally(record_property)


@pytest.fixture(scope="session")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> "faults.Training":
    """The run that nobody disturbs, in a process of its own."""
    import faults
    import tiny

    return faults.undisturbed(tiny.tree(tmp_path_factory.mktemp("quiet")))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, help="start no test later than this; those left are skipped and counted")
    parser.addoption("--shapes", action="store_true", help="check types and shapes at every call (jaxtyping, beartype)")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--shapes"):
        # An integer may stand where a float is asked for (PEP 484).
        install_import_hook("las", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")
    config.stash[LATEST] = time.monotonic() + 60 * (config.getoption("--minutes") or float("inf"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash[LATEST]:
        pytest.skip(f"not started within {item.config.getoption('--minutes'):g} minutes")
    if item.config.getoption("--shapes") and item.get_closest_marker("unchecked"):
        pytest.skip("gives types that the checker refuses: wrong ones, or symbols in place of sizes")


def pytest_sessionstart() -> None:
    gc.disable()


def remember_choices() -> None:
    """Hydra makes a config of the choices so far for every line of its lists, half the time of a composition. The same
    choices make the same one, which nothing changes."""
    from hydra._internal import defaults_list

    make, made = defaults_list._create_interpolation_map, dict[str, Any]()

    def remembered(overrides: Any, lines: list[Any], self_added: bool) -> Any:
        key = repr((overrides.known_choices, self_added, [vars(each) for each in lines]))
        if key not in made:
            made[key] = make(overrides, lines, self_added)
        return made[key]

    defaults_list._create_interpolation_map = remembered


def pytest_collection_finish() -> None:
    """Garbage collection leaves alone what the tests' modules made: half a million objects that stay."""
    remember_choices()
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The full numbers of faults take hours: only `-m faults` asks for them."""
    if "faults" in config.option.markexpr:
        return
    full = [item for item in items if item.get_closest_marker("faults")]
    config.hook.pytest_deselected(items=full)
    items[:] = [item for item in items if item not in full]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What `make faults` is for: each fault, how often it was tried, how often survived."""
    if "faults" not in config.option.markexpr:
        return
    from rich.console import Console
    from rich.table import Table

    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    table = Table("fault", "tried", "survived")
    found = {tuple(value) for report in reports for key, value in map(tuple, report.user_properties) if key == "fault"}
    for fault, tried, survived in sorted(found):
        table.add_row(fault, f"{tried:,}", f"{survived:,}")
    with (console := Console(width=100)).capture() as written:
        console.print(table)
    terminalreporter.write(written.get())
