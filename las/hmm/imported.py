"""Alignments that other systems made, read by utterance id: pdfs of frames, or times of phones; and labels from them.

| file | content | made by |
|---|---|---|
| `x.ctm` | times of phones from the start of each utterance, whose id is in the first column | `las align`, Kaldi |
| folder of `*.TextGrid` | times in a tier named `phones` | `las align`, Praat, the Montreal Forced Aligner |
| `x.hdf`, `x.h5` | pdfs of frames | RETURNN |
| any other text | `utterance pdf pdf ...` in each line | Kaldi: `ali-to-pdf final.mdl ark:- ark,t:-` |
"""

import itertools
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from las.data.manifest import Interval, Utterance
from las.hmm import labels, textgrid
from las.hmm.labels import LabelKind, Labels
from las.hmm.lexicon import require_phone
from las.hmm.segments import FrameTimes
from las.hmm.topology import NUM_STATES, Topology
from las.runtime.errors import ConfigError, DataError
from las.scoring import ctm
from las.storage import folders, text_files

PHONE_TIERS = ("phones", "phone")
CTM = ".ctm"
HDF = (".hdf", ".h5", ".hdf5")
MAX_PDF = int(np.iinfo(np.int16).max)
_OVERLAP_S = 1e-3
_HDF_PARTS = ("seqLengths", "seqTags")
_HDF_TARGETS = "targets/data/classes"


class ImportedLabels(NamedTuple):
    """Labels of the utterances in a file.

    Attributes:
        path: the file or folder.
        names: utterances in it.
        kind: of the labels.
        make: the labels of an utterance from its name in the file, itself, its number of frames, and the beginning of
            messages.
    """

    path: Path
    names: Collection[str]
    kind: LabelKind
    make: Callable[[str, Utterance, int, str], Labels]

    def of(self, utterance: Utterance, num_frames: int) -> Labels | None:
        """Labels of an utterance of so many frames; None if the file lacks it.

        Raises DataError for phones without states, and for an alignment of other audio or of another frame shift.
        """
        name = key(utterance.id, self.path)
        if name not in self.names:
            return None
        return self.make(name, utterance, num_frames, f"{self.path}: utterance {utterance.id}")


def of_times(path: Path, topology: Topology, times: FrameTimes) -> ImportedLabels:
    """Labels from times of phones; gaps are silence where the topology has one, and have no label elsewhere."""
    found = phones(path)

    def make(name: str, utterance: Utterance, num_frames: int, where: str) -> Labels:
        intervals = found[name]
        if topology.silences:
            intervals = textgrid.covering(intervals, utterance.duration_s, topology.silences[0])
        return labels.of_times(intervals, num_frames, topology, times, where)

    return ImportedLabels(path, found.keys(), LabelKind.of(topology, times), make)


def of_mapped_pdfs(path: Path, map_file: Path, topology: Topology, times: FrameTimes) -> ImportedLabels:
    """Labels from pdfs of frames that a file maps to states of phones (`pdf_map`)."""
    found, mapping = pdfs(path), pdf_map(map_file, topology)

    def make(name: str, utterance: Utterance, num_frames: int, where: str) -> Labels:
        given = found[name].tolist()
        if lacking := sorted(set(given) - mapping.keys()):
            raise DataError(f"{where}: the map has no line for the pdf {lacking[0]}")
        return labels.fitted(np.array([mapping[pdf] for pdf in given], np.int16), num_frames, where)

    return ImportedLabels(path, found.keys(), LabelKind.of(topology, times), make)


def of_tied_pdfs(path: Path, num_pdfs: int | None, times: FrameTimes) -> ImportedLabels:
    """Labels from pdfs of frames as they are, such as those of tied triphones; None: one more than the highest."""
    found = pdfs(path)
    highest = max((int(each.max()) for each in found.values() if len(each)), default=-1)

    def make(name: str, utterance: Utterance, num_frames: int, where: str) -> Labels:
        return labels.fitted(found[name], num_frames, where)

    return ImportedLabels(
        path, found.keys(), LabelKind.tied(highest + 1 if num_pdfs is None else num_pdfs, times), make
    )


def has_times(path: Path) -> bool:
    """Return True for files of times of phones, false for those of pdfs of frames."""
    return path.is_dir() or path.suffix.lower() == CTM


def key(utterance_id: str, path: Path) -> str:
    """Return the name of an utterance in a file: its id, without the characters that the format cannot have."""
    if path.is_dir():
        return textgrid.file_name(utterance_id)
    return _segment(utterance_id) if path.suffix.lower() in HDF else column(utterance_id)


def column(utterance_id: str) -> str:
    """Return an utterance id as one column of a text file."""
    return re.sub(r"\s", "_", utterance_id)


def phones(path: Path) -> dict[str, list[Interval]]:
    """Return times of phones by the name of the utterance (`key`), in seconds from its start.

    Raises DataError naming file and line, or utterance, for what cannot be read, and for phones that overlap.
    """
    found = _textgrids(path) if path.is_dir() else _ctm(path)
    for name, intervals in found.items():
        for one, other in itertools.pairwise(intervals):
            if other.start_s < one.end_s - _OVERLAP_S:
                raise DataError(
                    f"{path}: utterance {name}: {other.symbol} begins at {other.start_s:g} s, before {one.symbol} ends "
                    f"({one.end_s:g} s)"
                )
    return found


