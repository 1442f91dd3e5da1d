"""Bundles: a trained model in one safetensors file, with its config and state in the header.

The header's metadata are strings: `config` (model and search) and `state` (tokens, sample rate, metric) as JSON, and
the `sha256` of both and of all tensors. It holds no paths of the training machine, and nothing pickled. Matrices may
be stored in bf16, or in 8 bits: the row w as round(w / s) with s = max |w| / 127 beside them.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from las.config.public import with_public_names
from las.runtime.errors import StorageError, require_known
from las.storage import atomic, bounded

SCHEMA = "1"
WEIGHTS = ("fp32", "bf16", "int8")
SCALES = ":scales"
"""Ending of the name of the scales of a matrix in 8 bits."""
KEPT_CONFIG, KEPT_STATE = ("name", "seed", "model", "search"), ("step", "corpus", "packages")


class Bundle(NamedTuple):
    """Content of a verified bundle: parameters and buffers by name, state, config."""

    model: dict[str, Tensor]
    state: dict[str, Any]
    config: dict[str, Any]


def write(
    path: Path, model: dict[str, Tensor], state: dict[str, Any], config: dict[str, Any], weights: str = "fp32"
) -> None:
    """Write a model with the part of a checkpoint's state and config that is needed to use it.

    `weights` is the type that matrices are stored in, of WEIGHTS. Raises ArgumentError for another one, and
    StorageError if the file cannot be written; an existing file is intact then.
    """
    state = state.get("origin", {}) | state  # of what a checkpoint came from, the trusted packages are kept
    header = {
        "config": _json({key: config[key] for key in KEPT_CONFIG if key in config}),
        "state": _json({key: state[key] for key in KEPT_STATE if key in state}),
    }
    require_known("weights", weights, WEIGHTS)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _reduced(model, weights).items()}
    metadata = {"schema": SCHEMA, **header, "sha256": _sha256(tensors, header)}
    try:
        atomic.write(path, safetensors.torch.save(tensors, metadata))
    except OSError as error:
        raise StorageError(f"{path}: the bundle could not be written ({error.strerror or error})") from error


def read(path: Path) -> Bundle:
    """Read and verify a bundle. Raises StorageError for a file that is not a bundle or is damaged."""
    try:
        bounded.size(path, bounded.TENSORS)
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
        if metadata.get("schema") != SCHEMA:
            raise StorageError(
                f"{path}: these tensors are not a bundle that this version of las can read: make one with "
                f"las export checkpoint=... output={path.name}"
            )
        header = {key: metadata[key] for key in ("config", "state")}
        if _sha256(tensors, header) != metadata["sha256"]:
            raise StorageError(f"{path}: damaged: its content is not what was written. Copy it again")
        state, own_config = (bounded.parse(header[key]) for key in ("state", "config"))
        return Bundle(_whole(tensors), state, with_public_names(own_config))
    except (OSError, ValueError, KeyError, RuntimeError, safetensors.SafetensorError) as error:
        raise StorageError(
            f"{path}: not a bundle, or a damaged one ({bounded.reason(error)}). Copy it again"
        ) from error


def _reduced(model: dict[str, Tensor], weights: str) -> dict[str, Tensor]:
    """Tensors as they are stored: those of one dimension as they are, matrices in the type of `weights`."""
    reduced = dict(model)
    for name, tensor in model.items():
        if weights == "fp32" or tensor.dim() < 2 or not tensor.is_floating_point():
            continue
        if weights == "bf16":
            reduced[name] = tensor.bfloat16()
            continue
        rows = tensor.float().flatten(1)
        scales = rows.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
        reduced[name] = (rows / scales.unsqueeze(1)).round().to(torch.int8).view_as(tensor)
        reduced[name + SCALES] = scales
    return reduced


def _whole(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors in fp32 that were stored in fewer bits. Raises KeyError for one in 8 bits without its scales."""
    whole = {}
    for name, tensor in stored.items():
        if name.endswith(SCALES):
            continue
        if tensor.dtype == torch.int8:
            tensor = (tensor.flatten(1) * stored[name + SCALES].unsqueeze(1)).view(tensor.shape)
        whole[name] = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return whole


def config(path: Path) -> dict[str, Any]:
    """Read the config of a bundle, unverified and without its tensors. Raises StorageError as `read` does."""
    try:
        bounded.size(path, bounded.TENSORS)
        with safetensors.safe_open(path, framework="pt") as file:
            header: str = dict(file.metadata() or {})["config"]
        return with_public_names(bounded.parse(header))
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise StorageError(f"{path}: not a bundle, or a damaged one ({bounded.reason(error)})") from error


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def _sha256(tensors: dict[str, Tensor], header: dict[str, str]) -> str:
    digest = hashlib.sha256()
    for key in sorted(header):
        digest.update(f"{key}\0{header[key]}\0".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
