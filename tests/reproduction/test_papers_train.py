"""The papers' end-to-end models, from the files of their recipes, trained at a small width on synthetic speech."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from omegaconf import OmegaConf
from tiers import rest_slow

from las.cli import train
from las.config.build import build, compose

RECIPES = Path(__file__).parents[2] / "recipes"
SMALL = [
    *("corpus=synthetic", "corpus.vocabulary=200", "corpus.train_utterances=16", "corpus.dev_utterances=4"),
    *("corpus.test_utterances=4", "corpus.train_speakers=4", "corpus.dev_speakers=2", "corpus.test_speakers=2"),
    "corpus.rate=[90,110]",  # slow enough for a state of 80 ms to a phone
    *("+scale=tiny", "trainer.batch_size=4", "trainer.sub_epochs=null", "trainer.broken_after_epochs=1000"),
    *("trainer.patience=100", "search.max_length=20", "validation_search.max_length=20"),
    *("trainer.histograms=false", "trainer.attention_pictures=false"),
]
ROWS = {
    "z20_end_to_end": ("z20_nopre_lstm", "z20_nopre_joined"),
    "bo18_table3": ("baseline", "ln_encoder_only", "ln_decoder_only", "ln_both"),
}
CASES = [(recipe, row) for recipe, rows in ROWS.items() for row in rows]


def plain(path: Path) -> dict[str, Any]:
    loaded = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(loaded, dict)
    return {str(key): value for key, value in loaded.items()}


def of_recipe(recipe: str, name: str) -> list[str]:
    """What the recipe says for the paper's size, without the corpus that nobody may have, which brings its symbols."""
    table = plain(RECIPES / f"{recipe}.yaml")
    (row,) = (row for row in table["rows"] if row["name"] == name)
    setting = plain(RECIPES / "settings" / f"{table['setting']}.yaml")
    listed = [*setting["paper"]["overrides"], *row.get("overrides", []), *row.get("at", {}).get("paper", [])]
    return [override for override in listed if not override.startswith(("corpus", "tokens@corpus"))]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def trained(data: Path, place: Path, overrides: list[str], num_steps: int, every: int) -> tuple[dict, list[dict]]:
    length = [f"trainer.max_steps={num_steps}", f"trainer.validate_every={every}"]
    result = train.train([*overrides, *SMALL, *length, f"data_dir={data}", f"run_dir={place / 'run'}"])
    return result, events(place, "train")


def events(place: Path, kind: str) -> list[dict]:
    return [line for line in tiny.steps(place / "run") if line["event"] == kind]


@pytest.mark.parametrize("recipe", rest_slow(["z20_variance", "z20_end_to_end", "z20_depth"]))
def test_no_training_of_zeineldeen_2020_sees_more_than_75_tokens(recipe: str) -> None:
    for row in plain(RECIPES / f"{recipe}.yaml")["rows"]:
        assert compose("train", of_recipe(recipe, row["name"]))["limits"]["longest_tokens"] == 75, row["name"]


@pytest.mark.parametrize(("num_steps", "recipe", "row"), rest_slow([(3, *CASES[1]), *((50, *each) for each in CASES)]))
def test_the_papers_models_learn(num_steps: int, recipe: str, row: str, data: Path, tmp_path: Path) -> None:
    every = num_steps // 2
    result, lines = trained(data, tmp_path, of_recipe(recipe, row), num_steps, every)
    assert [line["step"] for line in lines] == list(range(1, num_steps + 1)), "no update was left out"
    assert (result["steps"], result["splits"]["test"]["utterances"]) == (num_steps, 4)
    first, *_, last = (line["dev_loss"] for line in events(tmp_path, "validation"))  # without dropout, unlike training
    assert num_steps < 50 or last < first


@pytest.mark.slow
def test_pretraining_of_zeineldeen_2020(data: Path, tmp_path: Path) -> None:
    """Its four stages of five sub-epochs, of one update each, and what comes after them."""
    result, lines = trained(data, tmp_path, of_recipe("z20_end_to_end", "z20_pre_lstm"), 22, 1)
    assert (result["steps"], len(lines)) == (22, 22)
    rates = [0.001 * (0.1 + 0.9 * done / 9) for done in range(10)]
    assert [line["learning_rate"] for line in lines[:10]] == pytest.approx(rates), "the warm-up goes on over stages"
    log = (tmp_path / "run/log.txt").read_text()
    assert log.count(" takes over ") == 4 and log.count("; new: ") == 2
    assert "new: listener.layers.3" in log and "new: listener.layers.4" in log and "stage 5 of 5: the whole" in log
    config = json.loads((tmp_path / "run/checkpoints/step-00000022/config.json").read_text())
    assert config["model"]["listener"]["num_layers"] == 6 and config["loss"]["smoothing"] == 0.1


HYBRID = [row["name"] for row in plain(RECIPES / "z20_hybrid.yaml")["rows"]]
FOUR_STEPS = ["trainer.batch_size=4", "trainer.sub_epochs=null", "trainer.validate_every=2", "trainer.max_steps=4"]


@pytest.mark.parametrize("row", rest_slow(HYBRID, keep=1))
def test_the_hybrid_models_of_the_paper_have_their_sizes(row: str) -> None:
    """41 and 53 million parameters in the paper; those of layer norm are few."""
    config = compose("train", [*of_recipe("z20_hybrid", row), "corpus=switchboard_300", "corpus.root=nowhere"])
    section = config["model"]
    with torch.device("meta"):
        listener = build(section["listener"], where="listener")(40)
        output = torch.nn.Linear(listener.output_size, section["num_pdfs"])
    count = sum(parameter.numel() for parameter in [*listener.parameters(), *output.parameters()])
    assert count / 1e6 == pytest.approx(53.0 if "_8_" in row else 41.0, rel=0.01)
    assert (config["optim"]["eps"], config["optim"]["lr"], config["loss"]["focus"]) == (0.1, 0.0005, 2.0)
    assert (config["schedule"]["decay"], config["schedule"]["warmup_sub_epochs"]) == (0.5, 0)
    assert (config["trainer"]["sub_epochs"], config["trainer"]["max_sub_epochs"]) == (6, 80)
    assert config["model"]["features"]["_target_"] == "las.Gammatone"
    assert config["labels"] == "labels/switchboard_300"


def test_tied_states_are_as_many_as_the_labels_have() -> None:
    config = compose("train", ["model=hybrid_small", "+model.num_pdfs=9001"])
    model = build(config["model"], where="model")(8000, 30)
    assert (model.num_pdfs, model.output.out_features, len(model.log_priors)) == (9001, 9001, 9001)


@pytest.mark.parametrize("row", rest_slow(["z20_hybrid_8_joined_cell", "z20_hybrid_6_lstm"], keep=0))
def test_hybrid_models_train_by_the_papers_own_settings(row: str, data: Path, tmp_path: Path) -> None:
    """Without the imported labels of tied states, at a small width."""
    overrides = [each for each in of_recipe("z20_hybrid", row) if "num_pdfs" not in each and "labels" not in each]
    small = [each for each in SMALL if not each.startswith(("+scale", "search", "validation_search"))]
    width = ["model.listener.hidden_size=12", "trainer.max_sub_epochs=2", *FOUR_STEPS]
    result = train.train([*overrides, *small, *width, f"data_dir={data}", f"run_dir={tmp_path / 'run'}"])
    lines = [line for line in tiny.steps(tmp_path / "run") if line["event"] == "train"]
    assert result["steps"] == 4 and lines[-1]["loss"] < lines[0]["loss"]
