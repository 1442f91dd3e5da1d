"""The verb `check`: every audio file and every transcript of a corpus, read completely, each bad one named."""

from pathlib import Path

from rich.table import Table

from las import build, preparation, progress, soundness
from las.corpora.base import Corpus
from las.errors import DataError
from las.model import ListenAttendSpell
from las.preparation import Data
from las.readings import Readings
from las.soundness import Problem


def check(overrides: list[str]) -> None:
    """Read a corpus to its last sample and print what is wrong with it; nothing is trained.

    Raises DataError when a training utterance would be left out, or an utterance of another split cannot be decoded.
    """
    config = build.compose("train", overrides)
    corpus: Corpus = build.build(config["corpus"], where="corpus")
    limits = build.build(config["limits"], where="limits")
    model: ListenAttendSpell = build.build(config["model"], where="model")(corpus.sample_rate, corpus.tokens.size)
    data_dir = Path(config["data_dir"])
    data = preparation.prepare(corpus, data_dir, limits)
    # What earlier readings found is not believed here, but what is found now is remembered for trainings.
    data = data._replace(readings=Readings(preparation.readings_path(corpus, data_dir)))
    problems = {split: data.problems(split, preparation.num_states_of(model)) for split in corpus.splits}
    ledger = preparation.write_ledger(data_dir / "checks" / corpus.name / preparation.LEDGER, problems)
    for split, listed in problems.items():
        for problem in listed:
            progress.say(f"{split} {problem.utterance_id}: {describe(problem)}")
    too_many = [split for split in corpus.splits if _say_unknown(data, split)]
    total = sum(map(len, data.splits.values()))
    if not any(problems.values()) and not too_many:
        progress.say(f"{corpus.name}: all {total} utterances are sound")
        return
    print_kinds(corpus.name, problems)
    bad = sum(len(blocking(corpus, split, listed)) for split, listed in problems.items())
    if bad or too_many:
        raise DataError(f"{corpus.name}: {bad} of {total} utterances cannot be used: each is listed in {ledger}")
    progress.say(f"{corpus.name}: all {total} utterances can be used; what is not fit for training is in {ledger}")


def blocking(corpus: Corpus, split: str, problems: list[Problem]) -> list[Problem]:
    """The problems that matter in a split: all of training, and elsewhere those that hinder decoding."""
    training = split == corpus.splits[0]
    return [problem for problem in problems if training or problem.kind not in soundness.TRAINING_ONLY]


def describe(problem: Problem) -> str:
    """File and reason; many reasons begin with the file already."""
    return problem.reason if problem.file in problem.reason else f"{problem.file}: {problem.reason}"


def print_kinds(name: str, problems: dict[str, list[Problem]]) -> None:
    """How many problems of each kind each split has."""
    table = Table("problem", title=f"{name}: problems")
    for split in problems:
        table.add_column(split, justify="right")
    for kind in sorted({problem.kind for listed in problems.values() for problem in listed}):
        counts = (sum(problem.kind == kind for problem in listed) for listed in problems.values())
        table.add_row(kind, *map(str, counts))
    progress.console.print(table)


def _say_unknown(data: Data, split: str) -> bool:
    """Name the symbols that the tokens lack; whether there are more than the limit allows."""
    unknown = data.unknown(split)
    if unknown.found:
        progress.say(f"{split}: the tokens lack {unknown}. {data.remedy()}")
    return unknown.share > data.limits.unknown
