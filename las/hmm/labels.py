"""Labels of frames: the pdf of every frame of a corpus, in one memory-mapped file.

A folder has `labels.npy`, the labels of all utterances one after the other (int16), and `index.json`: where each
utterance begins, what the labels are of, and the hash of all of it. NO_LABEL marks frames without a label.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.data.manifest import Interval, Utterance
from las.hmm.segments import FrameTimes
from las.hmm.topology import NUM_STATES, StateNumbering, Topology
from las.runtime.errors import DataError, StorageError, suggest
from las.storage import atomic, bounded

NO_LABEL = -1
MAX_DIFFERENCE = 2
"""Frames by which the labels of an utterance may be more or fewer than its features."""
TIED = "tied"
"""The topology of labels whose states are those of a tree."""
INDEX, LABELS = "index.json", "labels.npy"

Labels = NDArray[np.int16]


class LabelKind(NamedTuple):
    """Kind of labels: the hash of the numbering of states (its `content_hash`), their number, the frames."""

    topology: str
    num_pdfs: int
    shift_s: float

    @classmethod
    def of(cls, topology: StateNumbering, times: FrameTimes) -> "LabelKind":
        return cls(topology.content_hash, topology.num_pdfs, times.shift_s)

    @classmethod
    def tied(cls, num_pdfs: int, times: FrameTimes) -> "LabelKind":
        """Return the kind of imported labels of tied states, whose phones are not known."""
        return cls(TIED, num_pdfs, times.shift_s)


class FrameLabels:
    """Labels of the frames of a corpus, read from the disk where they are needed. It is a source of training targets.

    Args:
        folder: as `write` made it.
        kind: of labels that are expected; None for any.

    Raises StorageError for files that are missing, damaged or do not belong together, DataError for another kind.
    """

    def __init__(self, folder: str | Path, kind: LabelKind | None = None) -> None:
        self.folder = Path(folder)
        if not (self.folder / INDEX).is_file():
            raise StorageError(f"{folder}: there are no labels of frames here, it has no {INDEX}")
        index = bounded.stored(self.folder / INDEX)
        if missing := {"kind", "content_hash", "utterances"} - index.keys():
            raise StorageError(f"{self.folder / INDEX}: it lacks {', '.join(sorted(missing))}")
        self.kind = LabelKind(**index["kind"])
        self.content_hash: str = index["content_hash"]
        self._places: dict[str, tuple[int, int]] = {name: (start, end) for name, start, end in index["utterances"]}
        try:
            self._labels: Labels = np.load(self.folder / LABELS, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StorageError(f"{self.folder / LABELS}: the labels cannot be read ({error})") from error
        if self._labels.dtype != np.int16 or _hash(self._labels, index) != self.content_hash:
            raise StorageError(
                f"{self.folder}: its files do not belong together: {LABELS} is not what {INDEX} describes"
            )
        if kind is not None:
            _require_kind(self.kind, kind, self.folder)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, utterance_id: object) -> bool:
        return utterance_id in self._places

    def of(self, utterance_id: str) -> Labels:
        """Labels of an utterance. Raises DataError for one without labels."""
        if utterance_id not in self._places:
            raise DataError(
                f"{self.folder}: there are no labels of the utterance {utterance_id!r}."
                f"{suggest(utterance_id, self._places)}"
            )
        start, end = self._places[utterance_id]
        return self._labels[start:end]

    def targets(self, utterance: Utterance) -> Labels:
        return self.of(utterance.id)

    def counts(self) -> NDArray[np.int64]:
        return np.bincount(self._labels[self._labels != NO_LABEL], minlength=self.kind.num_pdfs)


def write(folder: str | Path, labelled: Iterable[tuple[str, Labels]], kind: LabelKind) -> FrameLabels:
    """Write the labels of utterances (id, labels) into a folder, and read them.

    Raises DataError for an utterance that is there twice, and for a label that is none of the pdfs.
    """
    utterances: list[tuple[str, int, int]] = []
    parts: list[Labels] = []
    known: set[str] = set()
    start = 0
    for name, labels in labelled:
        if name in known:
            raise DataError(f"{folder}: the utterance {name!r} has labels already")
        if len(labels) and not NO_LABEL <= labels.min() <= labels.max() < kind.num_pdfs:
            raise DataError(
                f"{folder}: utterance {name}: its labels are from {labels.min()} to {labels.max()}, and the pdfs from "
                f"0 to {kind.num_pdfs - 1}: they are of another numbering of states"
            )
        known.add(name)
        utterances.append((name, start, start + len(labels)))
        parts.append(labels.astype(np.int16))
        start += len(labels)
    everything = np.concatenate(parts) if parts else np.zeros(0, np.int16)
    index: dict[str, Any] = {"kind": kind._asdict(), "utterances": [list(each) for each in utterances]}
    index["content_hash"] = _hash(everything, index)
    with atomic.opened(Path(folder) / LABELS) as file:
        np.save(file, everything, allow_pickle=False)
    atomic.write_json(Path(folder) / INDEX, index)
    return FrameLabels(folder)


def of_times(
    intervals: Sequence[Interval], num_frames: int, topology: Topology, times: FrameTimes, where: str
) -> Labels:
    """Labels from known times of phones: a frame belongs to the interval that holds its centre.

    The frames of an interval are shared out evenly over the states of its phone, as floor(3 i / n); of two frames the
    last state has the second, of one the middle state has it. A frame outside all intervals has NO_LABEL.
    Raises DataError, which begins with `where`, for an unknown phone, and for times that do not belong to the audio:
    an alignment that ends more than two frames before its end or after it.
    """
    end_s = intervals[-1].end_s if intervals else 0.0
    num_whole = 1 + math.floor(round((end_s - times.length_s) / times.shift_s, 6))
    require_length(max(num_whole, 0), num_frames, where)
    labels = np.full(num_frames, NO_LABEL, np.int16)
    for interval in intervals:
        # Rounded: a centre that lies on a boundary belongs to the later interval, whatever the binary fractions say.
        first, last = (
            min(max(math.ceil(round((time_s - times.centre_s(0)) / times.shift_s, 6)), 0), num_frames)
            for time_s in (interval.start_s, interval.end_s)
        )
        pdfs, count = topology.pdfs(interval.symbol, where), last - first
        states = [1] if count == 1 else [0, 2] if count == 2 else [NUM_STATES * i // count for i in range(count)]
        labels[first:last] = [pdfs[state] for state in states]
    return labels


def fitted(labels: Labels, num_frames: int, where: str) -> Labels:
    """Labels cut, or continued by the last one, to the frames of the features; by two frames at most.

    Raises DataError, which begins with `where`, for a greater difference.
    """
    require_length(len(labels), num_frames, where)
    padding = np.full(max(num_frames - len(labels), 0), labels[-1] if len(labels) else NO_LABEL, np.int16)
    return np.concatenate([labels[:num_frames], padding])


def require_length(num_labels: int, num_frames: int, where: str) -> None:
    """Raise DataError, which begins with `where`, unless labels are as many as frames or nearly so."""
    if abs(num_labels - num_frames) > MAX_DIFFERENCE:
        raise DataError(
            f"{where}: {num_labels} labels for {num_frames} frames, and at most {MAX_DIFFERENCE} may differ: the "
            "alignment is of other audio or of another frame shift"
        )


def _hash(labels: Labels, index: dict[str, Any]) -> str:
    """Hash (sha256, hex) of labels, what they are of, and which utterance has which."""
    described = json.dumps([index["kind"], index["utterances"]], sort_keys=True)
    return hashlib.sha256(described.encode() + np.ascontiguousarray(labels).tobytes()).hexdigest()


def _require_kind(found: LabelKind, wanted: LabelKind, folder: Path) -> None:
    if found.num_pdfs != wanted.num_pdfs:
        raise DataError(f"{folder}: labels of {found.num_pdfs} pdfs, and the topology has {wanted.num_pdfs}")
    if found.topology != wanted.topology:
        raise DataError(f"{folder}: labels of other phones, or of phones in another order, than the topology has")
    if abs(found.shift_s - wanted.shift_s) > 1e-9:
        raise DataError(
            f"{folder}: labels of frames every {1000 * found.shift_s:g} ms, and the features have one every "
            f"{1000 * wanted.shift_s:g} ms"
        )
