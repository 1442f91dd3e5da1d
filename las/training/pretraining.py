"""Pretraining: a training that begins with a smaller model, which grows from stage to stage (Zeyer et al. 2018).

A stage is one model with an optimiser of its own. It is trained with the config of the whole training but for what the
stage changes; the last stage is the whole training as it is. Schedule, epochs and steps go on over all of them.

The parameters that a model takes over from that of the stage before (`transfer_parameters`):

1. Tensors are those of the same name. The listener's layers are called by their place, and a model that has more of
   them takes the new ones in below its top layer (`below_top`) or above it (`on_top`).
2. Of a tensor of the same shape all is copied. Where the listener is wider, an axis of c + k H entries has c that do
   not depend on its hidden size H, and then k parts of H (gates, directions, frames side by side): each part is copied
   to the beginning of its own, and the rest keeps what the wider model drew (RETURNN: copy_param_mode `subset`).
3. What has no counterpart, or one whose shape differs in another way, begins as in a new model. What the new model
   lacks, such as a CTC head that only the first stages have, is left behind.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from las.data.manifest import Utterance
from las.data.tokenizers import Tokenizer
from las.nn.model import ListenAttendSpell
from las.runtime.config import Config, checked, differences
from las.runtime.errors import ConfigError, DataError, suggest

NEW_LAYERS = ("below_top", "on_top")
SECTIONS = ("model", "loss", "gradients", "weight_noise", "augment")
LAYER = re.compile(r"(listener\.(?:layers|norms)\.)(\d+)(\..+)")


@dataclass(frozen=True)
class Changes:
    """Differences between a stage and the whole training: an entry of `pretraining.stages`.

    sub_epochs: its length. width: the listener's hidden size as a share of that in the whole training. accumulate:
    batches of one update. longest_tokens: of an utterance; longer ones wait for a later stage. The others are sections
    of the config of which a part is replaced.
    """

    sub_epochs: int
    width: float = 1.0
    accumulate: int | None = None
    longest_tokens: int | None = None
    model: dict = field(default_factory=dict)
    loss: dict = field(default_factory=dict)
    gradients: dict = field(default_factory=dict)
    weight_noise: dict = field(default_factory=dict)
    augment: dict = field(default_factory=dict)


class Stage(NamedTuple):
    """One part of a training, with a model of its own."""

    number: int
    """Counted from 1."""
    total: int
    config: Config
    until: float
    """Sub-epochs of the training that are over at its end; infinite for the last stage."""
    longest_tokens: int | None
    new_layers: str
    changes: list[str]
    """Lines `key: in the whole training -> here`."""

    @property
    def is_last(self) -> bool:
        """True for the whole training, as its config says."""
        return self.number == self.total

    @property
    def name(self) -> str:
        """Name in the log."""
        return f"stage {self.number} of {self.total}"

    @property
    def ending(self) -> str:
        """End of the stage in the log; empty for the last one."""
        return "" if self.is_last else f", to the end of sub-epoch {self.until}"


def stages(config: Config) -> list[Stage]:
    """List the stages of a training, of which the last is the whole one.

    Raises ConfigError naming the key of a stage that cannot be.
    """
    section = config["pretraining"]
    new_layers = section["new_layers"]
    if new_layers not in NEW_LAYERS:
        raise ConfigError(
            f"pretraining.new_layers={new_layers}: unknown value, choose {' or '.join(NEW_LAYERS)}."
            f"{suggest(new_layers, NEW_LAYERS)}"
        )
    if section["stages"] and "listener" not in config["model"]:
        raise ConfigError("pretraining.stages: this model has no listener that could grow: choose pretraining=none")
    listed, until, count = [], 0, len(section["stages"]) + 1
    for number, entry in enumerate(section["stages"], start=1):
        where = f"pretraining.stages[{number - 1}]"
        if not isinstance(entry, dict):
            raise ConfigError(f"{where}={entry!r} should be a mapping, such as {{sub_epochs: 5, width: 0.5}}")
        changes: Changes = checked(Changes, entry, where)()
        if changes.sub_epochs < 1 or not 0.0 < changes.width <= 1.0:
            raise ConfigError(f"{where}: sub_epochs must be at least 1, width above 0 and at most 1")
        until += changes.sub_epochs
        own = _changed(config, changes)
        changed = [line for line in differences(_compared(config), _compared(own)) if "_partial_" not in line]
        changed += [] if changes.longest_tokens is None else [f"at most {changes.longest_tokens} tokens"]
        listed.append(Stage(number, count, own, until, changes.longest_tokens, new_layers, changed))
    listed.append(Stage(count, count, config, inf, None, new_layers, []))
    for before, after in pairwise(listed):
        if any(_listener_size(before, key) > _listener_size(after, key) for key in ("num_layers", "hidden_size")):
            raise ConfigError(f"pretraining: {after.name} has a smaller listener than {before.name}: it can only grow")
    return listed


def _changed(config: Config, changes: Changes) -> Config:
    """The config of a stage."""
    own = config | {key: _merged(config[key], getattr(changes, key)) for key in SECTIONS}
    listener = own["model"]["listener"]
    hidden_size = max(1, round(changes.width * listener["hidden_size"]))
    own["model"] = own["model"] | {"listener": listener | {"hidden_size": hidden_size}}
    # A stage is as long as it is: its last validation is never so many after its best.
    own["trainer"] = own["trainer"] | {"patience": changes.sub_epochs}
    if changes.accumulate is not None:
        own["trainer"]["accumulate"] = changes.accumulate
    return own


def _merged(values: Any, changes: Any) -> Any:
    if not (isinstance(values, dict) and isinstance(changes, Mapping)):
        return changes
    return values | {key: _merged(values.get(key), change) for key, change in changes.items()}


def _compared(config: Config) -> Config:
    """The part of a config that a stage may change."""
    compared = {key: config[key] for key in SECTIONS}
    return compared | {"trainer": {"accumulate": config["trainer"]["accumulate"]}}


def _listener_size(stage: Stage, key: str) -> int:
    return int(stage.config["model"]["listener"][key])


def current_stage(stages: Sequence[Stage], sub_epochs: int) -> Stage:
    """Find the stage that goes on when `sub_epochs` are over."""
    return next(stage for stage in stages if sub_epochs < stage.until)


def utterances_of_stage(utterances: Sequence[Utterance], tokens: Tokenizer, stage: Stage) -> list[Utterance]:
    """Choose the training utterances of a stage. Raises DataError when there is none."""
    longest = stage.longest_tokens
    if longest is None:
        return list(utterances)
    kept = [each for each in utterances if len(tokens.encode(each.text)) <= longest]
    if not kept:
        raise DataError(f"pretraining.stages[{stage.number - 1}].longest_tokens={longest}: every utterance is longer")
    return kept


class ParameterTransfer(NamedTuple):
    """Names of the tensors of a model: copied whole, copied into larger ones, new; and the old ones left behind."""

    copied: list[str]
    enlarged: list[str]
    new: list[str]
    dropped: list[str]

    def __str__(self) -> str:
        taken = f"{len(self.copied) + len(self.enlarged)} tensors"
        enlarged = f", {len(self.enlarged)} of them into larger ones" if self.enlarged else ""
        lists = (("new", self.new), ("left behind", self.dropped))
        return (
            taken + enlarged + "".join(f"; {what}: {', '.join(self._short(names))}" for what, names in lists if names)
        )

    def _short(self, names: Sequence[str]) -> list[str]:
        """`listener.layers.3` in place of all its tensors, unless others of it were taken over."""
        short = []
        for name in names:
            module = ".".join(name.split(".")[: 3 if LAYER.fullmatch(name) else 2])
            partly = any(taken.startswith(f"{module}.") for taken in (*self.copied, *self.enlarged))
            short.append(name if partly else module)
        return list(dict.fromkeys(short))


def transfer_parameters(
    before: Mapping[str, Tensor], model: ListenAttendSpell, hidden_size: int, new_layers: str
) -> ParameterTransfer:
    """Fill a new model from the tensors of a smaller one, by the rules above.

    Args:
        before: the smaller model's `state_dict`, and `hidden_size` its listener's.
        model: changed in place; it has a `listener` of at least as many and as large layers.
        new_layers: where it has the new ones: one of `NEW_LAYERS`.
    """
    own = model.state_dict()
    source = {_name_in_new_model(name, before, own, new_layers): tensor for name, tensor in before.items()}
    sizes = hidden_size, model.listener.hidden_size
    transfer = ParameterTransfer([], [], [], sorted(source.keys() - own.keys()))
    with torch.no_grad():
        for name, tensor in own.items():
            places = _index(source[name].shape, tensor.shape, sizes) if name in source else None
            if places is None:
                transfer.new.append(name)
            elif source[name].shape == tensor.shape:
                transfer.copied.append(name)
                tensor.copy_(source[name])
            else:
                transfer.enlarged.append(name)
                tensor[places] = source[name].to(tensor.device)
    return transfer


def _name_in_new_model(name: str, before: Mapping[str, Tensor], own: Mapping[str, Tensor], new_layers: str) -> str:
    """The name in the new model of a tensor of the old one: only the top layer may have moved, and not the first."""
    layer = LAYER.fullmatch(name)
    top = _num_layers(before) - 1
    if layer is None or new_layers == "on_top" or int(layer[2]) != top or top == 0:
        return name
    return f"{layer[1]}{_num_layers(own) - 1}{layer[3]}"


def _num_layers(tensors: Mapping[str, Tensor]) -> int:
    return 1 + max(int(layer[2]) for name in tensors if (layer := LAYER.fullmatch(name)))


def _index(before: torch.Size, after: torch.Size, sizes: tuple[int, int]) -> tuple[Tensor, ...] | None:
    """The index in the larger tensor of the entries of the smaller; None if another size than the hidden one grew."""
    if len(before) != len(after):
        return None
    axes = [_axis_index(old, new, *sizes) for old, new in zip(before, after, strict=True)]
    known = [axis for axis in axes if axis is not None]
    shapes = [[-1 if other == axis else 1 for other in range(len(axes))] for axis in range(len(axes))]
    return tuple(map(torch.reshape, known, shapes)) if len(known) == len(axes) else None


def _axis_index(before: int, after: int, small: int, large: int) -> Tensor | None:
    """The positions of a smaller axis, of c + k `small` entries, on a larger one (rule 2 above)."""
    if before == after:
        return torch.arange(before)
    parts, rest = divmod(after - before, large - small) if large > small else (0, 1)
    constant = before - parts * small
    if rest or parts < 1 or constant < 0:
        return None
    first = constant + torch.arange(parts).unsqueeze(1) * large
    return torch.cat([torch.arange(constant), (first + torch.arange(small)).flatten()])
