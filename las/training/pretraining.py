"""Pretraining: a training that begins with a smaller model, which grows from stage to stage (Zeyer et al. 2018).

A stage is one model with an optimiser of its own. Its config is that of the whole training with the changes of the
stage; the last stage is the whole training, unchanged. Schedule, epochs and steps continue from stage to stage.

Rules by which a model takes over parameters from that of the stage before (`transfer_parameters`):

1. Tensors correspond by name. The listener's layers are named by their position; new layers of a deeper model go below
   its top layer (`below_top`) or above it (`on_top`).
2. A tensor of the same shape is copied. In a wider listener an axis of c + k H entries has c that do not depend on its
   hidden size H, followed by k blocks of H (gates, directions, frames side by side): each block is copied to the
   beginning of the larger block, whose other entries keep their initial values (RETURNN: copy_param_mode `subset`).
3. A tensor without a counterpart, or whose shape differs in another way, keeps its initial values. Tensors that the new
   model lacks, such as a CTC head that only the first stages have, are dropped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from las.config.build import Config, checked, differences
from las.data.manifest import Utterance
from las.data.tokenizers import Tokenizer
from las.nn.model import SpeechModel
from las.runtime.errors import ConfigError, DataError, require_known

NEW_LAYERS = ("below_top", "on_top")
SECTIONS = ("model", "loss", "gradients", "weight_noise", "augment")
LAYER = re.compile(r"(listener\.(?:layers|norms)\.)(\d+)(\..+)")


@dataclass(frozen=True)
class Changes:
    """Differences between a stage and the whole training: an entry of `pretraining.stages`.

    Args:
        sub_epochs: the length of the stage.
        width: the listener's hidden size as a share of that in the whole training.
        accumulate: the number of batches of one update.
        longest_tokens: the largest number of tokens of an utterance; longer ones wait for a later stage.
        model, loss, gradients, weight_noise, augment: the changed keys of these sections of the config.
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
    """The number of sub-epochs of the training at the end of the stage; infinite for the last stage."""
    longest_tokens: int | None
    new_layers: str
    changes: list[str]
    """Lines `key: value in the whole training -> value in this stage`."""

    @property
    def is_last(self) -> bool:
        """True for the last stage, which is the whole training."""
        return self.number == self.total

    @property
    def name(self) -> str:
        """Name in the log."""
        return f"stage {self.number} of {self.total}"


def stages(config: Config) -> list[Stage]:
    """List the stages of a training, of which the last is the whole one.

    Raises ConfigError naming the key of an invalid stage.
    """
    section = config["pretraining"]
    new_layers = section["new_layers"]
    require_known("pretraining.new_layers", new_layers, NEW_LAYERS)
    if section["stages"] and "listener" not in config["model"]:
        raise ConfigError("pretraining.stages: this model has no listener that could grow: choose pretraining=none")
    listed, until, count = [], 0, len(section["stages"]) + 1
    for number, entry in enumerate(section["stages"], start=1):
        key = f"pretraining.stages[{number - 1}]"
        if not isinstance(entry, dict):
            raise ConfigError(f"{key}={entry!r} should be a mapping, such as {{sub_epochs: 5, width: 0.5}}")
        changes: Changes = checked(Changes, entry, key)()
        if changes.sub_epochs < 1 or not 0.0 < changes.width <= 1.0:
            raise ConfigError(f"{key}: sub_epochs must be at least 1, width above 0 and at most 1")
        until += changes.sub_epochs
        stage_config = _changed(config, changes)
        changed = [line for line in differences(_compared(config), _compared(stage_config)) if "_partial_" not in line]
        changed += [] if changes.longest_tokens is None else [f"at most {changes.longest_tokens} tokens"]
        listed.append(Stage(number, count, stage_config, until, changes.longest_tokens, new_layers, changed))
    listed.append(Stage(count, count, config, inf, None, new_layers, []))
    for smaller, larger in pairwise(listed):
        before, after = (each.config["model"]["listener"] for each in (smaller, larger))
        if any(before[key] > after[key] for key in ("num_layers", "hidden_size")):
            raise ConfigError(
                f"pretraining: {larger.name} has a smaller listener than {smaller.name}: it can only grow"
            )
    return listed


def _changed(config: Config, changes: Changes) -> Config:
    """Return the config of a stage."""
    stage_config = config | {key: _merged(config[key], getattr(changes, key)) for key in SECTIONS}
    listener = stage_config["model"]["listener"]
    hidden_size = max(1, round(changes.width * listener["hidden_size"]))
    stage_config["model"] = stage_config["model"] | {"listener": listener | {"hidden_size": hidden_size}}
    # No early stopping within a stage: it has no more validations than this patience.
    stage_config["trainer"] = stage_config["trainer"] | {"patience": changes.sub_epochs}
    if changes.accumulate is not None:
        stage_config["trainer"]["accumulate"] = changes.accumulate
    return stage_config


def _merged(values: Any, changes: Any) -> Any:
    if not (isinstance(values, dict) and isinstance(changes, Mapping)):
        return changes
    return values | {key: _merged(values.get(key), change) for key, change in changes.items()}


