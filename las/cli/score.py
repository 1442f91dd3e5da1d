"""The verb `score`: files in, an error rate out. It needs no torch, so that it answers quickly."""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from las.config.build import Config, check_values, compose
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, suggest
from las.scoring import (
    confidence,
    conventions,
    ctm,
    error_rates,
    glm,
    hub5,
    phones,
    segments,
    significance,
    stm,
    tables,
    transcript_files,
)
from las.scoring.alignment import AlignmentRules
from las.scoring.confidence import Judged
from las.scoring.error_rates import ErrorRate, Score
from las.scoring.word_network import Marked
from las.storage import atomic

Transcripts = dict[str, transcript_files.Transcript]
TIME_MARK_CONVENTIONS = ("nist", "hub5", "hub5_kaldi")
OPTIONS = ("ignore_case", "optional_words", "fragments", "json")


def score(overrides: list[str]) -> dict[str, Any]:
    """Compare the hypotheses of one file with the references of another: see configs/score.yaml.

    Prints tables or JSON, writes what is asked for, and returns what the JSON holds. Raises ConfigError for an unknown
    convention, DataError for files that cannot be read or do not belong together.
    """
    config = compose("score", overrides)
    check_values(config, dict.fromkeys(OPTIONS, bool))
    for key in ("output", "alignments", "page"):
        if config[key] is not None:
            atomic.require_place(Path(config[key]))
    test = time_marks(config) if Path(config["reference"]).suffix.lower() == ".stm" else transcripts(config)
    score = test.score(Path(config["hypothesis"]))
    result = {"convention": test.convention, **test.record, **as_dict(score, test.metric)}
    judged = test.judge(Path(config["hypothesis"]), score)
    if judged:
        result["confidences"] = confidence.as_dict(judged)
    comparison = None
    if config["compare"] is not None:
        other_score = test.score(Path(config["compare"]))
        comparison = significance.compare(score, other_score)
        result["compare"] = {
            **as_dict(other_score, test.metric),
            "difference": comparison.difference,
            "tests": {name: outcome._asdict() for name, outcome in comparison.tests.items()},
            "fewer_errors_in_resampled_tests": comparison.second_better,
        }
    if config["json"]:
        print(json.dumps(result, ensure_ascii=False))
    else:
        tables.print_score(score, test.metric, progress.console)
        progress.say(error_rates.line(score, test.metric))
        for line in confidence.lines(judged):
            progress.say(line)
        if comparison is not None:
            names = system_names(config["hypothesis"], config["compare"])
            tables.print_comparison(comparison, names, test.metric, progress.console)
    if config["output"] is not None:
        atomic.write_json(Path(config["output"]), result)
    if config["alignments"] is not None:
        atomic.write(Path(config["alignments"]), tables.aligned_text(score.utterances))
    if config["page"] is not None:
        from las.cli import score_page  # reading audio is for pages alone

        reference, hypothesis = Path(config["reference"]), Path(config["hypothesis"])
        page = score_page.page(score, test.metric, hypothesis, test.convention, reference)
        atomic.write(Path(config["page"]), page)
    return result


@dataclass(frozen=True)
class ScoredTest:
    """References, a function that scores hypotheses of them, and one that judges the confidences that they have.

    `record` goes into the result.
    """

    convention: str
    metric: str
    score: Callable[[Path], Score]
    record: dict[str, Any] = field(default_factory=dict)
    judge: Callable[[Path, Score], dict[str, Judged]] = lambda path, score: {}


def transcripts(config: Config) -> ScoredTest:
    """Return the references in a .trn or .jsonl file; a folder of hypotheses is that of a run."""
    if config["glm"] is not None:
        raise ConfigError("glm= is for the conventions hub5 and hub5_kaldi, which score a .ctm against a .stm")
    # sclite compares the ids of its own format this way.
    is_trn = Path(config["reference"]).suffix.lower() == ".trn"
    ignore_case = config["ignore_case"] and is_trn
    references = transcript_files.read(config["reference"], ignore_case, reference=True)
    convention = conventions.convention(config["convention"] or guess(references))
    reference_tokens = _tokens(references, convention.reference, config["reference"])
    if is_trn:
        reference_tokens = {name: Marked(tokens) for name, tokens in reference_tokens.items()}
    speakers = {name: transcript.speaker for name, transcript in references.items()}
    rules = replace(_rules(config), optional_words=config["optional_words"] or convention.rules.optional_words)

    @functools.cache
    def read(path: Path) -> Transcripts:
        return transcript_files.read(hypotheses_of_run(path, references) if path.is_dir() else path, ignore_case)

    def score_file(path: Path) -> Score:
        hypotheses = _tokens(read(path), convention.hypothesis, str(path))
        return error_rates.error_rate(reference_tokens, hypotheses, speakers, rules)

    def judge(path: Path, score: Score) -> dict[str, Judged]:
        return confidence.judge(score, read(path), convention.hypothesis)

    return ScoredTest(convention.name, convention.metric, score_file, judge=judge)


