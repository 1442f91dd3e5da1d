"""The verb `doctor`: what this machine lacks, and whether a training's longest batches fit into its memory."""

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.table import Table

from las import arguments, build, installation, machine, progress
from las.errors import LasError
from las.machine import NOTE, OK, PROBLEM, Check

STYLES = {OK: "green", NOTE: "yellow", PROBLEM: "red"}


def doctor(overrides: list[str]) -> list[Check]:
    """Check everything, print a table and what to type against each problem; see configs/doctor.yaml.

    Raises LasError when there is a problem.
    """
    config = build.compose("doctor", overrides)
    arguments.check_value("dry_run", config["dry_run"], bool)
    folder = Path(config["run_dir"])
    asked: dict[str, Callable[[], Check]] = {
        "python": installation.python,
        "packages": installation.packages,
        "torch": installation.torch,
        "torchaudio": installation.torchaudio,
        "audio files": installation.audio_files,
        "cpu kernel": installation.cpu_kernel,
        "GPU": installation.gpu,
        "extras": installation.extras,
        "memory": machine.memory,
        "cores": machine.cores,
        "limits": machine.limits,
        "run folder": lambda: machine.run_folder(folder),
        "disk": lambda: machine.disk(folder),
    }
    found = [ask_for(name, ask) for name, ask in asked.items()]
    if config["dry_run"]:
        found += dry_run(config)
    show(found)
    problems = [check for check in found if check.verdict == PROBLEM]
    if problems:
        raise LasError(f"{len(problems)} of {len(found)} checks found a problem: {', '.join(c.name for c in problems)}")
    progress.say("ready" if config["dry_run"] else "ready. next: las demo, or las doctor dry_run=true for a training")
    return found


def ask_for(name: str, ask: Callable[[], Check]) -> Check:
    """A check; what cannot even be asked is a problem."""
    try:
        return ask()
    except Exception as error:  # whatever is wrong with a machine, the rest of the list is wanted all the more
        return Check(name, PROBLEM, f"{type(error).__name__}: {error}")


def dry_run(config: build.Config) -> Iterator[Check]:
    """The longest batches of the training that the config describes. Raises what its parts and its corpus raise."""
    from las import assembly  # needs torch, which may be what is wrong with the machine
    from las import dry_run as trial
    from las.corpora.base import Corpus

    corpus: Corpus = build.build(config["corpus"], where="corpus")
    own = {key: value for key, value in config.items() if key != "dry_run"}
    _, built = assembly.build_all(own, corpus)
    train = corpus.prepare(Path(config["data_dir"]) / "manifests")[corpus.splits[0]]
    return trial.checks(own, built, corpus, train)


def show(found: list[Check]) -> None:
    """The table on a terminal, lines of text anywhere else; below it what to type, problems first."""
    if progress.console.is_terminal:
        table = Table("", "", "found")
        for check in found:
            table.add_row(check.name, f"[{STYLES[check.verdict]}]{check.verdict}[/]", check.found.replace("[", r"\["))
        progress.console.print(table)
    else:
        for check in found:
            progress.say(f"{check.name:13}  {check.verdict:7}  {check.found}")
    for verdict in (PROBLEM, NOTE):
        for check in found:
            if check.verdict == verdict and check.command:
                progress.say(f"{check.name}: {check.command}")
