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
    with pytest.raises(SystemExit, match="not made by one command but for their seeds"):
        SCRIPT["number"]("x", "y", [runs[0], run_folder(tmp_path / "other", 2, 0.1, "optim.lr=0.1")])
    with pytest.raises(SystemExit, match="there is no result yet"):
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


def test_a_script_is_a_verb_and_the_last_value_of_a_key_counts(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "1", 1, 0.1)
    command = "/somewhere/scripts/train.py corpus=an4 optim.lr=0.1 corpus.root=/data/an4 optim.lr=0.2 seed=1"
    (folder / "environment.json").write_text(json.dumps({"command": command}))
    assert SCRIPT["command"](folder) == "las train corpus=an4 optim.lr=0.2 corpus.root=AN4"


def test_changes_have_a_table_of_their_own(tmp_path: Path) -> None:
    """Differences are those of the same seed: a change that one seed lacks is compared by the others."""
    changes = {"none": ("as it is", (0.01, 0.02, 0.03)), "init": ("init=torch", (0.03, 0.05))}
    numbers = []
    for name, (what, rates) in changes.items():
        runs = [run_folder(tmp_path / f"{name}{seed}", seed, rate, f"x={name}") for seed, rate in enumerate(rates, 1)]
        numbers.append(SCRIPT["number"](f"exchange_{name}", what, runs))
    begins, ends = ([SCRIPT[f"{mark}{part}"] for part in ("", "_EXCHANGED")] for mark in ("BEGIN", "END"))
    page = SCRIPT["with_table"]("".join(mark for pair in zip(begins, ends, strict=True) for mark in pair), numbers)
    one, other = (page.partition(begin)[2].partition(end)[0] for begin, end in zip(begins, ends, strict=True))
    assert "init=torch" not in one and other.count("las train corpus=an4 corpus.root=AN4 x=") == 2
    lines = [line for line in other.splitlines() if line.startswith("| ")]
    assert lines[1].startswith("| as it is | 2.0 % | 1.0, 2.0, 3.0 % |  | 2.0 % [")
    assert lines[2].startswith("| init=torch | 4.0 % | 3.0, 5.0 % | 2.5 % [-3.9, 8.9] | 4.0 % [")
