"""Where verbs leave what they make of a checkpoint: in its run folder, named by what was asked for.

A checkpoint that lies in no run folder (an averaged one) has it beside it; so has a bundle, which is a single file.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from las.runtime.errors import ConfigError


def folder(checkpoint: Path) -> Path:
    """The run folder of a checkpoint that is given by its run folder, as a directory or as a bundle."""
    if not checkpoint.is_file() and not (checkpoint / "MANIFEST.json").exists():
        return checkpoint
    beside = checkpoint.parent if checkpoint.parent.name else checkpoint.absolute().parent
    return beside.parent if beside.name == "checkpoints" else beside


def decoded(checkpoint: Path, what: str) -> Path:
    """The file of hypotheses of a split or of recordings (`name_of`), one checkpoint of a run apart from another."""
    name = f"hypotheses.{what}.jsonl"
    if checkpoint.is_file():
        return folder(checkpoint) / f"{checkpoint.stem}.decoded" / name
    chosen = [] if folder(checkpoint) == checkpoint else [checkpoint.name]
    return folder(checkpoint).joinpath("decoded", *chosen, name)


def name_of(audio: str | Sequence[str]) -> str:
    """`x.wav-1f3870be` for recordings by their names: the first one's, how many more, digits that tell paths apart."""
    paths = [Path(name).absolute() for name in ([audio] if isinstance(audio, str) else audio)]
    if not paths:
        raise ConfigError("audio=[] names no recording: give audio=x.wav, a folder, or a list [a.wav,b.wav]")
    digest = hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:8]
    first = re.sub(r"[^\w.-]", "_", paths[0].name)[:80]
    more = f"_and_{len(paths) - 1}_more" if len(paths) > 1 else ""
    return f"{first}{more}-{digest}"
