"""`las runs compare=[A,B]`: two runs by their configs, curves and test sets, in the terminal and on a page."""

from pathlib import Path

from las.cli import runs_list
from las.reproduction import run_comparison
from las.runtime import progress
from las.runtime.errors import ConfigError
from las.scoring import tables
from las.storage import atomic, run_summary


def compare(first: Path, second: Path, page: Path) -> None:
    """Print the keys that differ and the tests of each split that both decoded, and write the page with the curves."""
    for folder in (first, second):
        _require_run(folder)
    atomic.require_place(page)
    pair = run_comparison.pair(first, second)
    names = (pair[0].label, pair[1].label)
    keys, splits = run_comparison.differing_keys(*pair), run_comparison.compared_splits(*pair)
    progress.say(f"{names[0]} -> {names[1]}: {'config keys that differ' if keys else 'the same config'}")
    for key, one, other in keys:
        progress.say(f"  {key}: {one} -> {other}")
    for split in splits:
        if split.comparison is None:
            progress.say(f"{split.split}: no significance test: {split.reason}")
        else:
            progress.say(f"{split.split}:")
            tables.print_comparison(split.comparison, names, split.metric, progress.console)
    atomic.write(page, run_comparison.page(*pair, keys, splits))
    progress.say(f"curves and all of this: {page}")


def _require_run(folder: Path) -> None:
    """Raise ConfigError unless a folder is a run, with the runs below it."""
    inside = runs_list.found(folder)
    if inside != [folder]:
        some = ", ".join(map(str, inside[:3])) + (", ..." if len(inside) > 3 else "")
        raise ConfigError(f"{folder} holds {len(inside)} runs: name one of them: {some}")
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder}: config.json is missing: {run_summary.read(folder).problem}")
