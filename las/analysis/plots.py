"""Pictures of the results of analyses, drawn by matplotlib."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from las.training import plots


class Panel(NamedTuple):
    """Curves on one pair of axes, by name."""

    label: str
    scale: str
    """The scale of the y axis, `linear` or `log`."""
    curves: Mapping[str, Sequence[float]]


class Band(NamedTuple):
    """The range of a quantity at each step."""

    label: str
    scale: str
    lowest: Sequence[float]
    highest: Sequence[float]


def curves(
    history: Sequence[dict[str, Any]], rows: str, name: str, value: Callable[[dict[str, Any]], float]
) -> dict[str, list[float]]:
    """Return a value of each row of a measurement (`layers`, `groups`) over all points of a training, by row."""
    return {
        row[name]: [value(point[rows][index]) for point in history]
        for index, row in enumerate(history[0][rows])
        if "refused" not in row
    }


class PictureFolder:
    """A folder of pictures.

    Args:
        folder: the directory, created when the first picture is written.
        title: the title of every picture.
    """

    def __init__(self, folder: Path, title: str = "") -> None:
        self.folder, self.title = folder, title
        self.written: list[Path] = []

    def lines(
        self, name: str, along: Sequence[int] | Sequence[float], panels: Sequence[Panel], axis: str = "step"
    ) -> None:
        """Draw curves, panels side by side."""
        figure, axes = self._panels(len(panels), axis)
        for panel, ax in zip(panels, axes, strict=True):
            for label, values in panel.curves.items():
                ax.plot(along, values, label=label, marker="o", markersize=2.5, linewidth=1)
            ax.set_ylabel(panel.label)
            self._scale(ax, panel.scale, [value for values in panel.curves.values() for value in values])
            ax.legend(fontsize=7)
        self._save(figure, name)

    def bands(
        self, name: str, along: Sequence[int] | Sequence[float], bands: Sequence[Band], axis: str = "step"
    ) -> None:
        """Draw ranges, panels side by side."""
        figure, axes = self._panels(len(bands), axis)
        for band, ax in zip(bands, axes, strict=True):
            ax.fill_between(along, band.lowest, band.highest, alpha=0.5)
            ax.set_ylabel(band.label)
            self._scale(ax, band.scale, [*band.lowest, *band.highest])
        self._save(figure, name)

    def histograms(self, name: str, rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """Draw a panel for each row, an outline for each of its histograms (`edges` and `density`)."""
        figure, axes = self._rows(rows, 1.4)
        for histograms, ax in zip(rows.values(), axes, strict=True):
            for kind, values in histograms.items():
                ax.stairs(values["density"], values["edges"], label=kind, fill=True, alpha=0.4)
            ax.set_yticks([])
            if len(histograms) > 1:
                ax.legend(fontsize=7)
        self._save(figure, name)

    def ridges(
        self, name: str, along: Sequence[int] | Sequence[float], rows: Mapping[str, Sequence[Sequence[float]]]
    ) -> None:
        """Draw a panel for each row: quantiles against the step, in pairs around the median."""
        figure, axes = self._rows(rows, 1.6)
        for quantiles, ax in zip(rows.values(), axes, strict=True):
            curves = [list(curve) for curve in zip(*quantiles, strict=True)]
            middle = len(curves) // 2
            for low, high in zip(curves[:middle], reversed(curves[middle + 1 :]), strict=True):
                ax.fill_between(along, low, high, alpha=0.18, color="tab:blue", linewidth=0)
            ax.plot(along, curves[middle], color="tab:blue", linewidth=1)
        axes[-1].set_xlabel("step")
        self._save(figure, name)

    def _panels(self, count: int, axis: str) -> tuple[Any, Sequence[Any]]:
        figure = plots.blank_figure(4.6 * count, 3.4)
        axes = figure.subplots(1, count, squeeze=False)[0].tolist()
        for ax in axes:
            ax.set_xlabel(axis)
        return figure, axes

    def _rows(self, labels: Collection[str], height: float) -> tuple[Any, Sequence[Any]]:
        figure = plots.blank_figure(7.0, 1.2 + height * len(labels))
        axes = figure.subplots(len(labels), 1, squeeze=False)[:, 0].tolist()
        for label, ax in zip(labels, axes, strict=True):
            ax.set_title(label, fontsize=8, loc="left")
        return figure, axes

    def _scale(self, axes: Any, scale: str, values: Sequence[float]) -> None:
        """Set the scale of an axis; a logarithmic one is linear below the least positive value, to show zeros."""
        positive = [value for value in values if value > 0]
        if scale == "log" and positive:
            axes.set_yscale("symlog", linthresh=min(positive))

    def _save(self, figure: Any, name: str) -> None:
        figure.suptitle(self.title, fontsize=10)
        self.written.append(plots.save(figure, self.folder / f"{name}.png"))
