"""Pretrained models by name: those in the folder `las/pretrained`, and others that are downloaded into a cache.

`models.json` there lists them. A file is accepted only with the size and hash of the list.
"""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from las.runtime.errors import ConfigError, StorageError, suggest
from las.storage import bounded, download

FOLDER = Path(__file__).parents[1] / "pretrained"
CACHE = "LAS_CACHE"
"""Environment variable of the folder that models are downloaded to; without it, las in the user's cache."""


class PretrainedModel(NamedTuple):
    """An entry of `models.json`."""

    name: str
    task: str
    parameters: int
    size: int
    """Bytes of its file, a bundle."""
    sha256: str
    error: str
    """Error rate with its interval, and what it was measured on."""
    licence: str
    """Licence of its training data."""
    command: str
    """Command of the training."""
    url: str = ""
    """Address of its download; empty for one that comes with the package."""


def models() -> dict[str, PretrainedModel]:
    """Return all models by name, the default one first."""
    entries = bounded.read_object(FOLDER / "models.json")
    return {name: PretrainedModel(name, **entry) for name, entry in entries.items()}


def path_of(name: str) -> Path:
    """Return the bundle of a model, downloaded if it is not there yet.

    Raises ConfigError for a name that no model has, and what `las.storage.download.fetch` raises.
    """
    known = models()
    if name not in known:
        raise ConfigError(f"model={name}: there is no pretrained model of this name.{suggest(name, known)} las models")
    model = known[name]
    if model.url:
        return download.fetch(model.url, cache() / f"{name}-{model.sha256[:8]}.las", model.size, sha256=model.sha256)
    path = FOLDER / f"{name}.las"
    if hashlib.sha256(path.read_bytes()).hexdigest() != model.sha256:
        raise StorageError(f"{path}: not the file that came with the package: install las again")
    return path


def resolved(checkpoint: str | Path) -> Path:
    """Return the bundle that a name stands for, and any other path as it is. Raises what `path_of` raises."""
    is_name = not Path(checkpoint).exists() and str(checkpoint) in models()
    return path_of(str(checkpoint)) if is_name else Path(checkpoint)


def cache() -> Path:
    """Return the folder of downloaded models."""
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "las"
