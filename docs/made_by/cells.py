"""The table of cells in docs/which_cell.md, from the cells themselves and what docs/performance measured of them.

    python docs/made_by/cells.py

It has a row for each class of cells. Kernels are those that know the class, on a machine that has what they need.
"""

from pathlib import Path
from typing import Any

import torch

from las.config import folders
from las.config.build import build, config_directory, option
from las.nn.cells.projected_lstm import ProjectedLSTMCell
from las.nn.kernels.choice import KERNELS
from las.nn.kernels.forms import uncompiled
from las.reproduction import markdown
from las.storage import bounded

DOCS = Path(__file__).parents[1]
PAGE, EQUATIONS = DOCS / "which_cell.md", DOCS / "equations.md"
TIMES = [DOCS / "performance" / f"{name}.jsonl" for name in ("lstm_states", "lstm_variants")]
BEGIN, END = "<!-- which cell: begin -->\n", "<!-- which cell: end -->\n"
HEADINGS = ["`cell=`", "equations", "state", "parameters", "kernels", "time", "time of `plain`"]


def cells() -> dict[str, Any]:
    """A cell of each class by option: the one that is called as its module, or the first."""
    found: dict[type, str] = {}
    for name in folders.options(config_directory(), "cell"):
        made = type(build(option("cell", name), where=name)(80, 256))
        if made not in found or made.__module__.endswith(f".{name}"):
            found[made] = name
    return {name: build(option("cell", name), where=name)(80, 256) for name in found.values()}


def kernels(cell: Any) -> str:
    """Names of the kernels that know the class of a cell, fastest first."""
    knows = {
        **{name: not uncompiled(cell, kernel.device) for name, kernel in KERNELS.items() if kernel.device},
        "torch": not cell.not_unrolled(torch.zeros(1)),
        "merged": isinstance(cell, ProjectedLSTMCell),
        "plain": True,
    }
    return ", ".join(f"`{name}`" for name in KERNELS if knows[name])


def heading(page: str, name: str) -> str:
    """A link to the section of the page of equations whose table has those of an option first."""
    title = page.partition(f"\n| `{name}`")[0].rpartition("\n## ")[2].partition("\n")[0]
    return f"[{title}](equations.md#{title.lower().replace(' ', '-')})"


def times() -> dict[str, dict[str, float]]:
    """Times of a cell by kernel, forwards and backwards, as shares of `nn.LSTM`'s in the same run; the first file's."""
    found: dict[str, dict[str, float]] = {}
    for row in (row for path in TIMES for row in bounded.stored_lines(path)):
        if row["implementation"] in KERNELS and row.get("ratio_to_lstm") is not None:
            found.setdefault(row["cell"], {}).setdefault(row["implementation"], row["ratio_to_lstm"])
    return found


def made(page: str) -> str:
    """The page with the table anew."""
    before, marked, rest = page.partition(BEGIN)
    rows, measured, equations = [], times(), EQUATIONS.read_text("utf-8")
    for name, cell in cells().items():
        state = ", ".join(f"{part} {'x'.join(map(str, each.shape[1:]))}" for part, each in named(cell))
        count = sum(parameter.numel() for parameter in cell.parameters())
        of_cell = measured[name]
        shares = [f"{share:.1f}" for share in (min(of_cell.values()), of_cell["plain"])]
        rows.append([f"`{name}`", heading(equations, name), state, f"{count:,}", kernels(cell), *shares])
    rows.sort(key=lambda row: float(row[-2]))
    return before + marked + "\n" + "\n".join([*markdown.table_lines(HEADINGS, rows), "", END]) + rest.partition(END)[2]


def named(cell: Any) -> list[tuple[str, Any]]:
    """The parts of a cell's state by name."""
    return list(cell.initial_state(1)._asdict().items())


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text("utf-8")), "utf-8")
