"""docs/parity.md: published configurations beside the composed paper tiers of the recipes."""

import runpy
from typing import Any

import pytest
from places import REPOSITORY

from las.config.build import compose
from las.reproduction import jobs, recipe

SCRIPT = runpy.run_path(str(REPOSITORY / "docs" / "made_by" / "parity.py"))
TABLES = SCRIPT["facts"]()
CASES = [(row, table["fields"]) for table in TABLES for row in table["rows"]]


def test_the_page_has_the_tables_of_the_facts() -> None:
    assert SCRIPT["PAGE"].read_text("utf-8").partition(SCRIPT["BEGIN"])[2] == "\n" + SCRIPT["page"]()


@pytest.mark.parametrize(("place", "fields"), CASES, ids=[row for row, _ in CASES])
def test_keys_are_those_of_the_composed_row(place: str, fields: list[dict[str, Any]]) -> None:
    name, _, row_name = place.partition("/")
    read = recipe.read(name)
    (row,) = (row for row in read.rows if row.name == row_name)
    config = compose("train", [*jobs.overrides_of(read, row, "paper"), "corpus.root=nowhere"])
    for field in fields:
        found = {key: value_of(config, key) for key in field["keys"]}
        assert found == field["keys"], field["field"]


def value_of(config: Any, key: str) -> Any:
    """The value of a dotted key, `absent` without one; numbers are indices of lists."""
    for part in key.split("."):
        place = int(part) if isinstance(config, list) else part
        if isinstance(config, dict) and place not in config:
            return SCRIPT["ABSENT"]
        config = config[place]
    return config


def test_every_difference_has_its_reason_and_every_equality_its_keys() -> None:
    for table in TABLES:
        for field in table["fields"]:
            kind = SCRIPT["state"](field)
            assert field.keys() - {"differs", "unknown"} == {"field", "keys"} | (
                {"published"} if kind != "unknown" else set()
            )
            assert field["keys"] if kind == "=" else (field.get("differs") or field["unknown"]), field["field"]
