"""The page docs/performance.md, generated from the measurements in docs/performance/."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from benchmarks import growth, records, targets
from benchmarks.records import Row
from benchmarks.shapes import SHAPES
from benchmarks.suites import SUITES
from benchmarks.targets import Verdict
from las.storage import atomic

PICTURE = "targets.png"
GROWTH_PICTURE = "growth.png"

OPENING = """# Speed

Every table was measured by the command above it, which wrote its rows as JSON lines to `docs/performance/`. This page
is generated from those files by `python scripts/benchmark.py page=docs/performance.md`; `make bench` repeats the
measurements of layers and training step. Compare only numbers of one table: they were measured together on one machine.

## How it is measured

- The compared implementations take turns in one process, once each per round, after a warm-up round. Times are medians
  over the rounds.
- `forward`: without gradients, as in decoding. `total`: forward and backward, with gradients of parameters and frames.
- `/ lstm`, `/ packed`, `/ best`: the total as a share of that baseline's at the same shape. `plain / it`, `naive / it`:
  speed-up over that loop of the same cell.
- `peak`: the largest memory allocated by torch at once during one total, beyond parameters and frames; on a CPU
  measured by torch's profiler in a separate pass. Memory that compiled code allocates by itself is not included.
- `% of peak`: the operations of the products of the layers, of frames that are no padding, against those that one
  large product of the same type does in the same time on the same threads.
- `resident`: the largest growth of the process's resident set during a total, as reported by Linux. It includes memory
  that the C library does not return, but no page that was never written to.

| implementation | description |
|---|---|
| `lstm` | `nn.LSTM` on padded batches; it processes padding like speech |
| `lstm_packed` | `nn.LSTM` on a PackedSequence, which skips padding, as all kernels here do |
| `lstm_best` | one `nn.LSTM` for each direction in fp16, for which cuDNN has its fastest kernel |
| `lstm_graph` | `lstm` replayed from CUDA graphs |
| `haste`, `flashrnn` | the layer-normalised LSTM of lmnt-com/haste (fp32), the LSTM of NX-AI/flashrnn (bf16) |
| `plain` | the cells of this package in a loop over frames |
| `plain_compiled` | that loop compiled by `torch.compile` |
| `naive` | a straightforward `ln_global`: both projections, two `nn.LayerNorm`s and the gates frame by frame |
| all others | the kernels of `las/nn/kernels/`, by name ([architecture](architecture.md)) |
"""

GROWTH = "An exponent of 1 is a time that grows as the quantity does. One thing grows at a time."
NO_GPU = "Not yet measured on a GPU: `make gpu` tests and measures on one, and adds the tables and verdicts.\n"

BF16_ON_A_CPU = """## bf16 on a CPU

`trainer.precision=bf16` on a CPU: the `cpu` kernel rounds the operands of every product of a layer or of the speller's
cells (W x, U h, the query, and the gradients of them) to bfloat16 and sums in fp32. States, gates, norms, softmax and
parameters stay in fp32. The products run on the fastest unit that there is: AMX, AVX512-BF16, or fp32 instructions on
rounded numbers, with which an update takes twice as long as in fp32 (6.6 against 3.4 s for the 64 utterances of
suite=peers below, commit f428511, AVX2). Losses differ from those of fp32 in their fourth digit.

```sh
las train +experiment=an4_ctc corpus.root=/corpora/an4 trainer.threads=1 trainer.precision=bf16
```

7.3 million parameters, plain LSTM, torch 2.13.0+cpu, one thread of an Intel(R) Xeon(R) Processor with AMX. Processor
time of one update (`time.process_time` around `TrainingStep`), the mean of updates 5 to 16, at the sizes of this
command (dropout was 0.2 and features were normalised within utterances). Other trainings ran on the machine, so
differences of a few percent are noise:

| products | fp32 ms | bf16 ms | bf16 / fp32 |
| --- | --- | --- | --- |
| as here | 774 | 420 | 0.54 |
| with W x alone in bfloat16, by torch's autocast | 759 | 654 | 0.86 |
"""


def rewrite(path: Path) -> None:
    """Write the page x.md from all files x/*.jsonl, and the pictures x/targets.png and x/growth.png.

    Raises LasError without matplotlib.
    """
    folder = path.with_suffix("")
    measurements = [records.read(file) for file in sorted(folder.glob("*.jsonl"))]
    reached = _verdicts(measurements)
    if any(verdict.measured is not None for verdict in reached):
        targets.draw(reached, folder / PICTURE)
    grown = [row for rows in measurements for row in rows if row["suite"] == "growth"]
    if grown:
        growth.draw(grown, folder / GROWTH_PICTURE)
    atomic.write(path, page(measurements, folder.name))


def page(measurements: Sequence[Sequence[Row]], folder: str) -> str:
    """The text of the page; each element holds the measurements of one command, from files in `folder`."""
    sections = [OPENING]
    if not _on_a_gpu(measurements):
        sections.append(NO_GPU)
    sections += [_targets(_verdicts(measurements), folder), _shapes(), BF16_ON_A_CPU]
    for name in SUITES:
        sections += [_section(rows, folder) for rows in measurements if rows and rows[0]["suite"] == name]
    return "\n".join(sections)


def _on_a_gpu(measurements: Sequence[Sequence[Row]]) -> bool:
    return any(row["device"] == "cuda" for rows in measurements for row in rows)


def _verdicts(measurements: Sequence[Sequence[Row]]) -> list[Verdict]:
    """Verdicts on the targets of a CPU, and on those of a GPU once something was measured on one."""
    aims = [*targets.ON_CPU, *(targets.ON_CUDA if _on_a_gpu(measurements) else ())]
    return targets.verdicts(aims, [row for rows in measurements for row in rows])


def _targets(reached: Sequence[Verdict], folder: str) -> str:
    lines = [
        "## Targets",
        "",
        "Times as shares of others measured in the same run; the tables below have the numbers. `at peak` is the share "
        "if the products of the layers ran as fast as one large product and everything else took no time: no way of "
        "computing the same products on this machine is faster. `encoding` is the share of a search if it ended with "
        "the encoded states. Targets in bf16 are for processors that multiply it at least as fast as fp32.",
        "",
    ]
    if any(verdict.measured is not None for verdict in reached):
        lines += [f"![Measured ratios and their targets]({folder}/{PICTURE})", ""]
    return "\n".join([*lines, *_table(*records.table(targets.rows(reached), targets.COLUMNS)), ""])


def _section(rows: Sequence[Row], folder: str) -> str:
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
    if first["suite"] == "growth":
        lines += [f"![Time of a step over what grows]({folder}/{GROWTH_PICTURE})", "", GROWTH, ""]
    for shape, group in groupby(rows, key=lambda row: row["shape"]):
        members = list(group)
        headings, table = records.table(members, suite.columns)
        lines += [f"### {suite.title(shape)}", "", *_table(headings, table), ""]
        if refusals := records.unmeasured(members):
            lines += [f"Not measured: {'; '.join(refusals)}.", ""]
    return "\n".join(lines)


def _shapes() -> str:
    headings = ["shape", "what", "H", "input", "batch", "frames", "directions", "layers", "lengths"]
    table = []
    for name, shape in SHAPES.items():
        lengths = "all the same" if not shape.ragged else "real ones" if shape.lengths else f"{shape.shortest:g} to 1"
        sizes = (shape.hidden_size, shape.input_size, shape.batch, shape.frames, shape.directions, len(shape.reduction))
        table.append([name, shape.description, *map(str, sizes), lengths])
    return "\n".join(["## Shapes", "", *_table(headings, table), ""])


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *lines)]