def time_marks(config: Config) -> ScoredTest:
    """Return the references in a .stm file, hypotheses in .ctm files: with a glm as the Hub5 evaluations are scored."""
    name = config["convention"] or ("nist" if config["glm"] is None else "hub5")
    if name not in TIME_MARK_CONVENTIONS:
        suggestion = suggest(name, TIME_MARK_CONVENTIONS)
        raise ConfigError(f"convention={name}: there is no such convention for a .stm file.{suggestion}")
    if (name == "nist") != (config["glm"] is None):
        raise ConfigError(
            f"convention={name} {'takes no' if name == 'nist' else 'needs a'} file of mapping rules (glm=)"
        )
    references = stm.read(config["reference"])
    if name == "nist":
        return ScoredTest(name, "wer", lambda path: segments.score(references, ctm.read(path), _rules(config)))
    rules = glm.Glm.read(config["glm"])
    record = {"glm": {"name": rules.name, "file": Path(config["glm"]).name, "sha256": rules.sha256}}
    if name == "hub5":
        return ScoredTest(name, "wer", lambda path: hub5.score(references, ctm.read(path), rules), record)
    references = hub5.repaired(references)
    return ScoredTest(
        name, "wer", lambda path: hub5.score(references, hub5.without_noises(ctm.read(path)), rules), record
    )


def guess(references: Transcripts) -> str:
    """Return the convention of references: `timit_kaldi` if all symbols are TIMIT phones, else `nist`."""
    known = {phone for size in phones.SIZES for phone in phones.phone_set(size)}
    symbols = {symbol for transcript in references.values() for symbol in transcript.text.split()}
    return "timit_kaldi" if symbols and symbols <= known else "nist"


def hypotheses_of_run(folder: Path, references: Transcripts) -> Path:
    """Return the only file of hypotheses in a run's folder whose utterances the references have.

    Raises DataError if there is none, or more than one.
    """
    candidates = sorted(folder.glob("hypotheses.*.jsonl"))
    matching = [path for path in candidates if transcript_files.read(path).keys() <= references.keys()]
    names = ", ".join(path.name for path in matching or candidates)
    if not matching:
        raise DataError(
            f"{folder}: no hypotheses.<split>.jsonl there has the utterances of the reference (found: "
            f"{names or 'none'}). Is the reference the manifest of the same split?"
        )
    if len(matching) > 1:
        raise DataError(f"{folder}: several files fit the reference: {names}. Name one of them")
    return matching[0]


def as_dict(score: Score, metric: str) -> dict[str, Any]:
    """Return the score of one system as JSON data."""
    parts = {"speakers": score.speakers, "subsets": score.subsets}
    return {
        "wer": score.total.rate,
        **error_rates.as_dict(score, metric),
        **{key: {name: _rate_entry(rate, metric) for name, rate in rates.items()} for key, rates in parts.items()},
        "confusions": [[c.reference, c.hypothesis, c.count] for c in score.confusions],
    }


def system_names(first: str, second: str) -> tuple[str, str]:
    """Return the names of two files or folders, or their paths where the names are the same."""
    names = Path(first).name, Path(second).name
    return names if names[0] != names[1] else (first, second)


def _rules(config: Config) -> AlignmentRules:
    return AlignmentRules(config["optional_words"], config["fragments"], config["ignore_case"])


def _rate_entry(rate: ErrorRate, metric: str) -> dict[str, Any]:
    return {"wer": rate.rate, **error_rates.rate_as_dict(rate, metric)}


def _tokens(transcripts: Transcripts, tokens: conventions.Tokens, path: str) -> dict[str, list[str]]:
    tokens_by_id: dict[str, list[str]] = {}
    for name, transcript in transcripts.items():
        try:
            tokens_by_id[name] = tokens(transcript.text)
        except DataError as error:
            raise DataError(f"{path}: utterance {name!r}: {error} For words, score with convention=nist") from error
    return tokens_by_id
