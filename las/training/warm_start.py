"""Warm start: a new training that begins with the parameters of a trained model, the section `warm_start`.

Tensors correspond by name, and rows of the embedding, the output layer and the CTC head by symbol: a symbol that both
vocabularies have takes its row along, wherever it stands; the sentence boundary (CTC: the blank) is one of them.
Symbols that only this training has keep their initial values. The output layer of an acoustic model is taken where both
predict the same states of phones. Everything else must have the same names and shapes.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from las.config.build import Config, check_value, checked, differences, require
from las.data import tokenizers
from las.data.tokenizers import Tokenizer
from las.hmm import lexicon
from las.hmm.topology import Topology
from las.nn.features import FITTED
from las.nn.model import Trainable
from las.runtime import progress
from las.runtime.errors import ArgumentError, ConfigError, StorageError, first_of, require_known, suggest
from las.storage import atomic, checkpoint
from las.storage.checkpoint import Checkpoint
from las.storage.run_directory import RunDirectory

PARTS = {
    "listener": "listener.",
    "embedding": "speller.embedding.",
    "cells": "speller.cells.",
    "attention": "speller.attention.",
    "readout": "speller.readout.",
    "output": "speller.output.",
    "ctc": "ctc.",
    "prediction": "prediction.",
    "joint": "joint.",
    "states": "output.",
}
"""Parts of a model, with the beginning of the names of their tensors."""
SPELLER = ("embedding", "cells", "attention", "readout", "output", "prediction", "joint", "states")
"""Parts that `speller` stands for."""
BY_SYMBOL = {
    *("speller.embedding.weight", "speller.output.weight", "speller.output.bias"),
    *("ctc.output.weight", "ctc.output.bias"),
    *("prediction.embedding.weight", "joint.output.weight", "joint.output.bias"),
}
"""Tensors with a row for each symbol."""
STATISTICS = ("features.mean", "features.deviation")
COUNTED = ("log_priors", "bigram")
"""What acoustic models count on the training utterances."""
NUM_LISTED = 4
"""Tensors of a part that an error lists, and half of the settings that differ."""
SETTINGS_LISTED = 10
"""Settings that differ, in a log at most."""


class CarriedTensor(NamedTuple):
    """A tensor of the new model and where its initial values come from."""

    name: str
    shape: list[int]
    origin: str
    """`carried`, `resized` (its rows by symbol), `drawn anew`, or `fitted` to the training utterances."""
    frozen: bool


class Transfer(NamedTuple):
    """Tensors of a warm-started model, tensors of the source that it lacks, and what became of the symbols."""

    source: dict[str, Any]
    """The source: its path, its step, and the config of its model."""
    tensors: list[CarriedTensor]
    left_behind: list[str]
    common: list[str]
    """Symbols of both vocabularies, without the boundary."""
    new: list[str]
    dropped: list[str]
    """Symbols that only the source has."""


class WarmStart:
    """Beginning of a training with the parameters of a trained model; without a `source`, the usual beginning.

    Args:
        source: a run folder (its best checkpoint), a checkpoint or a bundle: `warm_start.from`.
        parts: names of `PARTS`, or `speller` for all of it; the others are drawn anew.
        statistics: the mean and deviation that features are normalised with: of the `source`, or fitted to the training
            utterances of this `corpus`; None for those that the listener was trained with, if it is carried.
        freeze: parts that keep their values.
        thaw_step: the first update that trains them as well; None: they stay frozen.

    Raises ArgumentError naming the key.
    """

    def __init__(
        self,
        source: str | None = None,
        *,
        parts: Sequence[str] = ("listener", "speller", "ctc"),
        statistics: str | None = None,
        freeze: Sequence[str] = (),
        thaw_step: int | None = None,
    ) -> None:
        self.source, self.parts, self.frozen_parts = source, _parts("parts", parts), _parts("freeze", freeze)
        require("thaw_step", thaw_step, 2)
        if statistics is not None:
            require_known("statistics", statistics, ("source", "corpus"))
        if source is None and (freeze or thaw_step or statistics):
            raise ArgumentError("from=null: freeze, thaw_step and statistics need a trained model: warm_start.from=...")
        if missing := [part for part in self.frozen_parts if part not in self.parts]:
            raise ArgumentError(
                f"freeze={list(freeze)}: {', '.join(missing)} would be frozen at random values: add it to parts as well"
            )
        if thaw_step is not None and not freeze:
            raise ArgumentError(f"thaw_step={thaw_step}: there is nothing to thaw: name parts in warm_start.freeze")
        carried = source is not None and "listener" in self.parts
        self.statistics = statistics or ("source" if carried else "corpus")
        self.thaw_step = thaw_step
        self._frozen_names = tuple(PARTS[part] for part in self.frozen_parts)
        self._saved: Checkpoint | None = None

    def check(self, model: Trainable, section: Config, saved: Checkpoint | None = None) -> None:
        """Read the source, and raise ConfigError unless the chosen parts fit the model; symbols may differ.

        `section` is the model's config; `saved` stands for a source that is yet to be trained. Raises StorageError when
        the source cannot be read.
        """
        if self.source is None:
            return
        saved, own = saved or self._read(), model.state_dict()
        # States are compared by what they are of, which targets tell (`apply`).
        problems = {part: [] if part == "states" else _misfits(PARTS[part], saved.model, own) for part in self.parts}
        fitting = [part for part in self.parts if not problems[part] and _present(part, saved.model, own)]
        if any(problems.values()):
            raise ConfigError(self._architecture_error(problems, fitting, saved, section))
        if not fitting:
            raise ConfigError(f"warm_start.from={self.source}: it has none of {', '.join(self.parts)} for this model")
        if random := [part for part in self.frozen_parts if part not in fitting]:
            raise ConfigError(
                f"warm_start.freeze: {self.source} has no {', '.join(random)}, which would be frozen at random values"
            )
        if self._carries_statistics(model):
            self._require_statistics(saved, own)

    def apply(self, model: Trainable, tokens: Tokenizer, recognition: Mapping[str, Any]) -> Transfer:
        """Fill a model, which has its initial values, from the source; changes it in place.

        `recognition` is what a recogniser needs besides tokens (`TrainingTargets.state`). With `statistics` of the
        corpus the caller fits those of the features afterwards. Raises ConfigError for frozen states of another model.
        """
        saved = self._read()
        symbols = tokenizers.from_state(saved.state["corpus"]["tokens"], saved.config).symbols
        rows = {symbol: row for row, symbol in enumerate(symbols)}
        pairs = [(here, rows[symbol]) for here, symbol in enumerate(tokens.symbols) if symbol in rows]
        tensors, own = [], model.state_dict()
        same_states = _states(saved.state["corpus"], symbols) == _states(recognition, tokens.symbols)
        same_states = same_states and not _misfits(PARTS["states"], saved.model, own)
        if not same_states and ("states" in self.frozen_parts or self.parts == ["states"]):
            raise ConfigError(f"warm_start: {self.source} has other states of phones: leave states out of its parts")
        chosen = tuple(PARTS[part] for part in self.parts if part != "states" or same_states)
        if self._carries_statistics(model):
            chosen += STATISTICS
        for name, tensor in own.items():
            if name.startswith("features.") and (name not in STATISTICS or not _has_statistics(model)):
                continue  # constants, such as filters, that the config determines
            origin = "fitted" if name in (*STATISTICS, *COUNTED) else "drawn anew"
            if name.startswith(chosen) and name in saved.model:
                origin = "resized" if name in BY_SYMBOL and symbols != tokens.symbols else "carried"
                _copy(saved.model[name], tensor, pairs if origin == "resized" else None)
            tensors.append(CarriedTensor(name, list(tensor.shape), origin, name.startswith(self._frozen_names)))
        taken = (*chosen, "features.", *COUNTED)
        left = sorted(name for name in saved.model if name not in own or not name.startswith(taken))
        self._saved = None  # not needed again: a resumed training reads its own checkpoints
        known = set(symbols[1:]) & set(tokens.symbols[1:])
        source = {"path": str(saved.directory), "step": saved.state.get("step"), "model": saved.config["model"]}
        return Transfer(
            source,
            tensors,
            left,
            [symbol for symbol in tokens.symbols[1:] if symbol in known],
            [symbol for symbol in tokens.symbols[1:] if symbol not in known],
            [symbol for symbol in symbols[1:] if symbol not in known],
        )

    def set_trainable(self, model: nn.Module, step: int, log: Path | None = None) -> None:
        """Freeze or thaw the parameters for update number `step`, from 1; thawing is printed and logged.

        Nothing but `step` matters, so a resumed training does the same.
        """
        if not self.frozen_parts:
            return
        if step == self.thaw_step:
            progress.say(f"step {step}: {', '.join(self.frozen_parts)} thawed: all parameters are trained", log)
        trainable = self.thaw_step is not None and step >= self.thaw_step
        for name, parameter in model.named_parameters():
            if name.startswith(self._frozen_names):
                parameter.requires_grad_(trainable)

    def _carries_statistics(self, model: Trainable) -> bool:
        return self.statistics == "source" and _has_statistics(model)

    def _require_statistics(self, saved: Checkpoint, own: dict[str, Tensor]) -> None:
        """Raise ConfigError unless the source has statistics of features like those of the model."""
        mode = str(saved.config["model"]["features"].get("normalisation", "global"))
        shapes = [
            tensors["features.mean"].shape if "features.mean" in tensors else None for tensors in (saved.model, own)
        ]
        if mode not in FITTED or shapes[0] != shapes[1]:
            reason = f"normalisation={mode}" if mode not in FITTED else "they are of other features"
            raise ConfigError(
                f"warm_start.from={self.source}: its statistics of features cannot be carried ({reason}): fit new ones "
                "with warm_start.statistics=corpus"
            )

    def _read(self) -> Checkpoint:
        assert self.source is not None
        if self._saved is None:
            path = Path(self.source)
            if not path.exists():
                raise StorageError(
                    f"warm_start.from={path}: there is no such file or folder: give a run folder, one of its "
                    "checkpoints, or a bundle of las export"
                )
            self._saved, warnings = checkpoint.find(path)
            for warning in warnings:
                progress.say(warning)
            try:
                self._saved.config["model"]["features"], self._saved.state["corpus"]["tokens"]
            except (KeyError, TypeError) as error:
                raise StorageError(f"warm_start.from={path}: this is no trained recogniser ({error})") from error
        return self._saved

    def _architecture_error(
        self, problems: dict[str, list[str]], fitting: list[str], saved: Checkpoint, section: Config
    ) -> str:
        """Message with the tensors that do not fit, the settings that differ, and how to leave parts out."""
        lines = [f"warm_start.from={self.source} is a model of another architecture (there -> here):"]
        for part, listed in problems.items():
            lines += [f"  {line}" for line in listed[:NUM_LISTED]]
            if len(listed) > NUM_LISTED:
                lines.append(f"  ... and {len(listed) - NUM_LISTED} more tensors of the {part}")
        settings = [f"  model.{line}" for line in differences(saved.config["model"], section)]
        if settings:
            lines += ["settings that differ:", *settings[: 2 * NUM_LISTED]]
        leave_out = f"Take only parts that fit: warm_start.parts=[{','.join(fitting)}]" if fitting else "No part fits"
        return "\n".join([*lines, f"{leave_out}; or train a model with the settings of the source"])


def from_config(config: Config) -> WarmStart:
    """Build the warm start of a training's config; configs of earlier releases have none."""
    section = dict(config.get("warm_start", {}))
    source = section.pop("from", None)
    check_value("warm_start.from", source, str | None)
    if source is not None and "listener" not in config["model"]:
        raise ConfigError("warm_start.from: only recognisers begin with the parameters of another model")
    if source is not None and config["pretraining"]["stages"]:
        raise ConfigError("warm_start.from: a model that grows in stages begins with new parameters: pretraining=none")
    warm_start: WarmStart = checked(WarmStart, section, "warm_start", source)()
    return warm_start


