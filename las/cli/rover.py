"""The verb `rover`: hypotheses of several systems in, one file of those that they vote for out."""

import json
from collections.abc import Sequence
from pathlib import Path

from las.config.build import check_values, compose, require
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, first_of, require_known
from las.scoring import rover as voting
from las.scoring import transcript_files
from las.scoring.rover import Word
from las.scoring.transcript_files import Transcript
from las.storage import atomic


def rover(overrides: list[str]) -> None:
    """Combine files of hypotheses by alignment and voting: see configs/rover.yaml.

    Raises ConfigError for one file alone and for confidences that are not there, DataError for files of other
    utterances.
    """
    config = compose("rover", overrides)
    check_values(config, {"hypotheses": Sequence[str], "output": str, "confidence": str})
    for key in ("alpha", "null_confidence"):
        require(key, config[key], 0.0, 1.0)
    require_known("confidence", config["confidence"], voting.CONFIDENCES)
    paths, output = config["hypotheses"], Path(config["output"])
    if isinstance(paths, str) or len(paths) < 2:
        raise ConfigError(f"hypotheses={paths}: a vote is of two systems at least: hypotheses=[a.jsonl,b.jsonl]")
    atomic.require_place(output, ".jsonl", ".trn")
    systems = [transcript_files.read(path) for path in paths]
    for path, system in zip(paths, systems, strict=True):
        if others := sorted(system.keys() ^ systems[0].keys()):
            raise DataError(
                f"{path} and {paths[0]} are of other utterances: only one of them has {first_of(others, 5)}"
            )
    are_sure = all(each.confidences is not None or not each.text for system in systems for each in system.values())
    if config["alpha"] < 1 and not are_sure:
        raise ConfigError(
            f"alpha={config['alpha']}: not all words of these files have a confidence: alpha=1.0, or decode with "
            "search.nbest=8, which writes them"
        )
    options = config["alpha"], config["null_confidence"], config["confidence"]
    lines = []
    for name in systems[0]:
        won = voting.combine([_words(system[name]) for system in systems], *options)
        lines.append(_line(name, won, are_sure) if output.suffix == ".jsonl" else _trn(name, won))
    atomic.write(output, (f"{line}\n" for line in lines))
    progress.say(f"{len(lines)} utterances of {len(systems)} systems written to {output}")


def _words(transcript: Transcript) -> list[Word]:
    texts = transcript.text.split()
    return [*map(Word, texts, transcript.confidences or [1.0] * len(texts))]


def _line(name: str, words: Sequence[Word], are_sure: bool) -> str:
    values = {"id": name, "text": " ".join(str(word.text) for word in words)}
    sure = [{"text": word.text, "confidence": round(word.confidence, 4)} for word in words]
    return json.dumps(values | ({"words": sure} if are_sure else {}), ensure_ascii=False)


def _trn(name: str, words: Sequence[Word]) -> str:
    return " ".join([*(str(word.text) for word in words), f"({name})"])
