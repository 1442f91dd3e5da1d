"""Decode test-clean with a finished LibriSpeech training, once for each row of the final table and seed.

    python docs/made_by/final_test.py row=NAME what="attention and CTC" checkpoint=RUN corpus.root=... [search=... ...]
    python docs/made_by/final_test.py row=NAME what="the same, rescored" hypotheses=rescored.jsonl checkpoint=RUN ...

Nothing is chosen on test-clean: a training never evaluates it, and this command appends a line to the log and refuses a
row and seed that have one. corpus.root=... is the tree with test-clean, if it is another one than that of the training.
The hypotheses stay in the run folder (decoded/hypotheses.test-clean.ROW.jsonl); `hypotheses=` scores those that were
rescored from them, by the search that is given. dev=0.42 notes the error rate by which the row was chosen. The table of
the log is written by collect_results.py.
"""

import datetime
import json
import re
import sys
from pathlib import Path
from typing import Any

from las.config.build import build
from las.decoding import evaluation, tuned_search
from las.decoding.transcriber import load
from las.runtime import progress
from las.runtime.errors import ConfigError, LasError
from las.scoring import error_rates, transcript_files
from las.storage import atomic, bounded, run_summary
from las.storage.run_directory import commit
from las.training import data_preparation

LOG = Path(__file__).parents[1] / "test_clean.jsonl"
PART = "test-clean"


def lines(log: Path = LOG) -> list[dict[str, Any]]:
    """Read the log; empty before the first line."""
    return bounded.stored_lines(log) if log.exists() else []


def final_test(arguments: list[str], log: Path = LOG) -> dict[str, Any]:
    """Decode, append the line and return it. Raises ConfigError for a row and seed that were decoded before."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    if not given.get("row") or not given.get("checkpoint"):
        raise ConfigError("give row=NAME and checkpoint=RUN")
    row, root, stored = (given.pop(name, None) for name in ("row", "corpus.root", "hypotheses"))
    what, dev = given.pop("what", row), given.pop("dev", None)
    searched = [f"{key}={value}" for key, value in given.items() if key != "checkpoint"]
    config = tuned_search.compose("decode", [f"checkpoint={given['checkpoint']}", *searched, f"split={PART}"])
    run = Path(config["checkpoint"])
    transcriber = load(run, build(config["search"], where="search"))
    training = transcriber.config
    key = {"row": row, "seed": training["seed"]}
    if any(key.items() <= line.items() for line in lines(log)):
        raise ConfigError(f"row={row}, seed {key['seed']}: decoded already. test-clean is read once for each ({log})")
    values = training["corpus"] | {"evaluate": [PART], "partial": True} | ({"root": root} if root else {})
    corpus = build(values, where="corpus")
    (split,) = corpus.splits[1:]
    utterances = data_preparation.prepared(corpus, training["data_dir"])[split]
    if stored is None:
        output = run / "decoded" / f"hypotheses.{PART}.{row}.jsonl"
        score = evaluation.decode_split(transcriber, corpus, split, utterances, output)
    else:
        texts = {name: each.text for name, each in transcript_files.read(stored).items()}
        score = corpus.score(split, utterances, texts)
    environment = bounded.parse((run / "environment.json").read_bytes())
    line = {
        **key,
        "what": what,
        "dev": None if dev is None else float(dev),
        **error_rates.as_dict(score, corpus.metric),
        "search": [without_folders(word) for word in searched],
        "hypotheses": stored and without_folders(stored),
        "checkpoint": without_folders(config["checkpoint"]),
        "command": " ".join(map(without_folders, environment["command"].split())),
        "minutes": round(run_summary.read(run).minutes or 0.0),
        "curve": curve(run),
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
    }
    written = [json.dumps(each) + "\n" for each in [*lines(log), line]]
    atomic.write(log, written)
    progress.say(f"{PART}: {error_rates.line(score, corpus.metric)}; appended to {log}")
    return line


def without_folders(word: str) -> str:
    """Return a word of a command without the folders of this machine: corpus.root=/a/b is corpus.root=b."""
    return re.sub(r"(^|=)/\S*/", r"\1", word)


def curve(run: Path) -> list[list[float]]:
    """Read the minutes of a training at each validation, pauses left out, and the error rate of dev."""
    events = bounded.stored_lines(run / "metrics.jsonl")
    points, minutes, before = [], 0.0, events[0]["time"]
    for event in events:
        gap, before = event["time"] - before, event["time"]
        minutes += gap / 60 if 0 < gap <= run_summary.LONGEST_GAP_S else 0.0
        if event["event"] == "validation":
            points.append([round(minutes, 1), round(event["dev_error"], 4)])
    return points


if __name__ == "__main__":
    try:
        final_test(sys.argv[1:])
    except LasError as error:
        print(f"final_test: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