def _has_statistics(model: Trainable) -> bool:
    """Return True if the features are normalised by statistics that are fitted to a corpus."""
    return model.features is not None and model.features.normalisation in FITTED


def _parts(key: str, names: Sequence[str]) -> list[str]:
    """Names of PARTS in their order, `speller` written out."""
    for name in names:
        if name not in PARTS and name != "speller":
            raise ArgumentError(f"{key}: there is no part {name!r}.{suggest(name, (*PARTS, 'speller'))}")
    return [part for part in PARTS if part in names or ("speller" in names and part in SPELLER)]


def _states(recognition: Mapping[str, Any], symbols: Sequence[str]) -> str:
    """Return the hash of the states of phones that a recogniser of these symbols predicts, if it predicts any."""
    if "tying" in recognition:
        return str(recognition["tying"]["content_hash"])
    phones = lexicon.from_state(recognition["lexicon"]).phones if "lexicon" in recognition else symbols[1:]
    return Topology(phones).content_hash


def _present(part: str, source: dict[str, Tensor], own: dict[str, Tensor]) -> bool:
    return all(any(name.startswith(PARTS[part]) for name in tensors) for tensors in (source, own))


def _misfits(prefix: str, source: dict[str, Tensor], own: dict[str, Tensor]) -> list[str]:
    """Lines about the tensors of a part that do not fit; none for a part that one of the models lacks as a whole."""
    there, here = (
        {name: list(tensors[name].shape) for name in tensors if name.startswith(prefix)} for tensors in (source, own)
    )
    if not there or not here:
        return []
    lines = []
    for name in here | there:
        old, new = there.get(name), here.get(name)
        same = old == new or (name in BY_SYMBOL and old is not None and new is not None and old[1:] == new[1:])
        if not same:
            lines.append(f"{name}: {'(absent)' if old is None else old} -> {'(absent)' if new is None else new}")
    return lines


