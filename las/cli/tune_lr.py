"""The verb `tune_lr`: a learning rate for a model and a corpus, from a few hundred updates. No run folder is made."""

import shlex
from pathlib import Path
from typing import Any

from rich.table import Table

from las.config import overrides as config_overrides
from las.config.build import build, checked, compose
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.nn.kernels import choice
from las.runtime import progress
from las.runtime.errors import ConfigError
from las.storage import atomic
from las.training import data_preparation, plots, range_test, setup
from las.training.data_preparation import PreparedCorpus
from las.training.range_test import RangeTest, Sweep
from las.training.setup import TrainingParts

OWN = ("low", "high", "updates", "smoothing", "output")
"""Keys of configs/tune_lr.yaml that a training does not have."""
NUM_ROWS = 16


def tune_lr(overrides: list[str]) -> RangeTest:
    """Print loss against rate and the rate to train with; write both as JSON and, with matplotlib, as a picture."""
    config = compose("tune_lr", overrides)
    sweep: Sweep = checked(Sweep, {key: config[key] for key in OWN if key != "output"}, "tune_lr")()
    output = Path(config["output"])
    if output.suffix != ".json":
        raise ConfigError(f"output={output}: a .json file is written: output={output.with_suffix('.json')}")
    if config["optim"].get("lr") is None:
        raise ConfigError("optim: this optimiser has no learning rate lr, so there is none to find")
    atomic.require_place(output)
    corpus: Corpus = build(config["corpus"], where="corpus")
    parts = setup.build_parts(config, corpus)
    parts.warm_start.check(parts.model, config["model"])
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), parts.limits)
    complete = parts.task.completed(corpus, data.splits, config)
    if complete != config:
        parts = parts._replace(model=setup.draw_model(complete, corpus))
    targets = parts.task.targets(corpus, parts.model, data.splits, config)
    train = [each for each in usable(parts, data) if each.id not in targets.missing]
    with choice.use_kernel(str(config["kernel"])):
        parts.task.bind_loss(parts.loss, train, targets.source)
        result = range_test.run(parts, corpus, train, targets, sweep)
    title = f"{config['name']} on {corpus.name}, {setup.num_parameters(parts.model):,} parameters"
    print_table(result, title)
    atomic.write_json(output, as_dict(result, title))
    written = str(output)
    if plots.available():
        written += f" and {plots.rates_picture(result.points, result.suggestion, output.with_suffix('.png'), title)}"
    progress.say(f"written to {written}")
    progress.say(f"next:  {next_command(overrides, result.suggestion)}")
    return result


def usable(parts: TrainingParts, data: PreparedCorpus) -> list[Utterance]:
    """Return the training utterances of a corpus that can be trained on; the number of others is printed."""
    problems = data.problems(data.corpus.splits[0], parts.speech_model)
    if problems:
        progress.say(f"left out: {len(problems)} of {len(data.train)} utterances have problems, las check names them")
    return data_preparation.usable_utterances(data, problems)


def print_table(result: RangeTest, title: str) -> None:
    """Return a few of the updates, evenly spaced, with the one of the lowest smoothed loss."""
    last, lowest = len(result.points) - 1, result.points.index(result.lowest)
    rows = {round(index * last / (NUM_ROWS - 1)) for index in range(NUM_ROWS)} | {lowest}
    table = Table(title=title)
    for heading in ("update", "learning rate", "loss", "smoothed", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for index in sorted(rows):
        point = result.points[index]
        notes = ["lowest"] * (index == lowest) + ["diverged"] * (index == last and result.diverged)
        numbers = (f"{point.rate:.2g}", f"{point.loss:.3f}", f"{point.smoothed:.3f}")
        table.add_row(str(index + 1), *numbers, ", ".join(notes))
    progress.console.print(table)
    progress.say(f"a tenth of the rate with the lowest smoothed loss, rounded down: {result.suggestion:g}")


def as_dict(result: RangeTest, title: str) -> dict[str, Any]:
    """Return the content of the file."""
    return {
        "title": title,
        "suggestion": result.suggestion,
        "lowest": result.lowest._asdict(),
        "diverged": result.diverged,
        "updates": [point._asdict() for point in result.points],
    }


def next_command(overrides: list[str], rate: float) -> str:
    """Return the command that trains with a rate, with the overrides that a training has."""
    kept = [
        config_overrides.typed(each)
        for each in overrides
        if each.lstrip("+").partition("=")[0] not in (*OWN, "optim.lr")
    ]
    return shlex.join(["las", "train", *kept, f"optim.lr={rate:g}"])
