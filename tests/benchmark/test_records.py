"""The verb benchmark: what rows say and how they are compared. No time is asserted."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from benchmarks import baselines, candidates, lstm, main, peers, records, report, settings, shapes, targets, timing
from benchmarks.shapes import Shape
from console import Answer
from rich.console import Console
from tiers import rest_slow
from torch import nn

from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.norms import LayerNorm, RMSNorm
from las.nn.kernels import choice
from las.nn.kernels.base import unroll
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError

REPOSITORY = Path(__file__).parents[2]
CPU = torch.device("cpu")
WHOLE = Shape("rows of one length, too many to compile", 4, 3, 2, 21)
RAGGED = Shape("padded rows", 4, 3, 3, 6, shortest=0.5)
STACKED = Shape("two layers", 4, 3, 2, 6, lengths=(6, 3), reduction=(2, 1))
ONE_WAY = Shape("one direction", 4, 3, 2, 21, directions=1)
KEYS = {
    *("suite", "implementation", "cell", "shape", "dtype", "device", "machine", "threads", "torch", "commit"),
    *("command", "forward_ms", "total_ms", "peak_bytes", "ratio_to_lstm"),
}


def use_small(patch: pytest.MonkeyPatch) -> None:
    """Shapes that take no time, in place of the others."""
    for module in (shapes, lstm, settings):
        patch.setattr(module, "SHAPES", {"WHOLE": WHOLE, "RAGGED": RAGGED, "STACKED": STACKED, "ONE_WAY": ONE_WAY})


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[records.Row]:
    """Every small shape, as read from the file that the verb wrote."""
    output = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    named = "shapes=[WHOLE,RAGGED,STACKED,ONE_WAY]"
    with pytest.MonkeyPatch.context() as patch:
        use_small(patch)
        given = ["suite=lstm", named, "cells=[ln_global]", "repeats=2", "threads=1", f"output={output}"]
        returned = main.benchmark(given)
    assert records.read(output) == json.loads(json.dumps(returned))
    return records.read(output)


def at(table: list[records.Row], shape: str) -> list[records.Row]:
    return [row for row in table if row["shape"] == shape]


def test_every_kernel_and_baseline_has_a_row_or_a_reason(measured: list[records.Row]) -> None:
    expected = {(name, baseline.cell) for name, baseline in baselines.BASELINES.items()}
    expected |= {(name, "ln_global") for name in (*choice.KERNELS, "plain_compiled")}
    for shape in ("WHOLE", "RAGGED", "STACKED", "ONE_WAY"):
        table = at(measured, shape)
        assert {(row["implementation"], row["cell"]) for row in table} == expected
        for row in table:
            assert row.keys() >= KEYS
            assert (row["total_ms"] is None) == (row["forward_ms"] is None) == bool(row.get("refused"))
    refused = {row["implementation"]: row["refused"] for row in at(measured, "RAGGED") if "refused" in row}
    assert refused["haste"] == refused["flashrnn"] == "not installed"
    assert "padding" in refused["naive"]
    assert refused["lstm_best"] == "needs a GPU" and "minutes to compile" in refused["plain_compiled"]
    assert {"plain", "lstm", "lstm_packed"}.isdisjoint(refused)


def test_a_cell_may_have_another_norm() -> None:
    norms = {name: lstm.cell_of(name)(2, 3).gate_norm for name in ("ln_joined", "ln_joined/rms")}
    assert {name: type(norm) for name, norm in norms.items()} == {"ln_joined": LayerNorm, "ln_joined/rms": RMSNorm}


def test_a_row_says_how_it_was_made(measured: list[records.Row]) -> None:
    for row in measured:
        assert (row["suite"], row["dtype"], row["device"]) == ("lstm", "float32", "cpu")
        assert row["torch"] == torch.__version__ and row["machine"].endswith(torch.backends.cpu.get_cpu_capability())
        assert row["command"].startswith("python scripts/benchmark.py suite=lstm 'shapes=[WHOLE,")
        if row["total_ms"] is not None:
            assert row["total_lowest_ms"] <= row["total_ms"] <= row["total_highest_ms"] and row["repeats"] == 2
            assert row["peak_bytes"] > 0


def test_ratios_are_of_totals_at_the_same_shape(measured: list[records.Row]) -> None:
    for row in measured:
        if "refused" in row:
            assert row["ratio_to_lstm"] is None and "times_faster_than_plain" not in row
    for shape in ("WHOLE", "RAGGED", "STACKED", "ONE_WAY"):
        table = {(row["implementation"], row["cell"]): row for row in at(measured, shape) if "refused" not in row}
        bar = table["lstm", "lstm"]
        assert bar["ratio_to_lstm"] == 1.0
        for (_, cell), row in table.items():
            assert row["ratio_to_lstm"] == row["total_ms"] / bar["total_ms"]
            assert row["peak_to_lstm"] == row["peak_bytes"] / bar["peak_bytes"]
            if ("plain", cell) in table and row["implementation"] in choice.KERNELS:
                assert row["times_faster_than_plain"] == table["plain", cell]["total_ms"] / row["total_ms"]
            if ("naive", cell) in table:
                assert row["times_faster_than_naive"] == table["naive", cell]["total_ms"] / row["total_ms"]
            if shape in ("RAGGED", "STACKED"):
                assert row["ratio_to_packed"] == row["total_ms"] / table["lstm_packed", "lstm"]["total_ms"]
            else:
                assert "ratio_to_packed" not in row


def test_lengths_are_the_same_every_time_and_fill_the_batch() -> None:
    for shape in shapes.SHAPES.values():
        lengths = shape.num_frames()
        assert len(lengths) == shape.batch and int(lengths.max()) == shape.frames
        assert torch.equal(lengths, shape.num_frames())
        assert shape.ragged == (int(lengths.min()) < shape.frames)
        assert shape.lengths or int(lengths.min()) >= round(shape.shortest * shape.frames)


def copied(bidirectional: nn.LSTM, directions: baselines.Directions) -> None:
    """Give two layers of one direction the weights of one layer of both."""
    for turn, suffix in enumerate(("", "_reverse")):
        layer = directions.layers[turn].lstm
        layer.load_state_dict({name: getattr(bidirectional, name + suffix) for name in layer.state_dict()})


def test_baselines_compute_what_they_are_called() -> None:
    frames, whole, ragged = torch.randn(3, 6, 5), torch.tensor([6, 6, 6]), torch.tensor([6, 4, 2])
    padded, packed, best = (baselines.BASELINES[name].layer(5, 4, 2) for name in ("lstm", "lstm_packed", "lstm_best"))
    packed.load_state_dict(padded.state_dict())
    copied(padded.lstm, best)
    torch.testing.assert_close(packed(frames, whole), padded(frames, whole))
    torch.testing.assert_close(best(frames, whole), padded(frames, whole))
    outputs = packed(frames, ragged)
    assert outputs.shape == (3, 6, 8) and outputs[2, 2:].abs().max() == 0
    torch.testing.assert_close(outputs[2, :2], padded(frames[2:, :2], whole)[0])


def test_the_naive_loop_is_ln_global() -> None:
    loop, cell = baselines.Naive(5, 4), LNGlobalLSTMCell(5, 4, biases="input")
    with torch.no_grad():
        for parameter in loop.parameters():
            parameter.normal_()
        loop.recurrent_norm.bias.zero_()
        cell.load_state_dict(
            {
                "input_weight": loop.input.weight,
                "recurrent_weight": loop.recurrent.weight,
                "input_gain": loop.input_norm.weight,
                "input_bias": loop.input_norm.bias,
                "recurrent_gain": loop.recurrent_norm.weight,
            }
        )
    frames = torch.randn(3, 6, 5)
    with choice.use_kernel("plain"):
        expected, _ = unroll(cell, cell.input_gates(frames), torch.tensor([6, 6, 6]))
    torch.testing.assert_close(loop(frames), expected)


@pytest.mark.parametrize("directions", [1, 2])
def test_the_loop_to_be_compiled_is_the_plain_recurrence(directions: int) -> None:
    loop = candidates.LayerLoop(LNGlobalLSTMCell, 5, 4, directions)
    ours = candidates.KernelLayer("plain", LNGlobalLSTMCell, 5, 4, directions)
    parts = [ours.layer.forwards, ours.layer.backwards] if directions == 2 else [ours.layer]
    for cell, part in zip(loop.cells, parts, strict=True):
        part.cell.load_state_dict(cell.state_dict())
    frames, num_frames = torch.randn(3, 6, 5), torch.tensor([6, 6, 6])
    torch.testing.assert_close(loop(frames, num_frames), ours(frames, num_frames))


COMPILE = """
import torch
from benchmarks import candidates
from benchmarks.shapes import Shape
from las.nn.cells.ln_global import LNGlobalLSTMCell
shape, frames = Shape("short", 4, 3, 2, 3), torch.randn(2, 3, 3)
cells = {"ln_global": LNGlobalLSTMCell}
made, = candidates.candidates(shape, cells, [], ["plain_compiled"], torch.float32, frames)
print(made.prepare_s > 0, made.layers(frames, torch.tensor([3, 3])).shape == (2, 3, 8))
"""


@pytest.mark.slow
def test_the_plain_loop_is_compiled_where_rows_are_short() -> None:
    """In a process of its own: the compiler cannot follow the checks that tests add to every function."""
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", COMPILE],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": "scripts"},
        capture_output=True,
        text=True,
    )
    assert (answer.stdout, answer.stderr) == ("True True\n", "")


def test_works_take_turns_and_the_slow_ones_sit_out(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    cost = {"quick": 1.0, "slow": 2000.0}
    monkeypatch.setattr(timing, "milliseconds", lambda run, device: run())
    works = {}
    for name in cost:
        run = lambda name=name: order.append(name) or cost[name]  # noqa: E731
        works[name] = timing.Work(run, lambda name=name: order.append(f"before {name}"))
    found = timing.alternate(works, repeats=6, budget_s=5.0, device=CPU, what="")
    assert order[:4] == ["before quick", "quick", "before slow", "slow"]
    assert [name for name in order if name in cost] == ["quick", "slow"] * 4 + ["quick"] * 3
    assert found == {"quick": [1.0] * 6, "slow": [2000.0] * 3}
    assert timing.spread([3.0, 1.0, 2.0, 9.0]) == (2.5, 1.0, 9.0, 4)


@pytest.mark.parametrize(
    ("override", "says"),
    rest_slow(
        [
            ("suite=lstn", "suite=lstn lstm"),
            ("shapes=[C1,C11]", "shapes 'C11' C1"),
            ("kernels=[plian]", "kernels 'plian' plain"),
            ("baselines=[lstm_pakced]", "baselines 'lstm_pakced' lstm_packed"),
            ("cells=[ln_gloabl]", "cells 'ln_gloabl' ln_global"),
            ("cells=[ln_global/rmss]", "norms cells 'rmss' rms"),
            ("dtype=float23", "dtype 'float23' float32"),
            ("device=cupu", "device=cupu cpu"),
            ("repeat=3", "'repeat' configs/benchmark.yaml repeats"),
            ("+repeat=3", "repeat configs/benchmark.yaml repeats"),
            ("repeats=0", "repeats=0 1"),
            ("repeats=many", "repeats='many'"),
            ("suite=null", "suite=... lstm nn_lstm model growth peers decode loader"),
            ("seconds=[1.0]", "seconds=[1.0]"),
        ],
        keep=4,
    ),
)
def test_mistakes_are_explained(override: str, says: str, las: Callable[..., Answer]) -> None:
    las("benchmark", "suite=lstm", override).fails(2, says)


def test_one_name_needs_no_brackets_and_only_layers_have_types() -> None:
    config = main.compose("benchmark", ["shapes=C1", "cells=lstm", "device=cpu"])
    found = settings.settings(config, "lstm", "")
    assert (list(found.shapes), found.cells) == (["C1"], ["lstm"])
    for suite, says in {"decode": "only suite=lstm", "model": "trainer.precision"}.items():
        with pytest.raises(ConfigError, match=says):
            settings.settings(config | {"dtype": "bfloat16"}, suite, "")
    rounded = main.compose("benchmark", ["trainer.precision=bf16", "device=cpu"])
    assert settings.settings(rounded, "recipe", "").dtype == torch.bfloat16


@pytest.mark.parametrize("terminal", [True, False])
def test_tables_leave_out_what_is_empty(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=120, highlight=False, soft_wrap=True)
    monkeypatch.setattr(progress, "console", console)
    table = [{"a": "x", "b": 2.0, "implementation": "one"}, {"implementation": "two", "refused": "[b]no[/b]"}]
    columns = [records.TableColumn(key, records.text(key)) for key in "ac"] + [
        records.TableColumn("b", records.number("b", 1, 10.0))
    ]
    records.show(records.Group("title", table), columns)
    shown = written.getvalue()
    assert "title" in shown and "20.0" in shown and "not measured: two ([b]no[/b])" in shown
    assert "c" not in [word.strip() for word in shown.split()]


def test_rows_that_are_none_are_named(tmp_path: Path) -> None:
    for text, says in (('{"suite": "lstm"}\n{', "line 2: not JSON"), ('{"a": 1}', "line 1: not a row")):
        (tmp_path / "x.jsonl").write_text(text)
        with pytest.raises(DataError, match=says):
            records.read(tmp_path / "x.jsonl")


def test_pages_are_made_from_files_beside_them(measured: list[records.Row], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        use_small(patch)
        records.write(tmp_path / "speed" / "a.jsonl", measured)
        (tmp_path / "speed.md").write_text(f"before\n{report.BEGIN}old\n{report.END}after\n")
        main.benchmark([f"page={tmp_path / 'speed.md'}"])
    page, tables = (tmp_path / "speed.md").read_text(), (tmp_path / "speed/lstm.md").read_text()
    assert page.startswith("before\n") and page.endswith("after\n") and "old" not in page
    unmeasured = page.count("| not measured |"), page.count("| not run on a GPU |")
    assert unmeasured == (len(targets.ON_CPU), len(targets.ON_CUDA))
    (first,) = [row for row in at(measured, "RAGGED") if row["implementation"] == "plain"]
    line = f"| plain | ln_global | {first['forward_ms']:,.1f} | {first['total_ms']:,.1f} |"
    for part in (measured[0]["command"], "### RAGGED: padded rows (H=4 I=3", line, "haste, flashrnn (not installed)"):
        assert part in tables
    assert 0.0 < first["peak_share"] < 1.0 and "| commit |" not in tables
    first |= {"shape": "C1"}
    several = report.pages([[first, first | {"commit": "abcdef012345"}]])["lstm"]
    assert "| abcdef0 |" in several, "rows that were not measured together say so"


def test_the_pages_in_docs_are_those_of_the_measurements() -> None:
    folder = REPOSITORY / "docs" / "performance"
    measurements = [records.read(file) for file in sorted(folder.glob("*.jsonl"))]
    pages = report.pages(measurements)
    assert {path.stem: path.read_text("utf-8") for path in folder.glob("*.md")} == pages
    page = folder.with_suffix(".md").read_text("utf-8")
    assert page == report.with_targets(page, measurements)
    assert (folder / report.PICTURE).exists() and all(f"(performance/{name}.md)" in page for name in pages)


@pytest.mark.parametrize(
    ("what", "values", "verdict", "cells"),
    [
        ("layer C1", [("peak_share", 0.91, "one"), ("peak_share", 0.95, "two")], "met", ["≥ 0.90", "0.910", "", "one"]),
        (
            "layer C1",
            [("peak_share", 0.89, "one"), ("peak_share", 0.95, "two")],
            "missed",
            ["≥ 0.90", "0.890", "", "one"],
        ),
        (
            "layer S9",
            [("ratio_to_packed", 0.6, "one"), ("ratio_to_packed", 0.7, "two")],
            "met",
            ["≤ 0.70", "0.700", "", "two"],
        ),
        ("layer S9", [("ratio_to_packed", 0.71, "one")], "missed", ["≤ 0.70", "0.710", "0.35", "one"]),
        ("layer S9", [("ratio_to_lstm", 0.1, "one")], "not run on a GPU", ["≤ 0.70", "", "", ""]),
    ],
)
def test_targets_are_met_by_the_worst_of_their_rows(
    what: str, values: list[tuple[str, float, str]], verdict: str, cells: list[str]
) -> None:
    asked = next(target for target in targets.ALL if target.what.startswith(what))
    measured = {"suite": "lstm", "commit": "0123456789ab"}
    rows = [asked.where | measured | {"machine": machine, key: value} for key, value, machine in values]
    if cells[2]:
        rows[0]["peak_share"] = 0.5
    other = {"suite": "lstm", "cell": "ln_joined", "machine": "three", asked.ratio: 0.5}
    reached = targets.verdicts([asked], [*rows, asked.where | other])
    assert reached[0].text == verdict
    row = dict(zip(["limit", "measured", "at_peak", "machine"], cells, strict=True))
    columns = {column.heading: column.text(targets.rows(reached)[0]) for column in targets.COLUMNS}
    assert {key: columns[key.replace("_", " ")] for key in row} == row
    assert columns["commit"] == ("0123456" if cells[1] else "")


def test_targets_in_bf16_are_for_processors_with_fast_products_of_it() -> None:
    target, *searches = (each for each in targets.ON_CPU if each.where.get("fast_products"))
    assert len(searches) == 5 and target.where["work"] == "update of 16"
    slow: records.Row = {**target.where, "suite": "peers", "ratio_to_peer": 1.2, "fast_products": False}
    slow |= {"machine": "one", "commit": "0123456789ab"}
    fast = {**slow, "ratio_to_peer": 0.3, "fast_products": True, "machine": "two"}
    (found,) = targets.verdicts([target], [slow, fast])
    assert (found.measured, found.machine) == (0.3, "two")
    assert targets.verdicts([target], [slow])[0].text == "not measured"


def test_every_target_is_one_of_a_suite_that_measures_it() -> None:
    for target in targets.ALL:
        if target.suite == "lstm":
            assert target.where["shape"] in shapes.SHAPES and target.ratio in (*lstm.RATIOS, "peak_share")
            assert target.where["implementation"] in choice.KERNELS
        elif target.where["device"] == "cuda":
            ratios = ("ratio_to_peer", *targets.OTHER_VALUES, "ratio_to_processes")
            assert target.suite in ("model", "decode", "train") and target.ratio in ratios
        else:
            assert target.suite == "peers" and target.ratio == "ratio_to_peer"
            search = str(target.where["work"]).rpartition(", ")[0]
            assert search in peers.SEARCHES or target.where["work"] == "update of 16"
