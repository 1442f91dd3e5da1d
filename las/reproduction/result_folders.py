"""Folders of results: the one that a command writes into, and the project's own tables, which are always read first.

What the project has trained lies in `recipes/results`, of a checkout and of the installed package alike. A command
writes into another folder, so that neither is changed by a user's trainings.
"""

from collections.abc import Sequence
from pathlib import Path

from las.reproduction import recipe, results
from las.reproduction.jobs import Job
from las.reproduction.recipe import Recipe
from las.reproduction.results import Table
from las.runtime.errors import ConfigError


def own() -> Path:
    """Folder of the project's own results."""
    return recipe.directory() / "results"


def writable(given: str) -> Path:
    """Return the folder of results of a command. Raises ConfigError for the project's own one outside a checkout."""
    folder = Path(given)
    place, package = folder.resolve(), Path(recipe.__file__).parents[1].resolve()
    names_own = "recipes/results" in place.as_posix()
    if package in (place, *place.parents) or (names_own and not _is_in_checkout(place)):
        raise ConfigError(
            f"results_dir={given}: there the project keeps its own results, and this is not a checkout of it: leave "
            "results_dir out (results/ here), or name a folder of yours"
        )
    return folder


def _is_in_checkout(place: Path) -> bool:
    """Return whether a folder is, or is in, that of the project's own results in a checkout that is run."""
    root = recipe.directory().resolve().parent
    return place.is_relative_to(root / "recipes" / "results") and (root / "pyproject.toml").is_file()


def stored_tables(folder: Path, of: Recipe, tier: str, jobs: Sequence[Job]) -> list[Table]:
    """Return the stored tables that may have trainings of these jobs, those of the recipe itself first.

    Recipes share rows: what one has trained at the same tier and on the same corpus, another one need not train.
    """
    name = f"{results.stem(of, tier, jobs)}.json"
    paths = tables(folder, f"*{name.removeprefix(of.name)}")
    return [results.read(path) for path in sorted(paths, key=lambda path: path.name != name)]


def tables(folder: Path, pattern: str) -> list[Path]:
    """Files of tables by a pattern of their names: the project's own ones, also unfinished ones, then the folder's."""
    found = [*own().glob(pattern), *own().glob(f"*/{pattern}"), *folder.glob(pattern)]
    return list({path.resolve(): path for path in found}.values())


def newest(folder: Path, pattern: str) -> list[Path]:
    """Files of tables as `tables`, sorted by name; of those of the same name the folder's one."""
    return [path for _, path in sorted({path.name: path for path in tables(folder, pattern)}.items())]
