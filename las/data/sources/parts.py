"""Folders of whole datasets, with a folder for each split, as Hugging Face's audio folders and Kaldi's `data` are."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from las.runtime.errors import ConfigError, first_of

NAMES = {
    "train": ("train", "training"),
    "dev": ("validation", "valid", "val", "dev", "development"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""Names of the folders of each split, in any case of letters; the first that is there is taken."""
LISTINGS = ("metadata.csv", "metadata.jsonl")
"""Files that name the audio of the folder that they are in, and of those below."""


def divided(sources: Mapping[str, Sequence[Path]]) -> tuple[dict[str, list[Path]], list[str]]:
    """Replace the folders of whole datasets by those of the splits in them, with a remark for each.

    A split without a source takes the folders that the training sources have for it. Raises ConfigError for a dataset
    without a folder of the split that it is named for.
    """
    parts = {path: of(path) for paths in sources.values() for path in paths}
    found = {split: [_part(path, parts[path], split) for path in paths] for split, paths in sources.items()}
    for split in (split for split in sources if not sources[split]):
        found[split] = [parts[path][split] for path in sources["train"] if split in parts[path]]
    return found, [_remark(path, inside.values()) for path, inside in parts.items() if inside]


def of(folder: Path) -> dict[str, Path]:
    """Folders of the splits in a folder; empty unless it is the folder of a whole dataset."""
    if not os.path.isdir(folder) or not os.access(folder, os.R_OK) or (folder / "wav.scp").exists():
        return {}
    inside = {each.name.lower(): each for each in folder.iterdir() if each.is_dir()}
    found = {split: inside[name] for split, names in NAMES.items() for name in reversed(names) if name in inside}
    is_dataset = "train" in found and (len(found) > 1 or listing(found["train"]) is not None)
    return found if is_dataset else {}


def listing(folder: Path) -> Path | None:
    """Return the file that names the audio of a folder, where there is one."""
    return next((folder / name for name in LISTINGS if (folder / name).is_file()), None)


def listing_above(folder: Path) -> Path | None:
    """Return the listing of the dataset that the folder of a split is in, where there is one."""
    is_part = any(folder.name.lower() in names for names in NAMES.values())
    return listing(folder.parent) if is_part else None


def _part(path: Path, inside: Mapping[str, Path], split: str) -> Path:
    if inside and split not in inside:
        held = ", ".join(each.name for each in inside.values())
        raise ConfigError(f"corpus.{split}={path}: a dataset with the folders {held}: name the one that is meant")
    return inside.get(split, path)


def _remark(path: Path, taken: Iterable[Path]) -> str:
    named = [each.name for each in taken]
    others = sorted(each.name for each in path.iterdir() if each.is_dir() and each.name not in named)
    left_out = f"; left out, other folders ({len(others):,}): {first_of(others, 3)}" if others else ""
    return f"{path}: a dataset with a folder for each split, {', '.join(named)}{left_out}"
