"""A paper's table from its recipe: train the rows that are not finished, print paper and ours side by side.

A recipe is data (recipes/<name>.yaml): per row of the table, the experiment's name and the paper's numbers.
"""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.table import Table

from las import build, commands, progress, run
from las.errors import ConfigError, suggest

OWN_KEYS = ("recipe", "report_only")


def reproduce(overrides: list[str]) -> None:
    """`recipe=<name>` and any override of the training config, e.g. `corpus=synthetic_hard seed=2`.

    Rows already finished with the same configuration are not trained again; `report_only=true` trains nothing and
    leaves unfinished rows empty. Writes recipes/results/<recipe>-<corpus>.md beside the recipes.
    """
    given = {key: value for key, _, value in (override.partition("=") for override in overrides) if key in OWN_KEYS}
    passed_on = [override for override in overrides if override.partition("=")[0] not in OWN_KEYS]
    recipe = read_recipe(given.get("recipe", ""))
    if given.get("report_only", "false") not in ("true", "false"):
        raise ConfigError(f"report_only={given['report_only']} should be true or false")
    rows = []
    for row in recipe["rows"]:
        row_overrides = [f"+experiment={row['name']}", *passed_on]
        config = build.compose("train", row_overrides)
        if given.get("report_only") == "true":
            result = finished_result(config)
        else:
            progress.say(f"== {row['name']} on {config['corpus']['name']}")
            result = commands.train(row_overrides)
        rows.append((row, result))
    corpus = config["corpus"]["name"]
    progress.console.print(as_table(recipe, corpus, rows))
    path = recipe_directory() / "results" / f"{given['recipe']}-{corpus}.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(as_markdown(recipe, corpus, rows, " ".join(["las reproduce", *overrides])))
    progress.say(f"written to {path}")


def recipe_directory() -> Path:
    """`recipes/` beside `configs/`, in the checkout or the wheel."""
    return build.config_directory().parent / "recipes"


def read_recipe(name: str) -> dict[str, Any]:
    """A recipe by name. Raises ConfigError with the nearest names when there is none of that name."""
    names = sorted(path.stem for path in recipe_directory().glob("*.yaml"))
    if name not in names:
        raise ConfigError(f"recipe={name}: there is no such recipe.{suggest(name, names)}")
    recipe = OmegaConf.to_container(OmegaConf.load(recipe_directory() / f"{name}.yaml"))
    assert isinstance(recipe, dict)
    return {str(key): value for key, value in recipe.items()}


def finished_result(config: build.Config) -> dict[str, Any] | None:
    """The result of a row's run if it is finished, else None."""
    return run.Run(config).result if Path(config["run_dir"]).is_dir() else None


HEADINGS = ("layer norm in", "paper PER", "paper steps", "our PER, 95 % interval", "our steps", "within 1 %", "seed")


def cells(row: dict[str, Any], result: dict[str, Any] | None) -> list[str]:
    """One row of the printed table as text."""
    paper = row["paper"]
    columns = [row["label"], f"{100 * paper['phone_error_rate']:.1f} %", f"{paper['steps_to_converge']:,}"]
    if result is None:
        return [*columns, "not trained", "", "", ""]
    test = result["splits"]["test"]
    ours = f"{100 * test['phone_error_rate']:.1f} %"
    if test["interval"] is not None:
        ours += " [{:.1f}, {:.1f}]".format(*(100 * bound for bound in test["interval"]))
    steps = (f"{result['steps_to_converge']:,}", f"{result['steps_to_within_one_percent']:,}")
    return [*columns, ours, *steps, str(result["seed"])]


def as_table(recipe: dict[str, Any], corpus: str, rows: list[tuple[dict[str, Any], dict[str, Any] | None]]) -> Table:
    """The table for a terminal."""
    table = Table(title=f"{recipe['title']}\nthe paper's numbers are on TIMIT, ours on {corpus}")
    for index, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if index else "left")
    for row, result in rows:
        table.add_row(*cells(row, result))
    return table


def as_markdown(
    recipe: dict[str, Any], corpus: str, rows: list[tuple[dict[str, Any], dict[str, Any] | None]], command: str
) -> str:
    """The table for the repository, with everything a reader needs to judge it."""
    lines = [
        f"# {recipe['title']}",
        "",
        f"The paper's numbers are on TIMIT, ours on `{corpus}`: they are not comparable in size, only in order.",
        f"Source of the paper's numbers: {recipe['source']}.",
        "",
        f"    {command}",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'---|' * len(HEADINGS)}",
        *(f"| {' | '.join(cells(row, result))} |" for row, result in rows),
        "",
        "Assumed where the paper is silent:",
        "",
        *(f"- {line}" for line in recipe["assumed"]),
        "",
        f"Commit of the runs: {', '.join(sorted({str(result['commit']) for _, result in rows if result}))}.",
        "",
    ]
    return "\n".join(lines)
