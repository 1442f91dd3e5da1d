"""A paper's table from its recipe: plan, train the rows that are not finished, and report.

A training that diverges is recorded as a result. The same command again goes on where the last one stopped.
"""

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.measure import Measurement
from rich.table import Table as Printed

from las.analysis import invariance
from las.cli import train_jobs
from las.config import build
from las.data.corpora.base import Corpus
from las.decoding.base import WordSearch
from las.nn.model import Trainable
from las.reproduction import excerpts, html_report, hypotheses, judging, markdown, result_folders
from las.reproduction import jobs as reproduction_jobs
from las.reproduction import recipe as reproduction_recipe
from las.reproduction import results as reproduction_results
from las.reproduction.jobs import Job
from las.reproduction.recipe import SMOKE, Recipe
from las.reproduction.results import Table
from las.reproduction.sequential import LOOKS
from las.reproduction.verdicts import NOT_SUPPORTED, SUPPORTED, Verdict
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, LasError, StorageError, suggest
from las.storage import atomic, run_directory
from las.storage.checkpoint import Checkpoint
from las.training import setup, warm_start

KINDS: dict[str, Any] = {
    "recipe": str,
    "tier": str,
    "seeds": int | None,
    "until": str | None,
    "hours": float | None,
    "rows": str | Sequence[str] | None,
    "dry_run": bool,
    "report": bool,
    "look_every": int | None,
    "jobs": int,
    "runs_dir": str,
    "results_dir": str,
}
"""The keys of configs/reproduce.yaml; all others are overrides of every row."""
DECIDED = "decided"
"""The value of `until`."""
OMITTED_KEYS = ("runs_dir", "results_dir", "data_dir", "jobs", "report", "hours")
"""Keys without effect on the numbers of a report; its command leaves them out."""


class Request(NamedTuple):
    """The checked request; `overrides` go to every row."""

    recipe: Recipe
    tier: str
    seeds: int | None
    until: str | None
    hours: float | None
    rows: tuple[str, ...]
    dry_run: bool
    report: bool
    look_every: int | None
    jobs: int
    runs: Path
    results: Path
    overrides: tuple[str, ...]


class Plan(NamedTuple):
    """Jobs of a request.

    jobs: all whose results the report has. chosen: those of the rows and seeds that are asked for, with those that they
    begin with. waiting: those of them that are not finished. faults: sentences on run folders whose files are damaged.
    """

    jobs: list[Job]
    chosen: list[Job]
    waiting: list[Job]
    faults: Mapping[Path, str]


def reproduce(overrides: list[str]) -> None:
    """Reproduce a paper's table: `recipe=<name> tier=<name>` and any override of the training config.

    Prints the plan, trains what is missing, and writes the table (.md, .json, .html) and the claims that can be judged
    by all tables there are. `dry_run=true` ends before the first training, `report=true` trains nothing.

    Raises ConfigError for mistakes in a row's overrides, StorageError for damaged runs after all are listed, DataError
    for a report without any results.
    """
    requested = request(overrides)
    if not requested.dry_run:
        atomic.require_folder(requested.results)
    plan = checked_plan(requested if requested.until is None else requested._replace(seeds=LOOKS[0]))
    looks = list[int]()
    if requested.dry_run:
        return
    if not requested.report and requested.until is None:
        keep = functools.partial(store, requested, plan.jobs, command(overrides), looks)
        train_jobs.train(plan.waiting, requested.jobs, requested.look_every, keep)
    elif not requested.report:
        plan = train_until_decided(requested, plan, looks, command(overrides))
    report(requested, plan.jobs, command(overrides), looks)


def checked_plan(requested: Request) -> Plan:
    """Print the plan of a request. Raises StorageError where runs are damaged, and errors of the rows' parts."""
    plan = plan_of(requested)
    show(requested, plan)
    if plan.faults:
        raise StorageError(
            f"the files of {len(plan.faults)} trainings are damaged, as is said above: restore them, or move these "
            "folders away, and type the same command again"
        )
    if not requested.report:
        require_built(requested.recipe, plan.waiting)
    return plan


