"""Recipes: the papers' numbers against a second transcription of the tables, and mistakes that are named."""

import itertools
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from refusals import refused

from las.config import build
from las.config.build import compose
from las.reproduction import claims, jobs, recipe
from las.runtime.errors import ConfigError

RECIPES = Path(__file__).parents[2] / "recipes"

# The tables as they stand in the papers, transcribed apart from the recipes. Rates in % for Zeineldeen et al. (Z20), as
# fractions for Ben Othman (BO18).
BO18 = """
bo18_table1 ln_encoder_only phone_error_rate 0.245 9976
bo18_table1 baseline phone_error_rate 0.268 15947
bo18_table2 ln_encoder_only wer 0.401 64354
bo18_table2 baseline wer 0.426 96785
bo18_table3 ln_encoder_only phone_error_rate 0.245 9976
bo18_table3 ln_both phone_error_rate 0.253 15552
bo18_table3 ln_decoder_only phone_error_rate 0.666 15600
bo18_table3 baseline phone_error_rate 0.268 15947
"""
# Pretrained, variant, cell norm: Hub5'00 sum, SWB, CH, Hub5'01, epoch -> sub-epoch.
END_TO_END = """
Y - - | 19.1 | 12.9 | 25.2 | 18.8 | 13.0 78
Y Joined Y | 18.3 | 12.1 | 24.5 | 17.8 | 10.8 65
Y Global Y | 22.2 | 14.9 | 29.4 | 20.7 | 20.0 120
Y PerGate Y | 18.1 | 11.7 | 24.4 | 17.8 | 13.0 78
Y Joined N | 17.9 | 11.8 | 23.9 | 17.6 | 11.8 71
Y Global N | 19.1 | 12.8 | 25.5 | 18.5 | 12.3 74
Y PerGate N | 18.4 | 12.0 | 24.8 | 18.1 | 13.3 80
N - - | 19.2 | 12.9 | 25.5 | 18.6 |
N Joined Y | broken
N Global Y | 19.0 | 12.5 | 25.4 | 18.4 | 11.0 66
N PerGate Y | broken
N Joined N | 17.2 | 11.1 | 23.2 | 16.7 | 13.3 80
N Global N | 18.9 | 12.2 | 25.4 | 18.1 | 16.0 96
N PerGate N | 18.4 | 12.0 | 24.8 | 18.1 | 13.3 80
"""
# Layers, variant, cell norm: the same.
HYBRID = """
6 - - | 14.3 | 9.6 | 19.0 | 14.5 | 12.8 77
6 Joined Y | 14.1 | 9.5 | 18.8 | 14.1 | 12.8 77
6 Global Y | 14.1 | 9.3 | 18.9 | 14.2 | 12.6 76
6 PerGate Y | 14.5 | 9.8 | 19.2 | 14.6 | 12.8 77
6 Joined N | 14.4 | 9.7 | 19.1 | 14.5 | 13.2 79
6 Global N | 14.2 | 9.5 | 18.9 | 14.1 | 12.8 77
6 PerGate N | 14.7 | 10.0 | 19.4 | 14.6 | 12.8 77
8 - - | 14.4 | 9.8 | 19.1 | 14.3 | 12.6 76
8 Joined Y | 14.4 | 9.6 | 19.2 | 14.4 | 12.8 77
8 Global Y | 14.0 | 9.6 | 18.5 | 14.1 | 12.8 77
8 PerGate Y | 14.2 | 9.5 | 18.9 | 14.3 | 12.8 77
8 Joined N | 14.5 | 9.9 | 19.1 | 14.7 | 11.0 66
8 Global N | 14.0 | 9.4 | 18.6 | 14.4 | 12.8 77
8 PerGate N | 14.5 | 9.8 | 19.2 | 14.8 | 10.8 65
"""
NEW = ("norms", "cells")
WORDS = {"swb": 21395, "ch": 21594}


