"""The verb `score`: two files in, an error rate out. It needs no torch, so that it answers quickly."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from las import atomic, build, progress
from las.corpora import phones
from las.errors import ConfigError, DataError, suggest
from las.scoring import error_rates, files

Transcripts = dict[str, files.Transcript]


def score(overrides: list[str]) -> dict[str, Any]:
    """Compare the hypotheses of one file with the references of another: see configs/score.yaml."""
    return run(build.compose("score", overrides))


def run(config: build.Config) -> dict[str, Any]:
    """Score as the config says, print a table or JSON, and return what the JSON holds.

    Raises ConfigError for an unknown metric, DataError for files that cannot be read or do not belong together.
    """
    references, hypotheses = files.read(config["reference"]), files.read(config["hypothesis"])
    metric = config["metric"] or guess_metric(references)
    normalise = _normaliser(metric, config["ignore_case"])
    found = error_rates.error_rate(
        references=_tokens(references, normalise, config["reference"]),
        hypotheses=_tokens(hypotheses, normalise, config["hypothesis"]),
        speakers={name: transcript.speaker for name, transcript in references.items()},
    )
    result = {
        **error_rates.as_dict(found, metric),
        "speakers": {name: _speaker(rate, metric) for name, rate in found.speakers.items()},
        "confusions": [[c.reference, c.hypothesis, c.count] for c in found.confusions],
    }
    if config["json"]:
        print(json.dumps(result, ensure_ascii=False))
    else:
        error_rates.print_table(found, metric, progress.console)
        progress.say(error_rates.line(found, metric))
    if config["output"] is not None:
        _write(Path(config["output"]), result)
    return result


def guess_metric(references: Transcripts) -> str:
    """`phone_error_rate` where the references hold TIMIT phones and nothing else, else `wer`."""
    known = {phone for size in phones.SIZES for phone in phones.phone_set(size)}
    symbols = {symbol for transcript in references.values() for symbol in transcript.text.split()}
    return "phone_error_rate" if symbols and symbols <= known else "wer"


def _normaliser(metric: str, ignore_case: bool) -> Callable[[str], list[str]]:
    """From a text to the tokens that are scored."""
    if metric not in error_rates.SHORT_NAMES:
        raise ConfigError(f"metric={metric}: there is no such metric.{suggest(metric, error_rates.SHORT_NAMES)}")
    if metric == "wer":
        return lambda text: (text.lower() if ignore_case else text).split()
    return lambda text: [phone for symbol in text.split() if (phone := phones.fold(symbol, 39)) is not None]


def _tokens(transcripts: Transcripts, normalise: Callable[[str], list[str]], path: str) -> dict[str, list[str]]:
    tokens = {}
    for name, transcript in transcripts.items():
        try:
            tokens[name] = normalise(transcript.text)
        except DataError as error:
            raise DataError(f"{path}: utterance {name!r}: {error} For words, score with metric=wer") from error
    return tokens


def _speaker(rate: error_rates.ErrorRate, metric: str) -> dict[str, Any]:
    return {metric: rate.rate, **vars(rate)}


def _write(path: Path, result: dict[str, Any]) -> None:
    atomic.write(path, json.dumps(result, ensure_ascii=False, indent=1) + "\n")
