"""A packed corpus: a folder of shards that takes the place of the corpus's own tree, `corpus.root=shards`.

Beside the manifests of `las.data.packing` lies `packed.json`, with the settings of the corpus and the hashes of its
manifests.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from las.data import manifest
from las.data.audio import shards
from las.data.manifest import Utterance
from las.runtime.errors import ConfigError, DataError
from las.storage import atomic, bounded

_INDEX = "packed.json"
_FREE = ("root", "transcripts", "tokens")
"""Settings that may differ: where a corpus lies, and the symbols that its texts are written in."""


def is_packed(folder: Path) -> bool:
    """Return whether a folder was written by `las pack`."""
    return (folder / _INDEX).is_file()


def write_index(folder: Path, settings: Mapping[str, Any], hashes: Mapping[str, str]) -> None:
    """Write the settings of a corpus and the content hash of each of its manifests into its folder of shards."""
    atomic.write_json(folder / _INDEX, {"settings": _compared(settings), "content_hashes": dict(hashes)}, durable=True)


def read(folder: Path, splits: Sequence[str], settings: Mapping[str, Any]) -> dict[str, list[Utterance]]:
    """Read the utterances of all splits, with the absolute names of their audio in the shards.

    Raises ConfigError listing the `settings` in which the packed corpus differs, and DataError for manifests that were
    changed and shards that are missing.
    """
    try:
        index = bounded.read_object(folder / _INDEX)
        packed, hashes = dict(index["settings"]), dict(index["content_hashes"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / _INDEX}: cannot be read ({error}). Pack the corpus again: las pack") from error
    own = _compared(settings)
    if differing := sorted(key for key in own.keys() | packed.keys() if own.get(key) != packed.get(key)):
        listed = "\n".join(f"  {key}: {packed.get(key)} in the shards, {own.get(key)} here" for key in differing)
        raise ConfigError(
            f"{folder}: the corpus was packed with other settings:\n{listed}\nGive the same, or pack it again: las pack"
        )
    read = {split: _read(folder / f"{split}.jsonl", hashes.get(split)) for split in splits}
    holders = {shards.file_of(each.audio) for listed in read.values() for each in listed if each.audio}
    if missing := sorted(path for path in holders if not os.path.isfile(path)):
        raise DataError(f"{missing[0]}: there is no such shard ({len(missing)} missing). Copy it again")
    return read


def _read(path: Path, content_hash: str | None) -> list[Utterance]:
    listed = manifest.read(path)
    if manifest.content_hash(listed) != content_hash:
        raise DataError(f"{path}: changed after it was written. Copy it again, or pack the corpus again: las pack")
    here = path.parent.absolute()
    return [replace(each, audio=os.path.join(here, each.audio)) if each.audio else each for each in listed]


def _compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that manifests depend on, as JSON holds them."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return {key: value for key, value in plain.items() if key not in _FREE}
