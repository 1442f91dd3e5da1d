"""Targets of speed, limits of values in measured rows, and the verdict on each.

Most are ratios of two times that were measured in one run, so that machines may differ. Times and rates are those of a
whole model on an H100 or an H200. A target is met by the worst value of its rows.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.records import Row, TableColumn, number, text
from las.runtime.precision import PRECISIONS
from las.training import plots

COLUMNS = (
    TableColumn("time of", text("what")),
    TableColumn("target", text("verdict")),
    TableColumn("limit", text("limit")),
    TableColumn("measured", number("measured", 3)),
    TableColumn("at peak", number("at_peak")),
    TableColumn("encoding", number("encoding")),
    TableColumn("machine", text("machine")),
    TableColumn("commit", text("commit")),
)


OTHER_VALUES = ("total_ms", "search_ms", "audio_s_per_s")


class Target(NamedTuple):
    """A limit of a value in the rows of a suite: an upper one, or a lower one of a share or a rate."""

    what: str
    limit: float
    suite: str
    where: dict[str, str | bool]
    """Values of the row that it concerns."""
    ratio: str
    """The key of the value, a ratio of two times unless it is one of `OTHER_VALUES`."""

    @property
    def is_lower(self) -> bool:
        """True if the value should be at least the limit."""
        return self.ratio in ("peak_share", "audio_s_per_s", "ratio_to_processes")


class Verdict(NamedTuple):
    """A target with the ratio that was measured, None if it was not, and the machine and the version measured."""

    target: Target
    measured: float | None
    at_peak: float | None
    """The ratio if products took as long as at the machine's peak, and all else no time; None where unknown."""
    encoding: float | None
    """The ratio of a search if all that follows the encoding took no time; None where unknown."""
    machine: str
    commit: str

    @property
    def text(self) -> str:
        """`met`, `missed`, `not measured`, or `not run on a GPU`."""
        if self.measured is None:
            return "not run on a GPU" if self.target.where["device"] == "cuda" else "not measured"
        above = self.measured > self.target.limit
        return "met" if above == self.target.is_lower or self.measured == self.target.limit else "missed"


def _layer(shape: str, limit: float, ratio: str, baseline: str, device: str) -> Target:
    kernel = "cpu" if device == "cpu" else "triton" if shape == "S6" else "persistent"  # S6 does not fit
    where: dict[str, str | bool] = {"implementation": kernel, "cell": "ln_global", "shape": shape, "device": device}
    if device == "cuda":
        where["dtype"] = "bfloat16"
    return Target(f"layer {shape}, `ln_global` / {baseline}", limit, "lstm", where, ratio)


def _model(what: str, limit: float, suite: str, value: str, **where: str) -> Target:
    return Target(what, limit, suite, {"device": "cuda", **where}, value)


def _peer(implementation: str, work: str, limit: float) -> Target:
    where: dict[str, str | bool] = {"implementation": implementation, "work": work, "device": "cpu"}
    name = f"{work}{', bf16' if implementation.endswith('bf16') else ''}, `las` / SpeechBrain"
    if implementation.endswith("bf16"):
        where["fast_products"] = True  # without, bf16 is offered for its results alone
    return Target(name, limit, "peers", where, "ratio_to_peer")


ON_CPU: Sequence[Target] = (
    *(_layer(shape, 0.90, "peak_share", "a large product", "cpu") for shape in ("C1", "C2", "C3", "C4")),
    _peer("las, fp32", "update of 16", 0.50),
    _peer("las, bf16", "update of 16", 0.35),
    _peer("las, fp32", "greedy, one at a time", 0.58),
    *(
        _peer(f"las, {precision}", f"{search}, {how}", limit)
        for how, limit, searches in (
            ("batches of 16", 0.50, ("greedy", "beam 8", "beam 8, CTC")),
            ("one at a time", 0.25, ("beam 8", "beam 8, CTC")),
        )
        for search in searches
        for precision in PRECISIONS
    ),
)

