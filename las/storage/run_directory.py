"""Run directories: resolved config, environment, metrics and result of one training, and what changed since it began.

runs/<name>/<corpus>/seed<seed>/
    config.json         resolved config; entering with another one stops and lists the keys that differ
    environment.json    versions, machine, commit, command
    metrics.jsonl       one line per event, read by reports
    log.txt             what was printed
    checkpoints/        see las.storage.checkpoint
    attention/          one picture per validation
    hypotheses.<split>.jsonl, references.<split>.jsonl, result.json
    decoded/            outputs of `las decode`, see las.storage.checkpoint
    tuned.json          result of `las tune`, see las.decoding.tuned_search
    warm_start.json     tensors that a warm start took from another run, see las.training.warm_start
    extensions.json     lengths that the run was given anew
    finished/step-<step>/  result and hypotheses that it ended with before

A run is continued only with the config, software and data it began with, or with changes that are allowed by name. Only
its length may grow.
"""

import copy
import functools
import hashlib
import json
import platform
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from las.config import targets
from las.config.build import Config, differences, shown
from las.config.public import with_former_names, with_public_names
from las.runtime import distributed
from las.runtime.errors import ConfigError, StorageError, suggest
from las.runtime.version import __version__
from las.storage import atomic, bounded, run_records

UNSIGNED = ("data_dir", "run_dir", "kernel", "learning_rate", "labels", "lexicon")
"""Keys that do not affect what is trained (locations, kernels, what `optim.lr` is compared with): a run may continue
with other values. What lies at a location is compared by its hash (KINDS)."""
LATER: Config = {
    "pretraining": {"new_layers": "below_top", "stages": []},
    "init": {"_target_": "las.ConstructorInitialisation"},
    "corpus.metric": None,
    "model.features.log_floor": 1e-6,
    "model.listener.dropout_mask": {"_target_": "las.Dropout", "_partial_": True},
    "model.speller.dropout_mask": {"_target_": "las.Dropout", "_partial_": True},
    "model.speller.first_input": "embedding",
    "loss.smoothed": "all",
    "schedule.follows": "cross_entropy",
    "trainer.select": "dev_error",
    "warm_start": {
        "from": None,
        "parts": ["listener", "speller", "ctc"],
        "statistics": None,
        "freeze": [],
        "thaw_step": None,
    },
}
"""Keys (dotted) that configs of earlier releases lack, with the values that mean what those releases did."""
DIGESTED = ("pretraining",)
"""Keys of LATER that digests have had since before there were stored digests."""
UNSIGNED_TRAINER = ("device", "tf32", "num_workers", "threads", "histograms", "attention_pictures", "allow_drift")
UNSIGNED_CORPUS = ("root", "resampled", "test_large_utterances", "test_large_speakers")
KINDS = {
    "torch": "the version of torch",
    "code": "the version of las (or its commit)",
    "packages": "the trusted packages of its classes",
    "vocabulary": "the output symbols",
    "manifest_hash": "the training utterances",
    "seed": "the seed",
    "labels": "the labels of frames",
    "lexicon": "the pronouncing dictionary",
}
"""Properties of a run that are compared when it continues, with their names in messages."""
NEVER_ALLOWED = ("vocabulary", "manifest_hash", "seed", "labels", "lexicon")
"""Properties that may not change: they decide the order of the data or the meaning of the parameters."""
LENGTHS = ("max_steps", "max_sub_epochs", "patience")
"""Options of the trainer that only say when training ends, and may grow afterwards; null or absent means no limit."""
Lengths = dict[str, tuple[int | None, int | None]]
"""Lengths that differ, before and after, by key."""


def signature(config: Config) -> Config:
    """Part of a config that decides what a run computes."""
    signed = {key: value for key, value in config.items() if key not in UNSIGNED}
    signed["trainer"] = {key: value for key, value in config["trainer"].items() if key not in UNSIGNED_TRAINER}
    signed["corpus"] = {key: value for key, value in config["corpus"].items() if key not in UNSIGNED_CORPUS}
    return signed


def signature_digest(config: Config) -> str:
    """Eight hexadecimal digits of the signature, the same in every release that computes the same."""
    later = LATER.keys() - set(DIGESTED)
    signed = json.dumps(with_former_names(_without_later(signature(config), later)), sort_keys=True)
    return hashlib.sha256(signed.encode()).hexdigest()[:8]


def _without_later(signed: Config, keys: Iterable[str]) -> Config:
    """Copy a signature without those keys of LATER that have the earlier releases' behaviour."""
    signed = copy.deepcopy(signed)
    for key in keys:
        holder, last = _holder(signed, key)
        if holder.get(last, ...) == LATER[key]:
            del holder[last]
    return signed


def _with_later(signed: Config, like: Config) -> Config:
    """Copy a signature, with those keys of LATER that it lacks and that another one has."""
    signed = copy.deepcopy(signed)
    for key, value in LATER.items():
        holder, last = _holder(signed, key)
        if last in _holder(like, key)[0]:
            holder.setdefault(last, value)
    return signed


