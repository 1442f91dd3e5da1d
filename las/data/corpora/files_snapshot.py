"""Snapshot of a prepared corpus of files: the next start reads its manifests and skips its sources.

It holds as long as the options, the sources and every audio file are those of the preparation; else it is ignored.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from las.data import manifest
from las.data.audio.worker import state
from las.data.corpora.base import stamp
from las.data.manifest import Utterance
from las.runtime.errors import DataError
from las.storage import atomic, bounded

# Raise it when the same options and sources begin to mean other manifests.
_FORMAT = 2


class Snapshot(NamedTuple):
    """Result of a preparation: folder of the manifests, utterances by split, and what the sources said of the rest."""

    folder: Path
    splits: dict[str, list[Utterance]]
    sample_rate: int
    symbols: list[str]
    notes: list[str]


def store(path: Path, options: dict[str, Any], sources: Iterable[Path], snapshot: Snapshot) -> None:
    """Write a snapshot. A disk that refuses costs no more than reading the sources again."""
    content = {
        "format": _FORMAT,
        "options": options,
        "sources": {str(source): stamp(source) for source in sources},
        "folder": str(snapshot.folder),
        "manifests": {split: _digest(snapshot.folder / f"{split}.jsonl") for split in snapshot.splits},
        "audio": _state_of_audio(snapshot.splits.values()),
        "sample_rate": snapshot.sample_rate,
        "symbols": snapshot.symbols,
        "notes": snapshot.notes,
    }
    with contextlib.suppress(OSError):
        atomic.write_json(path, content)


def recall(path: Path, options: dict[str, Any]) -> Snapshot | None:
    """Read the snapshot of a preparation with these options; None where something has changed, or is damaged."""
    try:
        content = bounded.read_object(path)
        folder, digests = Path(content["folder"]), content["manifests"]
        holds = (
            content["format"] == _FORMAT
            and content["options"] == options
            and all(stamp(source) == before for source, before in content["sources"].items())
            and all(_digest(folder / f"{split}.jsonl") == digest for split, digest in digests.items())
        )
        splits = {split: manifest.read(folder / f"{split}.jsonl") for split in digests} if holds else {}
        if not holds or _state_of_audio(splits.values()) != content["audio"]:
            return None
        return Snapshot(folder, splits, content["sample_rate"], content["symbols"], content["notes"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DataError):
        return None


def _digest(path: Path) -> str:
    with bounded.open_file(path, bounded.LINES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _state_of_audio(splits: Iterable[Sequence[Utterance]]) -> str:
    """Hash (sha256, hex) of the names, sizes and times of change of all audio files."""
    digest = hashlib.sha256()
    for name in dict.fromkeys(utterance.audio for listed in splits for utterance in listed):
        size, time_ns = state(name)
        digest.update(f"{size} {time_ns} {name}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
