"""The verb `analyze`: tables, numbers and pictures of a checkpoint, or of a training while it runs."""

import base64
from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from las.analysis import deep_linear, invariance, probe
from las.analysis.monitor import ANALYSES, AnalysisLog, MonitoredStep
from las.analysis.probe import DRAWS, Probe
from las.analysis.smoothness import Grid
from las.config.build import Config, check_values, checked, compose, require
from las.data.loader import Batch
from las.nn.kernels import choice
from las.runtime import distributed, progress, templates
from las.runtime.errors import ConfigError, suggest
from las.storage import atomic
from las.training import plots
from las.training.step import TrainingStep
from las.training.training import Training

WITHOUT_MODEL = ("invariance", "deep_linear")
OWN_KEYS = {
    "what": Sequence[str] | str,
    "checkpoint": str | None,
    "every": int | None,
    "output": str | None,
    "num_utterances": int,
    "draws": str,
    "seeds": int,
    "device": str,
    "strict": bool,
    "grid": dict,
}


def analyze(overrides: list[str]) -> None:
    """Run the analyses that `what` names and print them; those of a model, and all with `output`, get a page as well.

    Raises ConfigError for a name that does not exist.
    """
    config = compose("analyze", overrides)
    names = _checked(config)
    tables: list[Table] = []
    if "invariance" in names:
        tables.append(invariance.table(invariance.of_norms(), "Ba et al. 2016, table 1"))
        tables.append(invariance.table(invariance.of_cells(), "the same for cells over time"))
    if "deep_linear" in names:
        tables.append(deep_linear.table(deep_linear.measure(config["seeds"])))
    for table in tables:
        progress.console.print(table)
    if any(name in ANALYSES for name in names):
        with choice.use_kernel(str(config["kernel"])):
            _of_model(config, [name for name in names if name in ANALYSES], tables)
    elif config["output"] is not None:
        _say_page(write_page("las analyze", tables, [], Path(config["output"])))


def _checked(config: Config) -> list[str]:
    """Return the names in `what`, after a check of every key of this verb."""
    check_values(config, OWN_KEYS)
    names = [config["what"]] if isinstance(config["what"], str) else list(config["what"])
    analyses = (*ANALYSES, *WITHOUT_MODEL)
    for name in names:
        if name not in analyses:
            raise ConfigError(f"what={name}: there is no such analysis.{suggest(name, analyses)}")
    if config["draws"] not in DRAWS:
        raise ConfigError(f"draws={config['draws']} does not exist.{suggest(config['draws'], DRAWS)}")
    for key in ("num_utterances", "seeds", "every"):
        require(key, config[key], 1)
    if config["output"] is not None:
        atomic.require_folder(Path(config["output"]))
    checked(Grid, config["grid"], "grid")()
    if any(name in ANALYSES for name in names) and (config["checkpoint"] is None) == (config["every"] is None):
        raise ConfigError(
            "give checkpoint=runs/..., or every=100 to train and measure every 100 steps, not both "
            f"({' and '.join(WITHOUT_MODEL)} need neither)"
        )
    return names


def _say_page(path: Path) -> None:
    progress.say(f"page        {path}")


def _of_model(config: Config, names: Sequence[str], tables: Sequence[Table]) -> None:
    """Print the analyses of a model, and write the page with them and those of no model before them."""
    grid: Grid = checked(Grid, config["grid"], "grid")()
    if config["checkpoint"] is None:
        log, title = _training(config, names, grid)
    else:
        log, title = _checkpoint(config, names, grid)
    own = log.tables()
    for table in own:
        progress.console.print(table)
    pictures = log.pictures(title)
    for path in pictures:
        progress.say(f"picture     {path}")
    _say_page(write_page(title, [*tables, *own], pictures, log.folder))
    progress.say(f"numbers     {log.folder}/*.jsonl")
    if not plots.available():
        progress.say("pictures    none, they need matplotlib: pip install 'las-asr[plots]', then the same command")


def _checkpoint(config: Config, names: Sequence[str], grid: Grid) -> tuple[AnalysisLog, str]:
    """Measure once, at the state of training that a checkpoint holds."""
    subject, folder = probe.subject(config)
    log = AnalysisLog(Path(config["output"] or folder), names, grid)
    atomic.require_folder(log.folder)
    log.record(subject)
    return log, f"{config['checkpoint']}, step {subject.step - 1}"


def _training(config: Config, names: Sequence[str], grid: Grid) -> tuple[AnalysisLog, str]:
    """Train as `las train` would in the same run directory, and measure on the way. The same command again resumes."""
    training_config = {key: value for key, value in config.items() if key not in OWN_KEYS}
    with Training.open(training_config) as training:
        if distributed.world_size() > 1:
            raise ConfigError("analyses during a training run in one process: start it without torchrun")
        corpus, directory = training.corpus, training.folder.directory
        log = AnalysisLog(Path(config["output"] or directory / "analysis"), names, grid)
        examples = probe.examples(corpus, training.data.splits, config["num_utterances"]).to(training.device)
        for trainer in training.trainers():
            trainer.training_step = _monitored(trainer.training_step, log, examples, corpus.tokens.symbols, config)
            trainer.fit()
    progress.say(f"{directory}: trained to step {trainer.state.step}; `las train` with the same keys decodes it")
    return log, str(directory)


def _monitored(
    updates: TrainingStep, log: AnalysisLog, examples: Batch, symbols: Sequence[str], config: Config
) -> MonitoredStep:
    """Return the training step of a trainer, with the analyses recorded every `every` updates."""

    def record(batches: Sequence[Batch], step: int) -> None:
        log.record(Probe(updates, step, batches, examples, symbols, config["draws"]))

    return MonitoredStep(updates, record, config["every"])


def write_page(title: str, tables: Sequence[Table], pictures: Sequence[Path], folder: Path) -> Path:
    """Write `analysis.html` into a folder; pictures, named by their paths, are part of it, and it loads nothing."""
    inside = [(str(path.relative_to(folder).with_suffix("")), _data_uri(path)) for path in pictures]
    shown = [(_plain(table.title or ""), *_cells(table), _plain(table.caption or "")) for table in tables]
    page = templates.render("analysis.html", title=title, tables=shown, pictures=inside)
    path = folder / "analysis.html"
    atomic.write(path, page)
    return path


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the rows of a table of the screen."""
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    return [_plain(column.header) for column in table.columns], [list(row) for row in zip(*columns, strict=True)]


def _plain(cell: RenderableType) -> str:
    """Return the text of a cell without the screen's markup."""
    return Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)


def _data_uri(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