def _holder(config: Config, key: str) -> tuple[Config, str]:
    """Return the section of a config that a dotted key is in, empty if there is none, and the key's last part."""
    *sections, last = key.split(".")
    for section in sections:
        value = config.get(section)
        config = value if isinstance(value, dict) else {}  # a stored config may be damaged
    return config, last


class RunDirectory:
    """Directory of one configured training, which only the main process writes to.

    Raises StorageError when the folder cannot be written, or belongs to a run of another configuration.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.directory = Path(config["run_dir"])
        self.writes = distributed.is_main()
        self.clock_offset_s = time.time() - time.monotonic()
        self.extension: Lengths = {}
        """Lengths that grow by this command; empty unless it continues a shorter run."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._enter()
        except OSError as error:
            raise StorageError(
                f"{self.directory}: cannot write the run folder ({error.strerror}): choose another with run_dir=..."
            ) from error

    def _enter(self) -> None:
        path = self.directory / "config.json"
        # Before training begins there is nothing to protect: the config may still be corrected.
        if any((self.directory / name).exists() for name in ("metrics.jsonl", "checkpoints", "result.json")):
            current = signature(self.config)
            self._require_same(_with_later(signature(self._own_config(path)), like=current), current)
        if self.writes:
            if not self.extension:
                atomic.write_json(path, self.config, durable=True)
            used = environment() | own_packages(self.config)
            atomic.write_json(self.directory / "environment.json", used, durable=True)

    def _require_same(self, stored: Config, current: Config) -> None:
        """Raise StorageError unless two signatures are the same, or only the lengths of the run grow."""
        differing = differences(stored, current)
        own_name = f"give this one a name of its own: name={self.config['name']}_2"
        if not differing:
            return
        if differences(without_lengths(stored), without_lengths(current)):
            listed = "\n  ".join(differing)
            raise StorageError(
                f"{self.directory} holds a run of another configuration (its value -> yours):\n  {listed}\n{own_name}"
            )
        try:
            self.extension = require_growth(
                stored["trainer"], current["trainer"], run_records.result(self.directory), own_name
            )
        except StorageError as error:
            raise StorageError(f"{self.directory}: {error}") from error

    def extend(self) -> None:
        """Take over the lengths of `extension`, under the lock of the run: result and hypotheses of the shorter run are
        moved to `finished/`, the change is recorded, and the folder gets its new config.
        """
        if not (self.extension and self.writes):
            return
        result = run_records.result(self.directory)
        if result is not None:
            place = self.finished(int(result["steps"]))
            place.mkdir(parents=True, exist_ok=True)
            for file in (*self.directory.glob("hypotheses.*.jsonl"), self.directory / "result.json"):
                file.rename(place / file.name)  # the result last: without it the run counts as stopped
        record = {"steps": None if result is None else result["steps"], "trainer": self.extension}
        changes = {"changes": [*self.extensions, record]}
        atomic.write_json(self.directory / "extensions.json", changes, durable=True)
        atomic.write_json(self.directory / "config.json", self.config, durable=True)

    def finished(self, step: int) -> Path:
        """Folder of what the run ended with at a step, before it was continued for longer."""
        return self.directory / "finished" / f"step-{step:08d}"

    @property
    def extensions(self) -> list[dict[str, Any]]:
        """Changes of the length of this run: steps it had finished after (None if it had not), old and new lengths."""
        path = self.directory / "extensions.json"
        return list(bounded.stored(path)["changes"]) if path.exists() else []

    def _own_config(self, path: Path) -> Config:
        try:
            config = with_public_names(bounded.read_object(path))
            signature(config)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(
                f"{path}: missing or damaged ({bounded.reason(error)}), so nobody can tell what this run is of: "
                f"restore it, or start a run of its own: name={self.config['name']}_2"
            ) from error
        return config

    def record(self, **values: Any) -> None:
        """Append one event to metrics.jsonl. Its time goes on steadily in a process whose clock is set meanwhile."""
        if not self.writes:
            return
        now = time.monotonic() + self.clock_offset_s
        line = json.dumps({"time": round(now, 3), **values}, allow_nan=False)
        with (self.directory / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @property
    def disk_full_advice(self) -> str:
        """Advice for a full disk, with the key that chooses another one."""
        return (
            "Make room and type the same command again, or train on another disk: add "
            f"run_dir=/another/disk/{self.directory.name} to it."
        )

    def metrics(self) -> list[dict[str, Any]]:
        """Read all events so far; an incomplete last line, as a killed process leaves it, is dropped."""
        return run_records.events(self.directory)

    def forget_after(self, step: int) -> None:
        """Drop events after a step: a resumed run repeats them, and each step must occur once."""
        if not self.writes:
            return
        events = [event for event in self.metrics() if event.get("step", 0) <= step]
        path = self.directory / "metrics.jsonl"
        atomic.write(path, "".join(json.dumps(event) + "\n" for event in events))

    @property
    def result(self) -> dict[str, Any] | None:
        """Result of a finished run, else None; a run that is to become longer is not finished."""
        return None if self.extension else run_records.result(self.directory)

    def finish(self, result: dict[str, Any]) -> None:
        """Write result.json, with the changes of length if there are any: from now on the run counts as finished."""
        if changes := self.extensions:
            result = result | {"extensions": changes}
        if self.writes:
            atomic.write_json(self.directory / "result.json", result, durable=True)


def without_lengths(signed: Config) -> Config:
    """Copy a signature without the lengths."""
    trainer = signed["trainer"]
    return signed | {"trainer": {key: value for key, value in trainer.items() if key not in LENGTHS}}


def require_growth(before: Config, after: Config, result: Mapping[str, Any] | None, advice: str) -> Lengths:
    """Lengths that grow from one section `trainer` to another.

    Args:
        result: content of result.json of a finished run, else None.
        advice: the end of every message, with the command for a run of its own.

    Raises StorageError for a length that shrinks, for a run that ended as broken, and for a finished run that would end
    again where it ended.
    """
    lengths = {key: (before.get(key), after.get(key)) for key in LENGTHS if before.get(key) != after.get(key)}
    for key, (old, new) in lengths.items():
        if not (isinstance(old, int) and (new is None or new > old)):
            raise StorageError(
                f"trainer.{key} was {shown(old)}, and {shown(new)} would make the run shorter: a run can only be "
                f"continued for longer. {advice}"
            )
    if result is not None and "broken" in result:
        raise StorageError(
            f"this run ended as broken at step {result['steps']}, which more steps do not mend. {advice}"
        )
    if result is not None and not lengths.keys() & (ended_by := _ended_by(before, int(result["steps"]))):
        listed = " or ".join(f"trainer.{key}={shown(before[key])}" for key in ended_by)
        raise StorageError(f"this run ended at step {result['steps']} by {listed}: give a greater value. {advice}")
    return lengths


def describe(lengths: Lengths) -> str:
    """Return the changes in words: `trainer.max_steps 500 -> 2000`."""
    return ", ".join(f"trainer.{key} {shown(old)} -> {shown(new)}" for key, (old, new) in lengths.items())


def _ended_by(trainer: Config, steps: int) -> list[str]:
    if steps >= trainer["max_steps"]:
        return ["max_steps"]
    return [key for key in ("patience", "max_sub_epochs") if trainer.get(key) is not None]


def environment() -> dict[str, Any]:
    """Versions, machine, commit and command of this process, for judging its results."""
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


@functools.cache
def commit() -> str | None:
    """Return the commit of the checkout, with `+` if it has uncommitted changes; None outside a checkout.

    It is asked for once: the code of a process stays what it was when the process began.
    """
    package = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=package,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()


def origin(vocabulary_hash: str) -> dict[str, str]:
    """Provenance stored in checkpoints, besides seed and manifest: torch, code, vocabulary."""
    return {"torch": str(torch.__version__), "code": commit() or __version__, "vocabulary": vocabulary_hash}


def own_packages(config: Config) -> dict[str, str]:
    """Trusted packages whose classes a config names, as a property of a run, `{"packages": "mypkg 0.1.0"}`; or none."""
    named = [f"{name} {version or 'without a version'}" for name, version in targets.trusted_in(config).items()]
    return {"packages": ", ".join(named)} if named else {}


def require(
    recorded: Mapping[str, Any], current: Mapping[str, Any], allowed: Collection[str], directory: Path
) -> list[str]:
    """Compare the properties of a run with those it began with; returns lines for the log about allowed changes.

    Raises StorageError listing changes that are not allowed, ConfigError if `allowed` names one that cannot be.
    """
    for name in allowed:
        if name not in KINDS or name in NEVER_ALLOWED:
            may = [kind for kind in KINDS if kind not in NEVER_ALLOWED]
            raise ConfigError(f"allow_drift: {name!r} is none of {', '.join(may)}.{suggest(name, may)}")
    changed = [name for name in KINDS if name in recorded and recorded[name] != current.get(name)]
    lines = [f"{KINDS[name]}: {_short(recorded[name])} -> {_short(current.get(name))}" for name in changed]
    refused = [name for name in changed if name not in allowed]
    if not refused:
        return [f"continuing although it changed since this run began: {line}" for line in lines]
    if set(refused) & set(NEVER_ALLOWED):
        advice = "Restore what it was, or start a run of its own under another name=..."
    else:
        advice = f"Go on all the same with allow_drift=[{','.join(refused)}], or start another run with name=..."
    listed = "\n  ".join(lines)
    raise StorageError(f"{directory}: changed since this run began (then -> now):\n  {listed}\n{advice}")


def _short(value: Any) -> str:
    text = str(value)
    return f"{text[:12]}..." if len(text) > 40 else text
