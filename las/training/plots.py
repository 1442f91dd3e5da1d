"""Pictures of a run: attention heat maps and learning curves. They need matplotlib: pip install 'las-asr[plots]'."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from las.data.manifest import Interval
from las.runtime.errors import LasError

MISSING = "pictures need matplotlib: pip install 'las-asr[plots]'"


def available() -> bool:
    """Return True if matplotlib is installed, so that pictures can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def blank_figure(width: float, height: float) -> Any:
    """Return a matplotlib figure, its sides in inches. Raises LasError without matplotlib."""
    if not available():
        raise LasError(MISSING)
    from matplotlib.figure import Figure  # no pyplot: no global state, no display

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: Path) -> Path:
    """Write a figure as PNG, its folder too if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def attention_picture(
    weights: Float[Tensor, "tokens states"],
    symbols: Sequence[str],
    state_ms: float,
    path: Path,
    title: str = "",
    alignment: Sequence[Interval] = (),
) -> Path:
    """Draw a heat map of attention weights as PNG: one row per token, time along x; true phone times if known.

    Args:
        weights: one row per symbol, [tokens, states].
        symbols: labels of the rows.
        state_ms: time per encoded state, in milliseconds.
        path: the file of the picture.
        title: the text above it.
        alignment: true phones with times, drawn as outlines in the rows' order if there are as many as rows.

    Returns `path`. Raises LasError without matplotlib.
    """
    tokens, states = weights.shape
    figure = blank_figure(max(6.0, min(16.0, states / 8)), max(3.0, min(14.0, tokens / 4.5)))
    axes = figure.add_subplot()
    times = [(interval.start_s, interval.end_s) for interval in alignment] if len(alignment) == tokens else []
    draw_attention(axes, weights.numpy(), symbols, states * state_ms / 1000, times)
    axes.tick_params("y", labelsize=8)
    axes.set_xlabel("time in seconds")
    axes.set_ylabel("tokens, first at the top")
    axes.set_title(title, fontsize=10)
    return save(figure, path)


def draw_attention(
    axes: Any, weights: Any, symbols: Sequence[str], seconds: float, intervals: Sequence[tuple[float, float]]
) -> None:
    """Draw weights [tokens, states] that last `seconds` on axes, and the true times of the first tokens as outlines."""
    extent = (0, seconds, len(symbols) - 0.5, -0.5)
    axes.imshow(weights, aspect="auto", origin="upper", cmap="magma", extent=extent, interpolation="none")
    axes.set_yticks(range(len(symbols)), [shown(symbol) for symbol in symbols])
    for row, (start, end) in enumerate(intervals):
        axes.hlines([row - 0.5, row + 0.5], start, end, colors="#4fd1c5", linewidth=0.8)
        axes.vlines([start, end], row - 0.5, row + 0.5, colors="#4fd1c5", linewidth=0.8)


def shown(symbol: str) -> str:
    """Return the label of a symbol: itself, or `(space)`."""
    return "(space)" if symbol.isspace() else symbol


def curves_picture(metrics: Sequence[dict[str, Any]], path: Path, error_name: str, title: str = "") -> Path:
    """Draw training loss, dev loss and the decoded dev error against the step, as PNG.

    `metrics` are the events of metrics.jsonl. Returns `path`. Raises LasError without matplotlib.
    """
    figure = blank_figure(9.0, 3.4)
    losses, errors = figure.subplots(1, 2)
    train = [(event["step"], event["loss"]) for event in metrics if event.get("event") == "train"]
    dev = [event for event in metrics if event.get("event") == "validation"]
    if train:
        losses.plot(*zip(*train, strict=True), label="training (smoothed targets)", linewidth=1)
    steps = [event["step"] for event in dev]
    losses.plot(steps, [event["dev_loss"] for event in dev], label="dev", marker="o", markersize=3)
    losses.set(xlabel="step", ylabel="cross-entropy per token")
    losses.legend()
    errors.plot(steps, [100 * event["dev_error"] for event in dev], marker="o", markersize=3, color="tab:red")
    errors.set(xlabel="step", ylabel=f"dev {error_name} in %", ylim=(0, None))
    figure.suptitle(title, fontsize=10)
    return save(figure, path)


def rates_picture(points: Sequence[tuple[float, float, float]], suggestion: float, path: Path, title: str = "") -> Path:
    """Draw loss and smoothed loss against the learning rate as PNG, with a line at the suggested rate.

    `points` are (rate, loss, smoothed loss) of each update. Returns `path`. Raises LasError without matplotlib.
    """
    figure = blank_figure(6.0, 3.4)
    axes = figure.add_subplot()
    rates, losses, smoothed = zip(*points, strict=True)
    axes.plot(rates, losses, linewidth=0.6, alpha=0.5, label="loss")
    axes.plot(rates, smoothed, label="smoothed")
    axes.axvline(suggestion, color="tab:green", linestyle="--", label=f"suggested: {suggestion:g}")
    axes.set(xscale="log", xlabel="learning rate", ylabel="loss per token", ylim=(0, 1.3 * max(smoothed)))
    axes.legend()
    axes.set_title(title, fontsize=10)
    return save(figure, path)


def pixels(path: Path) -> Any:
    """Return the pixels of a PNG, an array [height, width, colours] of floats for TensorBoard."""
    from matplotlib.image import imread

    return imread(path)
