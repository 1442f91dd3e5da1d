"""The page docs/performance.md, made from the measurements in docs/performance/."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from las.benchmark import records
from las.benchmark.records import Row
from las.benchmark.shapes import SHAPES
from las.benchmark.suites import SUITES
from las.storage import atomic

OPENING = """# Speed

Every table was measured by the command above it, which wrote its rows as JSON lines into `docs/performance/`. This
page is made from those files: `python scripts/benchmark.py page=docs/performance.md` writes it again, and `make bench`
measures the layers and the training step anew. Compare only numbers of one table: they are of one machine and hour.

## How it is measured

- Things that are compared take turns in one process: once each per round, after a round that does not count. Times are
  medians over the rounds.
- `forward`: without gradients, as in decoding. `total`: forwards and backwards, to the parameters and to the frames.
- `/ lstm`, `/ packed`, `/ best`: the total as a share of that baseline's at the same shape. `plain / it`, `naive / it`:
  how many times faster than that loop of the same cell.
- `peak`: the most that torch had handed out at once during one total, beyond parameters and frames; on a CPU its
  profiler counts, in a pass of its own. What compiled code takes by other ways or in threads of its own is not in it.
- `resident`: by how much the process grew at most in a total, as Linux counts: everything is in it, and memory that the
  C library holds on to, but no page that was never written to.

| implementation | what it is |
|---|---|
| `lstm` | `nn.LSTM` as it comes; it reads padding as if it were speech |
| `lstm_packed` | `nn.LSTM` on a PackedSequence, which leaves padding out as all of ours do |
| `lstm_best` | one `nn.LSTM` for each direction in fp16, for which cuDNN has its fastest kernel |
| `lstm_graph` | `lstm` replayed from CUDA graphs |
| `haste`, `flashrnn` | the layer-normalised LSTM of lmnt-com/haste (fp32), the LSTM of NX-AI/flashrnn (bf16) |
| `plain` | our cells in a loop over frames |
| `plain_compiled` | that loop by `torch.compile` |
| `naive` | `ln_global` as it is usually written: both projections, two `nn.LayerNorm`s and the gates frame by frame |
| all others | our kernels, by name ([architecture](architecture.md)) |
"""

NO_GPU = "Not yet measured on a GPU.\n"


def rewrite(path: Path) -> None:
    """Write x.md from all x/*.jsonl."""
    files = sorted(path.with_suffix("").glob("*.jsonl"))
    atomic.write(path, page([records.read(file) for file in files]))


def page(measurements: Sequence[Sequence[Row]]) -> str:
    """The page of several files of measurements, each by one command."""
    parts = [OPENING]
    if not any(row["device"] == "cuda" for rows in measurements for row in rows):
        parts.append(NO_GPU)
    parts.append(_shapes())
    for name in SUITES:
        parts += [_section(rows) for rows in measurements if rows and rows[0]["suite"] == name]
    return "\n".join(parts)


def _section(rows: Sequence[Row]) -> str:
    first = rows[0]
    suite = SUITES[first["suite"]]
    lines = [
        f"## suite={first['suite']}, {first['machine']}",
        "",
        "```sh",
        first["command"],
        "```",
        "",
        f"torch {first['torch']}, {first['threads']} threads, {first['dtype']}, commit {first['commit']}.",
        "",
    ]
    for shape, group in groupby(rows, key=lambda row: row["shape"]):
        members = list(group)
        headings, table = records.table(members, suite.columns)
        lines += [f"### {suite.title(shape)}", "", *_table(headings, table), ""]
        if missing := records.unmeasured(members):
            lines += [f"Not measured: {'; '.join(missing)}.", ""]
    return "\n".join(lines)


def _shapes() -> str:
    headings = ["shape", "what", "H", "input", "batch", "frames", "directions", "layers", "lengths"]
    table = []
    for name, shape in SHAPES.items():
        lengths = "all the same" if not shape.ragged else "real ones" if shape.lengths else f"{shape.shortest:g} to 1"
        sizes = (shape.hidden_size, shape.input_size, shape.batch, shape.frames, shape.directions, len(shape.reduction))
        table.append([name, shape.what, *map(str, sizes), lengths])
    return "\n".join(["## Shapes", "", *_table(headings, table), ""])


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *lines)]
