"""Alignments that other systems made, read by utterance id: pdfs of frames, or times of phones.

| file | content | made by |
|---|---|---|
| `x.ctm` | times of phones from the start of each utterance, whose id is in the first column | `las align`, Kaldi |
| folder of `*.TextGrid` | times in a tier named `phones` | `las align`, Praat, the Montreal Forced Aligner |
| `x.hdf`, `x.h5` | pdfs of frames | RETURNN |
| any other text | `utterance pdf pdf ...` in each line | Kaldi: `ali-to-pdf final.mdl ark:- ark,t:-` |
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from las.data.manifest import Interval
from las.hmm import returnn_hdf, textgrid
from las.hmm.labels import Labels
from las.hmm.lexicon import require_phone
from las.hmm.topology import NUM_STATES, Topology
from las.runtime.errors import DataError
from las.scoring import ctm
from las.storage import folders, text_files

PHONE_TIERS = ("phones", "phone")
CTM = ".ctm"
HDF = (".hdf", ".h5", ".hdf5")
MAX_PDF = int(np.iinfo(np.int16).max)
_OVERLAP_S = 1e-3


def has_times(path: Path) -> bool:
    """True for files of times of phones, false for those of pdfs of frames."""
    return path.is_dir() or path.suffix.lower() == CTM


def key(utterance_id: str, path: Path) -> str:
    """The name of an utterance in a file: its id, without the characters that the format cannot have."""
    if path.is_dir():
        return textgrid.file_name(utterance_id)
    return returnn_hdf.segment(utterance_id) if path.suffix.lower() in HDF else column(utterance_id)


def column(utterance_id: str) -> str:
    """An utterance id as one column of a text file."""
    return re.sub(r"\s", "_", utterance_id)


def phones(path: Path) -> dict[str, list[Interval]]:
    """Times of phones by the name of the utterance (`key`), in seconds from its start.

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
    found = returnn_hdf.read(path) if path.suffix.lower() in HDF else _kaldi(path)
    for name, labels in found.items():
        if len(labels) and not 0 <= labels.min() <= labels.max() <= MAX_PDF:
            raise DataError(f"{path}: utterance {name}: a pdf must be from 0 to {MAX_PDF:,}")
    return {name: labels.astype(np.int16) for name, labels in found.items()}


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


def mapped(labels: Labels, mapping: Mapping[int, int], where: str) -> Labels:
    """Labels in our pdfs. Raises DataError, which begins with `where`, for a pdf that the map lacks."""
    if lacking := sorted(set(labels.tolist()) - mapping.keys()):
        raise DataError(f"{where}: the map has no line for the pdf {lacking[0]}")
    return np.array([mapping[pdf] for pdf in labels.tolist()], np.int16)


def covering(intervals: Sequence[Interval], duration_s: float, silence: str) -> list[Interval]:
    """Intervals with silence in the gaps between them, before and after them."""
    starts, ends = [0.0, *(each.end_s for each in intervals)], [*(each.start_s for each in intervals), duration_s]
    gaps = [Interval(start, end, silence) for start, end in zip(starts, ends, strict=True) if end > start]
    return _ordered([*intervals, *gaps])


def _ctm(path: Path) -> dict[str, list[Interval]]:
    found: dict[str, list[Interval]] = {}
    for mark in ctm.read(path):
        if mark.tag is not None:
            raise DataError(f"{path}: {mark.file}: alternatives ({mark.text}) are no alignment")
        end_s = round(mark.start_s + mark.duration_s, 6)
        found.setdefault(mark.file, []).append(Interval(mark.start_s, end_s, mark.text))
    return {name: _ordered(intervals) for name, intervals in found.items()}


def _ordered(intervals: Sequence[Interval]) -> list[Interval]:
    return sorted(intervals, key=lambda each: each.start_s)


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


def _kaldi(path: Path) -> dict[str, Labels]:
    found: dict[str, Labels] = {}
    for number, line in text_files.lines(path):
        name, *fields = line.split()
        if not fields or not all(map(text_files.is_integer, fields)):
            raise DataError(f"{path}:{number}: a line is an utterance id and the pdfs of its frames: u1 4 4 4 17 17")
        if name in found:
            raise DataError(f"{path}:{number}: the utterance {name} is in a line above already")
        found[name] = np.array(fields, np.int64)
    return found