def paper(name: str) -> dict[str, dict[str, Any]]:
    """The numbers of every row that has any."""
    return {row.name: dict(row.paper) for row in recipe.read(name).rows if row.paper}


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def row_name(first: str, variant: str, cell_norm: str) -> str:
    """`z20_nopre_joined_cell` from `N Joined Y`."""
    group = {"Y": "pre", "N": "nopre", "6": "hybrid_6", "8": "hybrid_8"}[first]
    variant = {"-": "lstm", "PerGate": "per_gate"}.get(variant, variant.lower())
    return f"z20_{group}_{variant}{'_cell' if cell_norm == 'Y' else ''}"


def of_hub5(rates: list[str], epoch: str = "") -> dict[str, Any]:
    """Numbers of a row of Hub5: rates as fractions, and when."""
    found: dict[str, Any] = dict(zip(("wer", "hub5_00_swb", "hub5_00_ch", "hub5_01"), map(share, rates), strict=True))
    if epoch:
        printed, sub_epoch = epoch.split()
        found |= {"epoch": float(printed), "sub_epoch": int(sub_epoch)}
    return found


def share(percent: str) -> Any:
    return pytest.approx(float(percent) / 100, rel=1e-9)


def test_the_numbers_of_ben_othman() -> None:
    expected: dict[str, dict[str, Any]] = {}
    for line in BO18.strip().splitlines():
        name, row, metric, rate, steps = line.split()
        expected.setdefault(name, {})[row] = {metric: float(rate), "steps_to_converge": int(steps)}
    assert {name: paper(name) for name in expected} == expected


@pytest.mark.parametrize(("name", "table"), [("z20_end_to_end", END_TO_END), ("z20_hybrid", HYBRID)])
def test_the_numbers_of_zeineldeen(name: str, table: str) -> None:
    expected = {}
    for which, *numbers in cells(table):
        row = row_name(*which.split())
        expected[row] = {"outcome": "broken"} if numbers == ["broken"] else of_hub5(numbers[:4], numbers[4])
    assert len(expected) == 14
    assert paper(name) == expected
    assert list(paper(name)) == list(expected)


@pytest.mark.parametrize("name", ["z20_end_to_end", "z20_hybrid", "z20_depth"])
def test_hub5_is_the_mean_of_its_parts_weighted_by_their_words(name: str) -> None:
    """It is so in the papers: an error of transcription would most likely break it."""
    for row, numbers in paper(name).items():
        if "wer" in numbers:
            mean = sum(numbers[f"hub5_00_{part}"] * count for part, count in WORDS.items()) / sum(WORDS.values())
            assert abs(mean - numbers["wer"]) < 0.00101, row


