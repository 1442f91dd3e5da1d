"""A paper's table: its numbers come from the recipe, ours from finished runs, and nothing is trained twice."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Answer
from omegaconf import OmegaConf
from tiny import overrides

from las import build, reproduce
from las.errors import ConfigError

RECIPES = Path(__file__).parents[1] / "recipes"
Las = Callable[..., Answer]


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the recipes: what is written beside them does not land in the checkout."""
    copy = shutil.copytree(RECIPES, tmp_path / "recipes", ignore=shutil.ignore_patterns("results"))
    monkeypatch.setattr(reproduce, "recipe_directory", lambda: copy)
    return copy


def places(root: Path) -> list[str]:
    """Overrides with a folder per row."""
    kept = [override for override in overrides(root) if not override.startswith("run_dir=")]
    return [*kept, f"run_dir={root}/runs/${{name}}"]


def test_every_recipe_is_complete_and_its_rows_exist() -> None:
    names = sorted(path.stem for path in RECIPES.glob("*.yaml"))
    assert "bo18_table3" in names
    experiments = {path.stem for path in (build.config_directory() / "experiment").glob("*.yaml")}
    for name in names:
        recipe = reproduce.read_recipe(name)
        assert recipe.keys() == {"title", "source", "assumed", "rows"} and recipe["assumed"]
        for row in recipe["rows"]:
            assert row["name"] in experiments
            assert 0 < row["paper"]["phone_error_rate"] < 1 and row["paper"]["steps_to_converge"] > 0


def test_the_numbers_of_the_paper() -> None:
    """Ben Othman 2018, tables 1 and 3."""
    rows = {row["name"]: row["paper"] for row in reproduce.read_recipe("bo18_table3")["rows"]}
    found = {name: (paper["phone_error_rate"], paper["steps_to_converge"]) for name, paper in rows.items()}
    assert found == {
        "baseline": (0.268, 15947),
        "ln_encoder_only": (0.245, 9976),
        "ln_both": (0.253, 15552),
        "ln_decoder_only": (0.666, 15600),
    }


def test_a_report_of_nothing_trains_nothing(recipes: Path, corpus: Path, las: Las) -> None:
    answer = las("reproduce", "recipe=bo18_table3", "report_only=true", *places(corpus))
    assert answer.code == 0, answer.err
    table = (recipes / "results/bo18_table3-timit.md").read_text()
    assert table.count("| not trained |") == 4
    assert "| no layer norm | 26.8 % | 15,947 | not trained |  |  |  |" in table
    assert "| listener | 24.5 % | 9,976 | not trained |" in table
    for line in ("Source of the paper's numbers: A. Ben Othman", "Assumed where the paper is silent", "las reproduce"):
        assert line in table
    assert "26.8" in answer.out and "15,947" in answer.out
    assert not (corpus / "runs").exists()


def test_rows_that_are_finished_are_shown_beside_the_paper_and_not_trained_again(
    recipes: Path, corpus: Path, las: Las
) -> None:
    path = recipes / "bo18_table3.yaml"
    recipe = OmegaConf.to_container(OmegaConf.load(path))
    recipe["rows"] = recipe["rows"][:2]
    OmegaConf.save(OmegaConf.create(recipe), path)
    assert las("train", "+experiment=ln_encoder_only", *places(corpus)).code == 0
    result = json.loads((corpus / "runs/ln_encoder_only/result.json").read_text())
    assert las("reproduce", "recipe=bo18_table3", "report_only=true", *places(corpus)).code == 0
    table = (recipes / "results/bo18_table3-timit.md").read_text()
    test = result["splits"]["test"]
    low, high = test["interval"]
    ours = f"{100 * test['phone_error_rate']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    steps = f"{result['steps_to_converge']} | {result['steps_to_within_one_percent']} | 1 |"
    assert f"| listener | 24.5 % | 9,976 | {ours} | {steps}" in table
    assert table.count("not trained") == 1
    assert f"Commit of the runs: {result['commit']}." in table
    answer = las("reproduce", "recipe=bo18_table3", *places(corpus))
    assert answer.code == 0, answer.err
    assert "== baseline on timit" in answer.out and "ln_encoder_only is finished" in answer.out
    assert "not trained" not in (recipes / "results/bo18_table3-timit.md").read_text()


def test_a_rate_without_an_interval_is_shown_without(recipes: Path) -> None:
    row = reproduce.read_recipe("bo18_table3")["rows"][0]
    result = {"splits": {"test": {"phone_error_rate": 0.5, "interval": None}}, "seed": 1}
    result |= {"steps_to_converge": 1200, "steps_to_within_one_percent": 1000}
    assert reproduce.cells(row, result)[3:] == ["50.0 %", "1,200", "1,000", "1"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["recipe=bo18_table"], "recipe=bo18_table: there is no such recipe. Did you mean bo18_table3?"),
        ([], "recipe=: there is no such recipe"),
        (["recipe"], "recipe=: there is no such recipe"),
        (["recipe=bo18_table3", "report_only=yes"], "report_only=yes should be true or false"),
        (["recipe=bo18_table3", "optim.lrr=1"], "Did you mean optim.lr"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], says: str, recipes: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        reproduce.reproduce(arguments)
    assert says in str(raised.value)
