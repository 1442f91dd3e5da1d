"""docs/results.md shows the numbers of docs/results.json, and README no other ones for their names."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from places import REPOSITORY

SCRIPT = runpy.run_path(str(REPOSITORY / "docs" / "made_by" / "collect_results.py"))
PAGE = (REPOSITORY / "docs" / "results.md").read_text("utf-8")
NUMBERS: list[dict[str, Any]] = json.loads((REPOSITORY / "docs" / "results.json").read_text("utf-8"))


def test_the_table_is_made_of_the_file() -> None:
    assert SCRIPT["with_table"](PAGE, NUMBERS) == PAGE
    assert NUMBERS and all(f"`{each['name']}`" in PAGE for each in NUMBERS)


@pytest.mark.parametrize("each", NUMBERS, ids=lambda each: each["name"])
def test_a_number_says_where_it_comes_from(each: dict[str, Any]) -> None:
    assert len(each["each"]) == len(each["seeds"]) == len(each["dev"]) == len(each["minutes"]) > 0
    assert each["value"] == pytest.approx(sum(each["each"]) / len(each["each"]))
    assert each["interval"][0] <= each["value"] <= each["interval"][1]
    assert each["command"].startswith("las train ") and re.fullmatch(r"[0-9a-f]{7,}(, [0-9a-f]{7,})*", each["commit"])


def test_readme_quotes_the_file() -> None:
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    for each in NUMBERS:
        if each["name"] in readme:
            assert SCRIPT["percent"](each) in readme, each["name"]


def run_folder(folder: Path, seed: int, rate: float, *keys: str) -> Path:
    folder.mkdir()
    command = f"las/__main__.py train corpus=an4 corpus.root=/data/an4 seed={seed} run_dir={folder} {' '.join(keys)}"
    (folder / "environment.json").write_text(json.dumps({"command": command.strip(), "commit": "abcdef123456"}))
    (folder / "config.json").write_text(json.dumps({"name": "trial", "seed": seed}))
    split = {"wer": rate, "interval": [rate - 0.02, rate + 0.03]}
    splits = {"dev": split, "test": split}
    result = {"name": "trial", "seed": seed, "commit": "abcdef123456", "steps": 10, "splits": splits}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_runs_become_numbers(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / str(seed), seed, 0.08 + 0.01 * seed) for seed in (1, 2, 3)]
    one, three = SCRIPT["number"]("x", "y", runs[:1]), SCRIPT["number"]("x", "y", runs)
    assert one["interval"] == pytest.approx([0.07, 0.12]) and one["interval_of"] == "speakers"
    assert three["interval"] == pytest.approx([0.1 - 0.02484, 0.1 + 0.02484], abs=1e-5)  # t(0.975, 2) = 4.303
    assert three["command"] == "las train corpus=an4 corpus.root=AN4" and three["seeds"] == [1, 2, 3]
    assert SCRIPT["percent"](three) == "10.0 % [7.5, 12.5]"
    with pytest.raises(SystemExit, match="by one command"):
        SCRIPT["number"]("x", "y", [runs[0], run_folder(tmp_path / "other", 2, 0.1, "optim.lr=0.1")])
    with pytest.raises(SystemExit, match="no result yet"):
        SCRIPT["number"]("x", "y", [tmp_path])


def test_seeds_of_the_same_command_join_a_number(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / str(seed), seed, 0.08 + 0.01 * seed, "a=1", "b=2") for seed in (2, 1, 3)]
    whole = SCRIPT["number"]("x", "y", [runs[1], runs[0], runs[2]])
    first = SCRIPT["number"]("x", "y", runs[:1]) | {"commit": "0123456"}
    turned = first | {"command": "las train b=2 a=1 corpus=an4 corpus.root=AN4"}
    rest = SCRIPT["number"]("x", "y", runs[1:])
    for stored in (first, turned):
        found = SCRIPT["joined"](rest, stored)
        assert found | {"interval": whole["interval"]} == whole | {"commit": "0123456, abcdef123456"}
        assert found["interval"] == pytest.approx(whole["interval"])
    for other in (None, first | {"command": "las train c=1"}, whole):
        assert SCRIPT["joined"](rest, other) == rest