BEST = {"S1": 1.0, "S2": 0.6, "S3": 0.85, "S4": 0.8, "S5": 0.65, "S7": 1.1, "S8": 1.4}
"""Limits of layers next to cuDNN's best."""
PAPER = {"subject": "end to end", "cell": "ln_global", "dtype": "bfloat16"}
PAPER_BEAM = {**PAPER, "implementation": "beam12_batched"}

ON_CUDA: Sequence[Target] = (
    *(_layer(shape, 0.80, "ratio_to_lstm", "`nn.LSTM`", "cuda") for shape in ("S1", "S2", "S3", "S4")),
    _layer("S5", 0.95, "ratio_to_lstm", "`nn.LSTM`", "cuda"),
    _layer("S6", 0.85, "ratio_to_lstm", "`nn.LSTM`", "cuda"),
    *(_layer(shape, limit, "ratio_to_best", "cuDNN's best", "cuda") for shape, limit in BEST.items()),
    _layer("S9", 0.70, "ratio_to_packed", "packed", "cuda"),
    _model("update of the demo, ms", 15.0, "model", "total_ms", subject="demo", dtype="tf32"),
    _model("update at 157 M, bf16, ms", 90.0, "model", "total_ms", **PAPER),
    _model("update at 157 M, bf16, `las` / SpeechBrain", 0.4, "model", "ratio_to_peer", **PAPER),
    _model("beam 8, one utterance of the demo, ms", 5.0, "decode", "search_ms", implementation="beam8_single"),
    _model("16 seeds as one model / 8 processes or all cores, updates per s", 4.0, "train", "ratio_to_processes"),
    _model("beam 12 at 157 M, bf16, audio s per s", 6000.0, "decode", "audio_s_per_s", **PAPER_BEAM),
)
ALL = (*ON_CPU, *ON_CUDA)


def verdicts(targets: Iterable[Target], measured: Sequence[Row]) -> list[Verdict]:
    """The verdict on each target by the rows that it concerns."""
    return [_verdict(target, [row for row in measured if _concerns(target, row)]) for target in targets]


def rows(reached: Iterable[Verdict]) -> list[Row]:
    """Rows of a table of verdicts."""
    return [
        verdict._asdict()
        | {"what": verdict.target.what, "verdict": verdict.text}
        | {"limit": f"{'≥' if verdict.target.is_lower else '≤'} {verdict.target.limit:.2f}"}
        for verdict in reached
    ]


def draw(reached: Iterable[Verdict], path: Path) -> Path:
    """Draw the measured ratios as bars, each with a line at its limit, as PNG. Raises LasError without matplotlib."""
    measured = [
        (each, each.measured) for each in reached if each.measured is not None and each.target.ratio not in OTHER_VALUES
    ]
    figure = plots.blank_figure(8.0, 0.9 + 0.3 * len(measured))
    axes = figure.add_subplot()
    places = range(len(measured))
    colours = ["tab:green" if each.text == "met" else "tab:orange" for each, _ in measured]
    axes.barh(places, [ratio for _, ratio in measured], color=colours, height=0.6)
    axes.vlines(
        [each.target.limit for each, _ in measured], [y - 0.4 for y in places], [y + 0.4 for y in places], color="black"
    )
    axes.axvline(1.0, color="grey", linestyle=":")
    axes.set_yticks(places, [each.target.what.replace("`", "") for each, _ in measured], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("time / that of the other, or share of the peak (black: the target; dotted: 1)", fontsize=8)
    return plots.save(figure, path)


def _verdict(target: Target, rows: Sequence[Row]) -> Verdict:
    measured = [row for row in rows if row.get(target.ratio) is not None]
    if not measured:
        return Verdict(target, None, None, None, "", "")
    worst = min if target.is_lower else max
    row = worst(measured, key=lambda each: (each[target.ratio], each["machine"]))
    share = None if target.is_lower else row.get("peak_share")
    at_peak = None if share is None else row[target.ratio] * share
    return Verdict(target, row[target.ratio], at_peak, row.get("encoding_ratio"), row["machine"], row["commit"][:7])


def _concerns(target: Target, row: Row) -> bool:
    return row["suite"] == target.suite and all(row.get(key) == value for key, value in target.where.items())
