"""Paths of the outputs that verbs make from a checkpoint, in its run folder.

Outputs of a checkpoint outside any run folder (an averaged one) and of a bundle lie next to it.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from las.runtime.errors import ConfigError


def folder(checkpoint: Path) -> Path:
    """Run folder of a checkpoint, given as a run folder, checkpoint directory or bundle."""
    if not checkpoint.is_file() and not (checkpoint / "MANIFEST.json").exists():
        return checkpoint
    parent = checkpoint.parent if checkpoint.parent.name else checkpoint.absolute().parent
    return parent.parent if parent.name == "checkpoints" else parent


def decoded(checkpoint: Path, name: str) -> Path:
    """Path of the hypotheses for a split or for recordings (`name_of`), different for every checkpoint of a run."""
    file_name = f"hypotheses.{name}.jsonl"
    if checkpoint.is_file():
        return folder(checkpoint) / f"{checkpoint.stem}.decoded" / file_name
    chosen = [] if folder(checkpoint) == checkpoint else [checkpoint.name]
    return folder(checkpoint).joinpath("decoded", *chosen, file_name)


def graphs(checkpoint: Path) -> Path:
    """Folder of decoding graphs made for a checkpoint."""
    return folder(checkpoint) / "graphs"


def name_of(audio: str | Sequence[str]) -> str:
    """Short name for recordings, `x.wav-1f3870be`: first file, number of further ones, hash of all paths."""
    paths = [Path(name).absolute() for name in ([audio] if isinstance(audio, str) else audio)]
    if not paths:
        raise ConfigError("audio=[] names no recording: give audio=x.wav, a folder, or a list [a.wav,b.wav]")
    digest = hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:8]
    first = re.sub(r"[^\w.-]", "_", paths[0].name)[:80]
    more = f"_and_{len(paths) - 1}_more" if len(paths) > 1 else ""
    return f"{first}{more}-{digest}"