def test_rows_of_a_claim_exist_in_its_recipe() -> None:
    """A rule looks rows up by name: one that no recipe has would stay undecided for ever."""
    known = {name: {row.name for row in recipe.read(name).rows} for name in recipe.names()}
    written = (Path(__file__).parents[2] / "las" / "reproduction" / "claims.py").read_text("utf-8")
    for group in ("PRETRAINED", "NOT_PRETRAINED"):
        assert set(getattr(claims, group)) <= known["z20_end_to_end"]
    assert {row for rows in claims.HYBRID.values() for row in rows} <= known["z20_hybrid"]
    assert {f"{kind}_lr_{rate}" for kind in ("baseline", "ln_encoder_only") for rate in claims.RATES} == known[
        "lr_sweep"
    ]
    assert {claim.recipe for claim in claims.CLAIMS} - {""} <= known.keys()
    assert [claim.id for claim in claims.CLAIMS] == [f"C{number}" for number in range(1, len(claims.CLAIMS) + 1)]
    named = {word.strip('",[]()') for word in written.split() if word.startswith(('"z20_', '"ln_', '"baseline'))}
    assert named and {name for name in named if "{" not in name} <= set().union(*known.values()) | known.keys()


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the recipes that may be changed."""
    folder = shutil.copytree(RECIPES, tmp_path / "recipes", ignore=shutil.ignore_patterns("results"))
    monkeypatch.setattr(recipe, "directory", lambda: folder)
    return folder


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("titel", "x", "bo18_table3.yaml 'titel' title"),
        ("setting", "bo18_timt", "setting bo18_timt bo18_timit"),
        ("setting", "smoke", "setting smoke"),
        ("look_every", "often", "bo18_table3.yaml look_every='often'"),
        ("family", "faithful", "family faithful paper-faithful"),
        ("rows", [{"name": "x"}], "row 1 label"),
        ("rows", ["x"], "row 1 at, family, label"),
        ("rows", [{"name": "x", "label": "x", "at": {"opne": []}}], "row 1 at opne open"),
        ("rows", [{"name": "x", "label": "x", "repeat": "run"}], "repeat run runs"),
        ("rows", [{"name": "x", "label": "x", "after": "x"}], "row 1 after x"),
        ("rows", [{"name": "x", "label": "x", "paper": {"per": 0.1}}], "paper per"),
        ("rows", [{"name": "x", "label": "x", "paper": {"wer": "19"}}], "paper.wer='19'"),
        ("rows", [{"name": "x", "label": "x", "paper": {"sub_epoch": 1.5}}], "sub_epoch=1.5"),
    ],
)
def test_mistakes_in_a_recipe_are_named(copy: Path, key: str, value: object, says: str) -> None:
    path = copy / "bo18_table3.yaml"
    values = OmegaConf.to_container(OmegaConf.load(path))
    OmegaConf.save(OmegaConf.create({**values, key: value}), path)
    mistaken("bo18_table3", says)


def mistaken(name: str, says: str, tier: str = "open") -> None:
    refused("|".join(says.split()), lambda: recipe.read(name).tier(tier), kind=ConfigError)


def replace(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_setting_may_name_another_for_a_tier(copy: Path) -> None:
    assert recipe.read("bo18_table2").tier("open") == recipe.read("bo18_table3").tier("open")
    assert recipe.read("bo18_table2").tier("paper") != recipe.read("bo18_table3").tier("paper")
    replace(copy / "settings/bo18_librispeech.yaml", "open: bo18_timit", "open: bo18_timt")
    mistaken("bo18_table2", "settings/bo18_librispeech.yaml open bo18_timt bo18_timit")
    replace(copy / "settings/bo18_timit.yaml", "seeds: 3", "seds: 3")
    mistaken("bo18_table3", "settings/bo18_timit.yaml open 'seds' seeds")


def test_a_setting_may_add_to_a_tier_of_another() -> None:
    open_, like = recipe.read("norms").tier("open"), recipe.read("bo18_table3").tier("open")
    assert open_.overrides == (*like.overrides, "init=las") and open_.per_corpus == like.per_corpus
    assert open_.assumed[: len(like.assumed)] == like.assumed and len(open_.assumed) > len(like.assumed)
    assert (open_.seeds, open_.rates) == (3, (0.002, 0.004))


def test_rows_of_another_depth_have_a_factor_of_time_for_each_layer() -> None:
    """At every tier: `open` shortens time by factors of its own, so a row may fit one tier and not the next."""
    is_depth = re.compile(r"model.*(num_layers=|_)\d$")
    for each, tier in itertools.product(map(recipe.read, recipe.names()), ("smoke", "open", "paper")):
        rows = {next(filter(is_depth.match, row.overrides), ""): row for row in each.rows}
        for row in (row for override, row in rows.items() if override):
            config = compose("train", [*jobs.overrides_of(each, row, tier), "corpus.root=timit"])
            listener = config["model"]["listener"]
            assert len(listener["time_reduction"]) == listener["num_layers"], (row.name, tier)


@pytest.mark.slow
def test_norms_and_cells_are_150_trainings() -> None:
    """Two rates on phones in noise, one on AN4, where the last row of the norms is left out."""
    phones, an4 = (), ("corpus=an4", "corpus.root=x", "optim.lr=0.002")
    counts = [
        read.tier("open").seeds * len(jobs.jobs(read, "open", 1, Path("runs"), each))
        for read in map(recipe.read, NEW)
        for each in (phones, an4)
    ]
    assert counts == [60, 30, 42, 21] and sum(counts) - 3 == 150


def test_unknown_names_are_answered_with_the_nearest() -> None:
    mistaken("bo18_table4", "recipe=bo18_table4 bo18_table")
    mistaken("bo18_table3", "tier=small smoke", tier="small")


def test_a_wheel_carries_recipes_beside_its_configs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "config_directory", lambda: tmp_path / "las" / "configs")
    assert recipe.directory() == tmp_path / "las" / "recipes"
