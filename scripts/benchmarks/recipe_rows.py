"""suite=recipe: an update of each row of a recipe, by turns, so that widths of equal time can be chosen."""

from collections.abc import Iterator
from functools import partial

from benchmarks import inputs, timing
from benchmarks.records import SPREAD_MS, Group, TableColumn, number, text
from benchmarks.settings import Settings
from las.config.build import compose
from las.reproduction import recipe
from las.reproduction.jobs import overrides_of

COLUMNS = (
    TableColumn("row", text("implementation")),
    TableColumn("listener's cell", text("cell")),
    TableColumn("units", number("hidden_size", 0)),
    TableColumn("update ms", number("total_ms", 1)),
    SPREAD_MS,
    TableColumn("/ first", number("ratio_to_first")),
    TableColumn("million parameters", number("parameters", 2, 1e-6)),
)


def measure(settings: Settings) -> Iterator[Group]:
    """Measure an update of each row on one batch of noise, in one group."""
    asked, tier = recipe.read(settings.config["recipe"]), settings.config["tier"]
    configs = {row.name: compose("train", [*overrides_of(asked, row, tier)]) for row in asked.rows}
    subjects = {name: inputs.subject(config) for name, config in configs.items()}
    size = next(iter(configs.values()))["trainer"]["batch_size"]
    seconds, precision = settings.config["seconds"], settings.config["trainer"]["precision"]
    batch = inputs.batch(size, seconds, next(iter(subjects.values())).corpus).to(settings.device)
    shape = f"{asked.name}, tier {tier}, {size} utterances of {seconds[0]:g} to {seconds[1]:g} s"
    works = {}
    for name, subject in subjects.items():
        subject.model.to(settings.device).train()
        works[name] = timing.Work(partial(subject.updates(precision, "auto"), batch))
    times = timing.alternate(works, settings.repeats, settings.budget_s, settings.device, "updates")
    spreads = {name: timing.spread(each) for name, each in times.items()}
    first, rows = next(iter(spreads.values())).median, []
    for name, subject in subjects.items():
        row = settings.row(name, inputs.card(subject.model), shape) | spreads[name].in_ms()
        row["hidden_size"] = configs[name]["model"]["listener"]["hidden_size"]
        row["ratio_to_first"] = spreads[name].median / first
        row["parameters"] = sum(parameter.numel() for parameter in subject.model.parameters())
        rows.append(row)
    yield Group(title(shape), rows)


def title(shape: str) -> str:
    """The title over the rows of a recipe."""
    return f"one update: {shape}"