def train_until_decided(requested: Request, plan: Plan, looks: list[int], command: str) -> Plan:
    """Train the rows of undecided claims with more and more seeds (`LOOKS`), which are added to `looks`.

    Returns the last plan. `hours` is looked at before each seed.
    """
    started = time.monotonic()
    for seeds in LOOKS:
        for seed in sorted({job.seed for job in plan.waiting}):
            if requested.hours is not None and time.monotonic() - started > 3600 * requested.hours:
                progress.say(f"{requested.hours:g} hours are over: the same command goes on from here")
                return plan
            keep = functools.partial(store, requested, plan.jobs, command, looks)
            train_jobs.train(
                [job for job in plan.waiting if job.seed == seed], requested.jobs, requested.look_every, keep
            )
        looks.append(seeds)
        verdicts = of_table(requested, gathered(requested, plan.jobs, command, looks))
        left = judging.undecided(verdicts, requested.recipe.name)
        rows = [row for row in requested.rows if any(row in compared for compared in left.values())]
        if not rows or seeds == LOOKS[-1]:
            break
        progress.say(f"after {seeds} seeds undecided: {', '.join(left)}; seeds are added to {', '.join(rows)}")
        more = LOOKS[LOOKS.index(seeds) + 1]
        plan = checked_plan(requested._replace(seeds=more, rows=tuple(rows)))
    return plan


def gathered(requested: Request, jobs: Sequence[Job], command: str, looks: Sequence[int] = ()) -> Table:
    """Return the table of the finished trainings, and of stored results where they are gone."""
    known = result_folders.stored_tables(requested.results, requested.recipe, requested.tier, jobs)
    return reproduction_results.collect(requested.recipe, requested.tier, jobs, command, known, looks)


def of_table(requested: Request, table: Table) -> dict[str, Verdict]:
    """Return the verdicts on all claims by a table and the stored ones of other recipes on its corpus."""
    paths = result_folders.newest(requested.results, f"*-{table.tier}-{table.corpus}.json")
    others = [reproduction_results.read(path) for path in paths if path.name != f"{table.stem}.json"]
    return judging.judge([*others, table])


def plan_of(requested: Request) -> Plan:
    """Return the jobs of a request, and which of them are to be trained.

    Further seeds that the stored table has of these rows are among the jobs, so that no report loses them.
    """
    recipe, tier = requested.recipe, requested.tier
    wanted = recipe.tier(tier).seeds if requested.seeds is None else requested.seeds

    def made(seeds: int) -> list[Job]:
        return reproduction_jobs.jobs(recipe, tier, seeds, requested.runs, requested.overrides)

    jobs = made(wanted)
    known = result_folders.stored_tables(requested.results, recipe, tier, jobs)
    if (seeds := max([wanted, *_stored_seeds(recipe, known)])) > wanted:  # composing them takes a while
        jobs = made(seeds)
    faults = {job.directory: fault for job in jobs if (fault := reproduction_results.fault(job))}
    former = reproduction_results.stored(known, jobs)
    chosen = [job for job in jobs if job.row.name in requested.rows and max(job.seed, job.copy) <= wanted]
    unfinished = {job.directory for job in jobs if job.directory not in faults and job.result is None}
    waiting = {job.directory for job in chosen} & unfinished - former.keys()
    for job in reversed(jobs):  # with the training that one begins with, which a stored result does not replace
        if job.source is not None and job.directory in waiting:
            waiting |= {job.source.directory} & unfinished
    chosen = [job for job in jobs if job in chosen or job.directory in waiting]
    return Plan(jobs, chosen, [job for job in chosen if job.directory in waiting], faults)


def _stored_seeds(recipe: Recipe, known: Sequence[Table]) -> list[int]:
    """Seeds of the trainings of a recipe's own table that can be told apart from others by their digests."""
    lines = [line for table in known if table.recipe == recipe.name for line in table.lines]
    return [each.seed for line in lines for each in line.outcomes if each.digest]


def store(requested: Request, jobs: Sequence[Job], command: str, looks: Sequence[int]) -> None:
    """Write the numbers and hypotheses of all trainings so far, so that none is trained again on another machine."""
    table = gathered(requested, jobs, command, looks)
    reproduction_results.write(table, requested.results / f"{table.stem}.json")
    hypotheses.update(requested.results, table.stem, jobs)


def request(overrides: Sequence[str]) -> Request:
    """Return the command's own keys, checked, and the overrides of every row. Raises ConfigError for wrong ones."""
    own_overrides, row_overrides = split(overrides)
    values = build.compose("reproduce", own_overrides)
    build.check_values(values, KINDS)
    for key in ("jobs", "seeds", "look_every"):
        build.require(key, values[key], 1)
    recipe = reproduction_recipe.read(values["recipe"])
    recipe.tier(values["tier"])
    if values["until"] not in (None, DECIDED):
        raise ConfigError(f"until={values['until']}: {DECIDED}, or leave it out")
    if values["until"] and (values["seeds"] or values["tier"] == SMOKE):
        looks = ", ".join(map(str, LOOKS))
        raise ConfigError(f"until={DECIDED} trains {looks} seeds of a row: leave out seeds=... and tier=smoke")
    if values["hours"] is not None and not values["until"]:
        raise ConfigError(f"hours=... ends the seeds of until={DECIDED}: add it")
    values |= {"recipe": recipe, "rows": rows_of(recipe, values["rows"]), "overrides": tuple(row_overrides)}
    values |= {"runs": Path(values.pop("runs_dir")), "results": result_folders.writable(values.pop("results_dir"))}
    if values["look_every"] is None:
        values["look_every"] = recipe.look_every
    return Request(**values)