def _compared(config: Config) -> Config:
    """Return the part of a config that a stage may change."""
    compared = {key: config[key] for key in SECTIONS}
    return compared | {"trainer": {"accumulate": config["trainer"]["accumulate"]}}


def current_stage(stages: Sequence[Stage], sub_epochs: int) -> Stage:
    """Find the stage that runs after `sub_epochs` sub-epochs."""
    return next(stage for stage in stages if sub_epochs < stage.until)


def utterances_of_stage(utterances: Sequence[Utterance], tokens: Tokenizer, stage: Stage) -> list[Utterance]:
    """Choose the training utterances of a stage. Raises DataError when there is none."""
    longest = stage.longest_tokens
    if longest is None:
        return list(utterances)
    chosen = [utterance for utterance in utterances if len(tokens.encode(utterance.text)) <= longest]
    if not chosen:
        raise DataError(f"pretraining.stages[{stage.number - 1}].longest_tokens={longest}: every utterance is longer")
    return chosen


class ParameterTransfer(NamedTuple):
    """Names of tensors: copied whole, copied into larger ones, new in the model; dropped, which the model lacks."""

    copied: list[str]
    enlarged: list[str]
    new: list[str]
    dropped: list[str]

    def __str__(self) -> str:
        line = f"{len(self.copied) + len(self.enlarged)} tensors"
        if self.enlarged:
            line += f", {len(self.enlarged)} of them into larger ones"
        lists = (("new", self.new), ("left behind", self.dropped))
        return line + "".join(f"; {label}: {', '.join(self._short(names))}" for label, names in lists if names)

    def _short(self, names: Sequence[str]) -> list[str]:
        """Shorten the names of a module's tensors to the module's, `listener.layers.3`, unless some were copied."""
        short = []
        for name in names:
            module = ".".join(name.split(".")[: 3 if LAYER.fullmatch(name) else 2])
            partly = any(transferred.startswith(f"{module}.") for transferred in (*self.copied, *self.enlarged))
            short.append(name if partly else module)
        return list(dict.fromkeys(short))


def transfer_parameters(
    source_state: Mapping[str, Tensor], model: SpeechModel, hidden_size: int, new_layers: str
) -> ParameterTransfer:
    """Fill a new model from the tensors of a smaller one, by the rules above.

    Args:
        source_state: the smaller model's `state_dict`.
        model: changed in place; its listener has at least as many and as large layers.
        hidden_size: the hidden size of the smaller model's listener.
        new_layers: the position of the new layers, one of `NEW_LAYERS`.
    """
    target_state = model.state_dict()
    source = {
        _name_in_new_model(name, source_state, target_state, new_layers): tensor
        for name, tensor in source_state.items()
    }
    sizes = hidden_size, model.listener.hidden_size
    transfer = ParameterTransfer([], [], [], sorted(source.keys() - target_state.keys()))
    with torch.no_grad():
        for name, tensor in target_state.items():
            index = _index(source[name].shape, tensor.shape, sizes) if name in source else None
            if index is None:
                transfer.new.append(name)
            elif source[name].shape == tensor.shape:
                transfer.copied.append(name)
                tensor.copy_(source[name])
            else:
                transfer.enlarged.append(name)
                tensor[index] = source[name].to(tensor.device)
    return transfer


def _name_in_new_model(
    name: str, source_state: Mapping[str, Tensor], target_state: Mapping[str, Tensor], new_layers: str
) -> str:
    """Return the name in the new model of a tensor of the old one: only the top layer moves, unless it is the first."""
    layer = LAYER.fullmatch(name)
    top = _num_layers(source_state) - 1
    if layer is None or new_layers == "on_top" or int(layer[2]) != top or top == 0:
        return name
    return f"{layer[1]}{_num_layers(target_state) - 1}{layer[3]}"


def _num_layers(tensors: Mapping[str, Tensor]) -> int:
    return 1 + max(int(layer[2]) for name in tensors if (layer := LAYER.fullmatch(name)))


def _index(source_shape: torch.Size, target_shape: torch.Size, sizes: tuple[int, int]) -> tuple[Tensor, ...] | None:
    """Return the index of the smaller tensor's entries in the larger one; None if another size than hidden grew."""
    if len(source_shape) != len(target_shape):
        return None
    axes = [_axis_index(old, new, *sizes) for old, new in zip(source_shape, target_shape, strict=True)]
    indices = [axis for axis in axes if axis is not None]
    shapes = [[-1 if other == axis else 1 for other in range(len(axes))] for axis in range(len(axes))]
    return tuple(map(torch.reshape, indices, shapes)) if len(indices) == len(axes) else None


def _axis_index(source_size: int, target_size: int, small: int, large: int) -> Tensor | None:
    """Return the positions of a smaller axis, of c + k `small` entries, on a larger one (rule 2 above)."""
    if source_size == target_size:
        return torch.arange(source_size)
    num_blocks, remainder = divmod(target_size - source_size, large - small) if large > small else (0, 1)
    constant = source_size - num_blocks * small
    if remainder or num_blocks < 1 or constant < 0:
        return None
    starts = constant + torch.arange(num_blocks).unsqueeze(1) * large
    return torch.cat([torch.arange(constant), (starts + torch.arange(small)).flatten()])
