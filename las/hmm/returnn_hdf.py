"""Alignments in RETURNN's HDF files (`SimpleHDFWriter`, `hdf_dump`): the classes of frames by sequence tag.

`inputs`, or `targets/data/classes`, has the classes of all sequences one after the other; a row of `seqLengths` has the
lengths of a sequence's inputs and of its targets, `seqTags` its tag.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from las.runtime.errors import ConfigError, DataError

PARTS = ("seqLengths", "seqTags")
TARGETS = "targets/data/classes"


def segment(tag: str) -> str:
    """The last part of a tag, which RASR writes as `corpus/recording/segment`."""
    return tag.rpartition("/")[2]


def read(path: Path) -> dict[str, NDArray[Any]]:
    """Classes by the last part of a tag (`segment`).

    Raises ConfigError without h5py, DataError for a file that is no alignment.
    """
    try:
        import h5py
    except ImportError as error:
        raise ConfigError(f"{path}: HDF files are read by h5py: pip install 'las-asr[hdf]'") from error
    try:
        with h5py.File(path, "r") as file:
            if missing := [name for name in PARTS if name not in file]:
                raise DataError(f"{path}: no HDF file of RETURNN, it lacks {', '.join(missing)}")
            name, place = ("inputs", 0) if _is_sparse(file.get("inputs")) else (TARGETS, 1)
            if not _is_sparse(file.get(name)):
                raise DataError(f"{path}: it has no classes of frames: neither inputs nor {TARGETS} are whole numbers")
            classes = np.asarray(file[name]).reshape(-1)
            lengths = np.asarray(file["seqLengths"]).reshape(len(file["seqTags"]), -1)[:, place]
            tags = [str(tag, "utf-8") if isinstance(tag, bytes) else str(tag) for tag in file["seqTags"][:]]
    except OSError as error:
        raise DataError(f"{path}: cannot be read as HDF ({error})") from error
    if lengths.sum() != len(classes):
        raise DataError(f"{path}: its sequences have {lengths.sum():,} frames, and {name} has {len(classes):,}")
    parts = np.split(classes, np.cumsum(lengths)[:-1])
    found = {segment(tag): part for tag, part in zip(tags, parts, strict=True)}
    if len(found) < len(tags):
        raise DataError(f"{path}: two of its sequences have the same tag after the last '/'")
    return found


def _is_sparse(data: Any) -> bool:
    """True for one whole number a frame."""
    return data is not None and data.dtype.kind in "iu" and data.ndim <= 2 and data.shape[1:] in ((), (1,))