@torch.no_grad()
def _copy(source: Tensor, target: Tensor, pairs: Sequence[tuple[int, int]] | None) -> None:
    """Copy a tensor, or its rows by pairs of a row here and a row there."""
    if pairs is None:
        target.copy_(source)
    else:
        here, there = (torch.tensor(rows) for rows in zip(*pairs, strict=True))
        target[here] = source[there].to(target)


def show(warm_start: WarmStart, transfer: Transfer, run: RunDirectory) -> None:
    """Print and log the table and lines about symbols and tensors that were left behind; write `warm_start.json`."""
    log, origins = run.directory / "log.txt", Counter(tensor.origin for tensor in transfer.tensors)
    counts = ", ".join(f"{count} tensors {origin}" for origin, count in origins.items())
    frozen = sum(tensor.frozen for tensor in transfer.tensors)
    counts += f"; {frozen} of them frozen" if frozen else ""
    progress.say(f"warm start from {warm_start.source}: {counts}", log)
    table = rows(transfer, warm_start.thaw_step)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        progress.say(f"  {'  '.join(cells)}".rstrip(), log)
    for line in remarks(transfer, warm_start, run.config["model"]):
        progress.say(line, log)
    if run.writes:
        plain = transfer._asdict() | {"tensors": [each._asdict() for each in transfer.tensors]}
        atomic.write_json(run.directory / "warm_start.json", plain, durable=True)