def rows_of(recipe: Recipe, names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the rows to train: those named, or all. Raises ConfigError for a name that no row has."""
    all_names = tuple(row.name for row in recipe.rows)
    names = [names] if isinstance(names, str) else names
    for name in names or ():
        if name not in all_names:
            raise ConfigError(f"rows: {recipe.name} has no row {name}.{suggest(name, all_names)}")
    return all_names if names is None else tuple(names)


def as_composed(overrides: Sequence[str]) -> list[str]:
    """Return the overrides of the recipe itself; the others go to its rows."""
    return split(overrides)[0]


def split(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return overrides of configs/reproduce.yaml, and those that go to every row."""
    own_overrides = [override for override in overrides if override.partition("=")[0] in KINDS]
    return own_overrides, [override for override in overrides if override not in own_overrides]


def command(overrides: Sequence[str]) -> str:
    """Return the command as a report prints it: without the paths of this machine."""
    split = [override.partition("=") for override in overrides]
    kept = [f"{key}{sign}{'...' if '/' in value else value}" for key, sign, value in split if key not in OMITTED_KEYS]
    return " ".join(["las reproduce", *kept])


def show(requested: Request, plan: Plan) -> None:
    """Print the plan: each job, its state, and the time it still needs."""
    finished = [job for job in plan.chosen if job.directory not in plan.faults and job.result is not None]
    needs = reproduction_jobs.expected(plan.waiting, finished)
    progress.console.print(_table(requested, plan, needs))
    for fault in plan.faults.values():
        progress.say(fault)
    progress.say(f"folders are below {requested.runs}")
    waiting = list(needs.values())
    if not waiting:
        progress.say("nothing is left to train")
    elif None in waiting:
        progress.say(f"{len(waiting)} to train; how long is unknown until one of them is finished")
    else:
        total = sum(seconds for seconds in waiting if seconds is not None) / requested.jobs
        progress.say(f"{len(waiting)} to train, {progress.duration(total)} at most by the speed of finished ones")


def _table(requested: Request, plan: Plan, needs: Mapping[Path, float | None]) -> Printed:
    """Return the table of jobs, wide enough that paths can be copied.

    `needs` are the seconds that each unfinished job still needs, None where unknown; without any there is no column.
    """
    jobs = plan.chosen
    finished = sum(job.directory not in needs and job.directory not in plan.faults for job in jobs)
    title = f"{requested.recipe.name}, tier {requested.tier}: {len(jobs)} trainings, {finished} finished"
    table = Printed(title=title)
    is_known = any(seconds is not None for seconds in needs.values())
    for heading in ("row", "seed", "state", *(["at most"] if is_known else []), "folder"):
        table.add_column(heading, no_wrap=True)
    for job in jobs:
        seed = str(job.seed) + (f", run {job.copy}" if job.row.repeat == "runs" else "")
        seed += "" if job.rate is None else f", rate {job.rate:g}"
        if job.directory in plan.faults:
            where = "damaged"
        else:
            where = state(job) if job.result is not None or job in plan.waiting else "finished elsewhere"
        seconds = needs.get(job.directory)
        time = ["" if seconds is None else progress.duration(seconds)] if is_known else []
        table.add_row(job.row.name, seed, where, *time, str(job.directory.relative_to(requested.runs)))
    table.width = Measurement.get(progress.console, progress.console.options.update(width=10_000), table).maximum
    return table


def require_built(recipe: Recipe, jobs: Sequence[Job]) -> None:
    """Build corpus, models and searches of each row, so that a mistake in the last one costs no training of the first.

    Errors of the parts are raised again with the names of recipe and row.
    """
    first_jobs: dict[str, Job] = {}
    for job in jobs:
        first_jobs.setdefault(job.row.name, job)
    models: dict[str, Trainable] = {}
    for job in first_jobs.values():
        try:
            corpus: Corpus = build.build(job.config["corpus"], where="corpus")
            untrained = job.source if job.source is not None and job.source.result is None else None
            start = {} if untrained is None else {"warm_start": run_directory.LATER["warm_start"]}
            _, parts = setup.build_all(job.config | start, corpus)
            models[job.row.name] = parts.model
            if untrained is not None:
                source = models[untrained.row.name].state_dict()
                saved = Checkpoint(untrained.directory, source, {}, {}, untrained.config)
                warm_start.from_config(job.config).check(parts.model, job.config["model"], saved)
            # Other tokens are learned, and the dictionary of words is read, when the corpus is prepared.
            is_known = len(corpus.tokens.symbols) == corpus.tokens.size
            if is_known and not isinstance(parts.search, WordSearch):
                parts.bind_searches(corpus.tokens)
        except LasError as error:
            raise type(error)(f"recipe {recipe.name}, row {job.row.name}: {error}") from error


def state(job: Job) -> str:
    """Return the state of a job: `finished`, `broken`, `at step 250 of 500` or `to do`."""
    if (result := job.result) is not None:
        return "broken" if "broken" in result else "finished"
    return f"at step {step} of {job.max_steps}" if (step := job.step) else "to do"


def report(requested: Request, jobs: Sequence[Job], command: str, looks: Sequence[int] = ()) -> None:
    """Write table, page and claims from the finished trainings, or from their stored results where they are gone."""
    table = gathered(requested, jobs, command, looks)
    results, order = requested.results, [row.name for row in requested.recipe.rows]
    stored = result_folders.newest(results, f"{table.stem}.json")
    jobs = sorted(jobs, key=lambda job: order.index(job.row.name))
    if any(line.outcomes or line.tried for line in table.lines):
        table = dataclasses.replace(table, excerpt=excerpts.excerpt(jobs, table.excerpt))
        reproduction_results.write(table, results / f"{table.stem}.json")
    elif stored:
        table = reproduction_results.read(stored[0])
        progress.say(f"no training is finished below {requested.runs}: reported is what {stored[0]} holds")
    else:
        raise DataError(
            f"recipe={requested.recipe.name} has no results at the tier {requested.tier} on {table.corpus}: "
            f"no training is finished below {requested.runs}, and {results / f'{table.stem}.json'} does not exist. "
            f"Train first: {command}"
        )
    hypotheses.update(results, table.stem, jobs)
    path = judging.write_records(results, {"C26": of_invariances()})
    is_smoke = table.tier == SMOKE
    of_corpus = of_table(requested, table) if is_smoke else judging.recorded(path, table.tier, table.corpus)
    written = write_pages(results, table, of_corpus)
    verdicts = judging.of_recipe(of_corpus, requested.recipe.name)
    audio = "" if table.tier == "paper" else excerpts.sound(jobs)  # the paper's corpus may be licensed
    atomic.write(results / f"{table.stem}.html", html_report.page(requested.recipe, table, verdicts, audio))
    for claim, verdict in verdicts.items():
        progress.say(f"{claim}: {verdict.answer}. {verdict.text}")
    if (results / f"{table.stem}.json").exists():
        written.append(f"{table.stem}.json")
    written += [f"{table.stem}.html", path.name]
    progress.say(f"written to {results}: {', '.join(written)}")


def of_invariances() -> Verdict:
    """Return the verdict on Ba et al.'s table of invariances, properties of the norms that need no training."""
    departures, entries = invariance.departures(), sum(map(len, invariance.TABLE_1.values()))
    text = f"{entries - len(departures)} of {entries} entries measured as in the paper: las analyze what=[invariance]"
    return Verdict(NOT_SUPPORTED if departures else SUPPORTED, "; ".join([text, *departures]))


def write_pages(results: Path, table: Table, verdicts: Mapping[str, Verdict]) -> list[str]:
    """Write the page of a table, of all claims on its corpus, and of other tables there, whose verdicts change with it.

    Returns the names of the files.
    """
    of_corpus = f"{table.tier}-{table.corpus}"
    pages = {f"claims-{of_corpus}.md": markdown.claims_document(verdicts, table.tier, table.corpus)}
    others = [reproduction_results.read(path) for path in sorted(results.glob(f"*-{of_corpus}.json"))]
    for own in (table, *(other for other in others if other.stem != table.stem)):
        compared = hypotheses.stored(results, own.stem).compare(own)
        asked = reproduction_recipe.read(own.recipe)
        pages[f"{own.stem}.md"] = markdown.document(asked, own, judging.of_recipe(verdicts, own.recipe), compared)
    for name, text in pages.items():
        atomic.write(results / name, text)
    return list(pages)
