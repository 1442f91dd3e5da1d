"""Labels of frames from alignments that other systems made (`las.hmm.imported` reads their files)."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from las.data.manifest import Utterance
from las.hmm import imported, labels
from las.hmm.frame_times import FrameTimes
from las.hmm.labels import LabelKind, Labels
from las.hmm.topology import Topology


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
        name = imported.key(utterance.id, self.path)
        if name not in self.names:
            return None
        return self.make(name, utterance, num_frames, f"{self.path}: utterance {utterance.id}")


def of_times(path: Path, topology: Topology, times: FrameTimes) -> ImportedLabels:
    """Labels from times of phones; gaps are silence where the topology has one, and have no label elsewhere."""
    found = imported.phones(path)

    def make(name: str, utterance: Utterance, num_frames: int, where: str) -> Labels:
        intervals = found[name]
        if topology.silences:
            intervals = imported.covering(intervals, utterance.duration_s, topology.silences[0])
        return labels.of_times(intervals, num_frames, topology, times, where)

    return ImportedLabels(path, found.keys(), LabelKind.of(topology, times), make)


def of_mapped_pdfs(path: Path, pdf_map: Path, topology: Topology, times: FrameTimes) -> ImportedLabels:
    """Labels from pdfs of frames that a file maps to states of phones (`imported.pdf_map`)."""
    found, mapping = imported.pdfs(path), imported.pdf_map(pdf_map, topology)

    def make(name: str, utterance: Utterance, num_frames: int, where: str) -> Labels:
        return labels.fitted(imported.mapped(found[name], mapping, where), num_frames, where)

    return ImportedLabels(path, found.keys(), LabelKind.of(topology, times), make)


def of_tied_pdfs(path: Path, num_pdfs: int | None, times: FrameTimes) -> ImportedLabels:
    """Labels from pdfs of frames as they are, such as those of tied triphones; None: one more than the highest."""
    found = imported.pdfs(path)
    highest = max((int(each.max()) for each in found.values() if len(each)), default=-1)

    def make(name: str, utterance: Utterance, num_frames: int, where: str) -> Labels:
        return labels.fitted(found[name], num_frames, where)

    return ImportedLabels(
        path, found.keys(), LabelKind.tied(highest + 1 if num_pdfs is None else num_pdfs, times), make
    )