def rows(transfer: Transfer, thaw_step: int | None) -> list[tuple[str, str, str, str]]:
    """Rows of the table, its heading first: tensors of a module, number of values, initial values, training."""

    def key(tensor: CarriedTensor) -> tuple[str, str, bool]:
        return _split(tensor.name)[0], tensor.origin, tensor.frozen

    listed = [("tensors", "values", "initial values", "trained")]
    for (module, origin, frozen), group in groupby(transfer.tensors, key):
        tensors = list(group)
        names = ", ".join(dict.fromkeys(_split(tensor.name)[1].rpartition(".")[2] for tensor in tensors))
        values = sum(math.prod(tensor.shape) for tensor in tensors)
        how = origin if origin != "resized" else f"{len(transfer.common) + 1} of {tensors[0].shape[0]} rows by symbol"
        trained = "yes" if not frozen else "frozen" if thaw_step is None else f"from step {thaw_step}"
        if origin == "fitted" or module == "features":
            trained = "no, statistics"
        count = f" ({len(tensors)} tensors)" if len(tensors) > 1 else ""
        listed.append((f"{module}: {names}{count}" if module else names, f"{values:,}", how, trained))
    return listed


def remarks(transfer: Transfer, warm_start: WarmStart, section: Config) -> list[str]:
    """Lines about symbols where the vocabularies differ, tensors of the source that were not taken, and settings of the
    model's `section` that differ from the source's: a tensor may fit and mean something else.
    """
    lines = []
    if transfer.new or transfer.dropped:
        line = f"symbols: {len(transfer.common)} of {len(transfer.common) + len(transfer.new)} are known to the source"
        line += f", new: {first_of([*map(repr, transfer.new)], 12)}" if transfer.new else ""
        left = first_of([*map(repr, transfer.dropped)], 12)
        lines.append(f"{line}; its others are left behind: {left}" if left else line)
        if any(tensor.frozen and tensor.origin == "resized" for tensor in transfer.tensors) and transfer.new:
            until = "" if warm_start.thaw_step is None else f" until step {warm_start.thaw_step}"
            lines.append(f"frozen with the initial values of new symbols: they are not learned{until}")
    if transfer.left_behind:
        modules = dict.fromkeys(_split(name)[0] for name in transfer.left_behind)
        lines.append(f"left behind in the source: {', '.join(modules)}")
    if differing := differences(transfer.source["model"], section):
        listed = first_of(differing, SETTINGS_LISTED)
        lines.append(f"settings of the model that differ (source -> here): {listed}")
    return lines


def _split(name: str) -> tuple[str, str]:
    """Return the module and the rest of a tensor's name; a parameter of its own stands for itself."""
    parts = name.split(".")
    size = 3 if len(parts) > 3 and parts[2].isdecimal() else min(2, len(parts) - 1)
    return ".".join(parts[:size]), ".".join(parts[size:])
