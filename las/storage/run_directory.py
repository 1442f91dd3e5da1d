"""A run folder knows itself: its resolved config, where and how it was started, its metrics and its result.

runs/<name>/<corpus>/seed<seed>/
    config.json         resolved config; entering with another one stops and lists the keys that differ
    environment.json    versions, machine, commit, command
    metrics.jsonl       one line per event, what reports read
    log.txt             what was printed
    checkpoints/        see las.storage.checkpoint
    attention/          one picture per validation
    hypotheses.<split>.jsonl, result.json
    decoded/            what `las decode` wrote, see las.storage.output_paths
    tuned.json          what `las tune` found, see las.decoding.tuned_search

What has changed between the start of a run and its continuation, and may change its numbers.
"""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from las.runtime import distributed
from las.runtime.config import Config, differences
from las.runtime.errors import ConfigError, StorageError, suggest
from las.storage import atomic, bounded

UNSIGNED = ("data_dir", "run_dir", "kernel")
"""Keys that say where things lie and how they are computed, not what is trained: a run may go on with others."""
LATER: Config = {"pretraining": {"new_layers": "below_top", "stages": []}}
"""Keys that configs of earlier releases lack, with what those did."""
UNSIGNED_TRAINER = ("device", "num_workers", "threads", "histograms", "attention_pictures", "allow_drift")


def signature(config: Config) -> Config:
    """The part of a config that decides what a run computes."""
    kept = {key: value for key, value in config.items() if key not in UNSIGNED}
    kept["trainer"] = {key: value for key, value in config["trainer"].items() if key not in UNSIGNED_TRAINER}
    kept["corpus"] = {key: value for key, value in config["corpus"].items() if key != "root"}
    return kept


class Run:
    """One configured training and its folder, which the main process alone writes to.

    Raises StorageError when the folder cannot be written, or belongs to a run of another configuration.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.directory = Path(config["run_dir"])
        self.writes = distributed.is_main()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._enter()
        except OSError as error:
            raise StorageError(
                f"{self.directory}: cannot write the run folder ({error.strerror}): choose another with run_dir=..."
            ) from error

    def _enter(self) -> None:
        path = self.directory / "config.json"
        # Before training begins there is nothing to protect: a config that led nowhere may be mended.
        if any((self.directory / name).exists() for name in ("metrics.jsonl", "checkpoints", "result.json")):
            differing = differences(signature(LATER | self._own_config(path)), signature(self.config))
            if differing:
                listed = "\n  ".join(differing)
                raise StorageError(
                    f"{self.directory} holds a run of another configuration (its value -> yours):\n  {listed}\n"
                    f"give this one a name of its own: name={self.config['name']}_2"
                )
        if self.writes:
            atomic.write_json(path, self.config, durable=True)
            atomic.write_json(self.directory / "environment.json", environment(), durable=True)

    def _own_config(self, path: Path) -> Config:
        try:
            config = bounded.read_object(path)
            signature(config)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(
                f"{path}: missing or damaged ({bounded.why(error)}), so nobody can tell what this run is of: "
                f"restore it, or start a run of its own: name={self.config['name']}_2"
            ) from error
        return config

    def record(self, **values: Any) -> None:
        """Append one event to metrics.jsonl."""
        if not self.writes:
            return
        line = json.dumps({"time": round(time.time(), 3), **values}, allow_nan=False)
        with (self.directory / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @property
    def way_out(self) -> str:
        """The advice to type something else where the disk is full."""
        return (
            "Make room and type the same command again, or train on another disk: add "
            f"run_dir=/another/disk/{self.directory.name} to it."
        )

    def metrics(self) -> list[dict[str, Any]]:
        """All events so far; half a line at the end, of a process that was killed, is none."""
        return bounded.stored_lines(self.directory / "metrics.jsonl")

    def forget_after(self, step: int) -> None:
        """Drop events past a step: a resumed run repeats them, and each step must be there once."""
        if not self.writes:
            return
        kept = [event for event in self.metrics() if event.get("step", 0) <= step]
        path = self.directory / "metrics.jsonl"
        atomic.write(path, "".join(json.dumps(event) + "\n" for event in kept))

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of a finished run, else None."""
        path = self.directory / "result.json"
        return bounded.stored(path) if path.exists() else None

    def finish(self, result: dict[str, Any]) -> None:
        """Write result.json: from now on the run counts as finished."""
        if self.writes:
            atomic.write_json(self.directory / "result.json", result, durable=True)


def environment() -> dict[str, Any]:
    """What a reader needs to judge a number: versions, machine, commit and command."""
    import torch

    return {
        "command": " ".join(sys.argv),
        "commit": commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "machine": platform.machine(),
        "system": platform.system(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def commit() -> str | None:
    """The checkout's commit, with `+` when it has uncommitted changes; None outside a checkout."""
    where = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=where,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()


KINDS = {
    "torch": "the version of torch",
    "code": "the version of las (or its commit)",
    "vocabulary": "the output symbols",
    "manifest_hash": "the training utterances",
    "seed": "the seed",
}
NEVER = ("vocabulary", "manifest_hash", "seed")
"""With these another training begins: the order of the data, or the meaning of the parameters."""


def origin(vocabulary_hash: str) -> dict[str, str]:
    """What a checkpoint keeps of where it comes from, beside seed and manifest."""
    import las

    return {"torch": str(torch.__version__), "code": commit() or las.__version__, "vocabulary": vocabulary_hash}


def require(before: Mapping[str, Any], now: Mapping[str, Any], allowed: Collection[str], directory: Path) -> list[str]:
    """Lines for the log about changes that are allowed.

    Raises StorageError listing those that are not, ConfigError when `allowed` names what cannot be allowed.
    """
    for name in allowed:
        if name not in KINDS or name in NEVER:
            may = [kind for kind in KINDS if kind not in NEVER]
            raise ConfigError(f"allow_drift: {name!r} is none of {', '.join(may)}.{suggest(name, may)}")
    changed = [name for name in KINDS if name in before and before[name] != now[name]]
    lines = [f"{KINDS[name]}: {_short(before[name])} -> {_short(now[name])}" for name in changed]
    refused = [name for name in changed if name not in allowed]
    if not refused:
        return [f"continuing although it changed since this run began: {line}" for line in lines]
    if set(refused) & set(NEVER):
        advice = "Restore what it was, or start a run of its own under another name=..."
    else:
        advice = f"Go on all the same with allow_drift=[{','.join(refused)}], or start another run with name=..."
    listed = "\n  ".join(lines)
    raise StorageError(f"{directory}: changed since this run began (then -> now):\n  {listed}\n{advice}")


def _short(value: Any) -> str:
    text = str(value)
    return f"{text[:12]}..." if len(text) > 40 else text