def pdfs(path: Path) -> dict[str, Labels]:
    """Pdfs of the frames by the name of the utterance (`key`). Raises DataError naming file and line, or utterance."""
    found = _hdf(path) if path.suffix.lower() in HDF else _kaldi(path)
    for name, own in found.items():
        if len(own) and not 0 <= own.min() <= own.max() <= MAX_PDF:
            raise DataError(f"{path}: utterance {name}: a pdf must be from 0 to {MAX_PDF:,}")
    return {name: own.astype(np.int16) for name, own in found.items()}


def pdf_map(path: Path, topology: Topology) -> dict[int, int]:
    """Read our pdfs by those of an alignment, from lines `pdf phone state`, with states 0, 1 and 2.

    Raises DataError naming file and line for a phone without states, a state that is none, and a pdf that is there
    twice.
    """
    found: dict[int, int] = {}
    for number, line in text_files.lines(path):
        where, fields = f"{path}:{number}", line.split()
        if len(fields) != 3 or not (text_files.is_integer(fields[0]) and text_files.is_integer(fields[2])):
            raise DataError(f"{where}: a line is a pdf, its phone and the state of the phone: 17 AH 2")
        pdf, state = int(fields[0]), int(fields[2])
        if state >= NUM_STATES:
            raise DataError(f"{where}: the state {state} must be 0, 1 or 2")
        if pdf in found:
            raise DataError(f"{where}: the pdf {pdf} is in a line above already")
        found[pdf] = NUM_STATES * require_phone(fields[1], topology.phones, where) + state
    return found


def _ctm(path: Path) -> dict[str, list[Interval]]:
    found: dict[str, list[Interval]] = {}
    for mark in ctm.read(path):
        if mark.tag is not None:
            raise DataError(f"{path}: {mark.file}: alternatives ({mark.text}) are no alignment")
        end_s = round(mark.start_s + mark.duration_s, 6)
        found.setdefault(mark.file, []).append(Interval(mark.start_s, end_s, mark.text))
    return {name: sorted(intervals, key=lambda each: each.start_s) for name, intervals in found.items()}


def _textgrids(folder: Path) -> dict[str, list[Interval]]:
    found: dict[str, list[Interval]] = {}
    for path in folders.search(folder).files:
        if path.suffix.lower() != ".textgrid":
            continue
        own_name = f"{path.stem}.TextGrid"  # the ending may be written otherwise
        if own_name in found:
            raise DataError(f"{path}: another folder has a file of this name too: one for each utterance")
        tiers = textgrid.read(path)
        named = [name for name in tiers if name.rpartition(" - ")[2] in PHONE_TIERS]  # or `speaker - phones`
        if len(named) != 1:
            raise DataError(f"{path}: one tier must be named {PHONE_TIERS[0]}; there are {', '.join(tiers) or 'none'}")
        found[own_name] = tiers[named[0]]
    return found


def _kaldi(path: Path) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for number, line in text_files.lines(path):
        name, *fields = line.split()
        if not fields or not all(map(text_files.is_integer, fields)):
            raise DataError(f"{path}:{number}: a line is an utterance id and the pdfs of its frames: u1 4 4 4 17 17")
        if name in found:
            raise DataError(f"{path}:{number}: the utterance {name} is in a line above already")
        found[name] = np.array(fields, np.int64)
    return found


def _segment(tag: str) -> str:
    """Return the last part of a tag, which RASR writes as `corpus/recording/segment`."""
    return tag.rpartition("/")[2]


def _hdf(path: Path) -> dict[str, NDArray[Any]]:
    """Classes by the last part of a tag, from RETURNN's HDF files (`SimpleHDFWriter`, `hdf_dump`).

    `inputs`, or `targets/data/classes`, has the classes of all sequences one after the other; a row of `seqLengths` has
    the lengths of a sequence's inputs and of its targets, `seqTags` its tag.
    Raises ConfigError without h5py, DataError for a file that is no alignment.
    """
    try:
        import h5py
    except ImportError as error:
        raise ConfigError(f"{path}: HDF files are read by h5py: pip install 'las-asr[hdf]'") from error
    try:
        with h5py.File(path, "r") as file:
            if missing := [name for name in _HDF_PARTS if name not in file]:
                raise DataError(f"{path}: no HDF file of RETURNN, it lacks {', '.join(missing)}")
            name, place = ("inputs", 0) if _is_sparse(file.get("inputs")) else (_HDF_TARGETS, 1)
            if not _is_sparse(file.get(name)):
                raise DataError(
                    f"{path}: it has no classes of frames: neither inputs nor {_HDF_TARGETS} are whole numbers"
                )
            classes = np.asarray(file[name]).reshape(-1)
            lengths = np.asarray(file["seqLengths"]).reshape(len(file["seqTags"]), -1)[:, place]
            tags = [str(tag, "utf-8") if isinstance(tag, bytes) else str(tag) for tag in file["seqTags"][:]]
    except OSError as error:
        raise DataError(f"{path}: cannot be read as HDF ({error})") from error
    if lengths.sum() != len(classes):
        raise DataError(f"{path}: its sequences have {lengths.sum():,} frames, and {name} has {len(classes):,}")
    parts = np.split(classes, np.cumsum(lengths)[:-1])
    found = {_segment(tag): part for tag, part in zip(tags, parts, strict=True)}
    if len(found) < len(tags):
        raise DataError(f"{path}: two of its sequences have the same tag after the last '/'")
    return found


def _is_sparse(data: Any) -> bool:
    """Return True for one whole number a frame."""
    return data is not None and data.dtype.kind in "iu" and data.ndim <= 2 and data.shape[1:] in ((), (1,))
