"""What has changed between the start of a run and its continuation, and may change its numbers."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from las import run
from las.errors import ConfigError, StorageError, suggest

KINDS = {
    "torch": "the version of torch",
    "code": "the version of las (or its commit)",
    "vocabulary": "the output symbols",
    "manifest_hash": "the training utterances",
    "seed": "the seed",
}
NEVER = ("vocabulary", "manifest_hash", "seed")
"""With these another training begins: the order of the data, or the meaning of the parameters."""


def origin(vocabulary_hash: str) -> dict[str, str]:
    """What a checkpoint keeps of where it comes from, beside seed and manifest."""
    import las

    return {"torch": str(torch.__version__), "code": run.commit() or las.__version__, "vocabulary": vocabulary_hash}


def require(before: Mapping[str, Any], now: Mapping[str, Any], allowed: Collection[str], directory: Path) -> list[str]:
    """Lines for the log about changes that are allowed.

    Raises StorageError listing those that are not, ConfigError when `allowed` names what cannot be allowed.
    """
    for name in allowed:
        if name not in KINDS or name in NEVER:
            may = [kind for kind in KINDS if kind not in NEVER]
            raise ConfigError(f"allow_drift: {name!r} is none of {', '.join(may)}.{suggest(name, may)}")
    changed = [name for name in KINDS if name in before and before[name] != now[name]]
    lines = [f"{KINDS[name]}: {_short(before[name])} -> {_short(now[name])}" for name in changed]
    refused = [name for name in changed if name not in allowed]
    if not refused:
        return [f"continuing although it changed since this run began: {line}" for line in lines]
    if set(refused) & set(NEVER):
        advice = "Restore what it was, or start a run of its own under another name=..."
    else:
        advice = f"Go on all the same with allow_drift=[{','.join(refused)}], or start another run with name=..."
    listed = "\n  ".join(lines)
    raise StorageError(f"{directory}: changed since this run began (then -> now):\n  {listed}\n{advice}")


def _short(value: Any) -> str:
    text = str(value)
    return f"{text[:12]}..." if len(text) > 40 else text
