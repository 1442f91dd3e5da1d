"""Tables of docs/parity.md, from the facts of docs/parity.yaml.

python docs/made_by/parity.py
"""

from collections.abc import Mapping
from itertools import starmap
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from las.config.build import shown

DOCS = Path(__file__).parents[1]
FACTS, PAGE = DOCS / "parity.yaml", DOCS / "parity.md"
BEGIN = "<!-- of parity.yaml -->\n"
ABSENT = "absent"
"""Value of a key that the composed config does not have: the default of the class."""


def facts() -> list[dict[str, Any]]:
    """Read the tables: title, source, rows (recipe/row) and fields."""
    tables: Any = OmegaConf.to_container(OmegaConf.load(FACTS))
    return list(tables)


def state(field: Mapping[str, Any]) -> str:
    """Tell whether a field equals the published one: =, ≠ or unknown."""
    return "≠" if "differs" in field else "unknown" if "unknown" in field else "="


def key_with_value(key: str, value: Any) -> str:
    """Write a key as it is typed, or as left to the default of its class."""
    return f"`{key}` by default" if value == ABSENT else f"`{key}={shown(value)}`"


def page() -> str:
    """Write the tables as Markdown."""
    lines = []
    for table in facts():
        rows = ", ".join(f"`{row}`" for row in table["rows"])
        lines += [f"## {table['title']}", "", f"{table['source']}; recipe/row: {rows}.", ""]
        lines += ["| field | published | | here | why |", "|---|---|---|---|---|"]
        for field in table["fields"]:
            here = ", ".join(starmap(key_with_value, field["keys"].items()))
            why = field.get("differs", field.get("unknown", ""))
            lines.append(f"| {field['field']} | {field.get('published', '')} | {state(field)} | {here} | {why} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text("utf-8").partition(BEGIN)[0] + BEGIN + "\n" + page(), "utf-8")
