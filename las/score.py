"""The verb `score`: files in, an error rate out. It needs no torch, so that it answers quickly."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from las import arguments, atomic, build, progress
from las.corpora import phones
from las.errors import DataError
from las.scoring import conventions, error_rates, files, pages, significance, tables
from las.scoring.conventions import Convention
from las.scoring.error_rates import ErrorRate, Score
from las.scoring.significance import Comparison

Transcripts = dict[str, files.Transcript]
OPTIONS = ("ignore_case", "optional_words", "fragments", "json")


def score(overrides: list[str]) -> dict[str, Any]:
    """Compare the hypotheses of one file with the references of another: see configs/score.yaml."""
    return run(build.compose("score", overrides))


def run(config: build.Config) -> dict[str, Any]:
    """Score as the config says, print tables or JSON, write what is asked for, and return what the JSON holds.

    Raises ConfigError for an unknown convention, DataError for files that cannot be read or do not belong together.
    """
    for key in OPTIONS:
        arguments.check_value(key, config[key], bool)
    references = files.read(config["reference"])
    convention = conventions.convention(config["convention"] or guess(references))
    first = score_file(config["hypothesis"], references, convention, config)
    result = {"convention": convention.name, **as_dict(first, convention.metric)}
    shown: list[Callable[[], None]] = [lambda: show(first, convention.metric)]
    if config["compare"] is not None:
        second = score_file(config["compare"], references, convention, config)
        comparison = significance.compare(first, second)
        names = (Path(config["hypothesis"]).name, Path(config["compare"]).name)
        result["compare"] = {**as_dict(second, convention.metric), **comparison_as_dict(comparison)}
        shown.append(lambda: tables.print_comparison(comparison, names, convention.metric, progress.console))
    if config["json"]:
        print(json.dumps(result, ensure_ascii=False))
    else:
        for each in shown:
            each()
    write(config, result, first, convention)
    return result


def guess(references: Transcripts) -> str:
    """`timit_kaldi` where the references hold TIMIT phones and nothing else, else `nist`."""
    known = {phone for size in phones.SIZES for phone in phones.phone_set(size)}
    symbols = {symbol for transcript in references.values() for symbol in transcript.text.split()}
    return "timit_kaldi" if symbols and symbols <= known else "nist"


def score_file(hypothesis: str, references: Transcripts, convention: Convention, config: build.Config) -> Score:
    """The score of a file of hypotheses, or of the run whose folder it is."""
    path = hypotheses_of_run(Path(hypothesis), references) if Path(hypothesis).is_dir() else Path(hypothesis)
    rules = replace(
        convention.rules,
        ignore_case=config["ignore_case"],
        optional_words=config["optional_words"] or convention.rules.optional_words,
        fragments=config["fragments"],
    )
    return error_rates.error_rate(
        references=_tokens(references, convention.reference, config["reference"]),
        hypotheses=_tokens(files.read(path), convention.hypothesis, str(path)),
        speakers={name: transcript.speaker for name, transcript in references.items()},
        rules=rules,
    )


def hypotheses_of_run(folder: Path, references: Transcripts) -> Path:
    """The one file of hypotheses in a run's folder whose utterances the references have. Raises DataError if there is
    none, or more than one."""
    candidates = sorted(folder.glob("hypotheses.*.jsonl"))
    matching = [path for path in candidates if files.read(path).keys() <= references.keys()]
    if len(matching) != 1:
        found = ", ".join(path.name for path in matching or candidates) or "no hypotheses.<split>.jsonl"
        ask = "Name one of them" if matching else "Is the reference the manifest of the same split?"
        raise DataError(f"{folder}: which hypotheses are those of the reference? There is {found}. {ask}")
    return matching[0]


def as_dict(found: Score, metric: str) -> dict[str, Any]:
    """The JSON of one system."""
    parts = {"speakers": found.speakers, "subsets": found.subsets}
    return {
        "wer": found.total.rate,
        **error_rates.as_dict(found, metric),
        **{key: {name: _part(rate, metric) for name, rate in part.items()} for key, part in parts.items()},
        "confusions": [[c.reference, c.hypothesis, c.count] for c in found.confusions],
    }


def comparison_as_dict(comparison: Comparison) -> dict[str, Any]:
    """What the JSON of the second system holds beside its score."""
    return {
        "difference": comparison.difference,
        "tests": {name: outcome._asdict() for name, outcome in comparison.tests.items()},
        "fewer_errors_in_resampled_tests": comparison.second_better,
    }


def show(found: Score, metric: str) -> None:
    """Print a score."""
    tables.print_score(found, metric, progress.console)
    progress.say(error_rates.line(found, metric))


def write(config: build.Config, result: dict[str, Any], found: Score, convention: Convention) -> None:
    """The files that the config asks for."""
    if config["output"] is not None:
        atomic.write(Path(config["output"]), json.dumps(result, ensure_ascii=False, indent=1) + "\n")
    if config["alignments"] is not None:
        atomic.write(Path(config["alignments"]), tables.aligned_text(found.utterances))
    if config["page"] is not None:
        page = pages.page(found, convention.metric, Path(config["hypothesis"]).name, convention.name)
        atomic.write(Path(config["page"]), page)


def _part(rate: ErrorRate, metric: str) -> dict[str, Any]:
    return {"wer": rate.rate, **error_rates.rate_as_dict(rate, metric)}


def _tokens(transcripts: Transcripts, tokens: conventions.Tokens, path: str) -> dict[str, list[str]]:
    found = {}
    for name, transcript in transcripts.items():
        try:
            found[name] = tokens(transcript.text)
        except DataError as error:
            raise DataError(f"{path}: utterance {name!r}: {error} For words, score with convention=nist") from error
    return found
