"""TIMIT in the tree of the LDC (LDC93S1), with the splits of Kaldi's recipe.

Training: 462 speakers without the SA sentences (3696 utterances); development 50 speakers (400) and core test 24
speakers (192) of the test part. Any case of folder and file names, RIFF or SPHERE audio.
"""

import functools
import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from las.data.corpora.base import Corpus, audio_duration, stamp
from las.data.manifest import Interval, Utterance
from las.data.tokenizers import Tokenizer
from las.runtime.errors import DataError, first_of, suggest
from las.scoring import phones
from las.storage import text_files

# Rate in Hz of the sample numbers in .PHN files, whatever the rate of the audio is.
_LABEL_RATE = 16000
_OVERHANG_S = 0.1
_EXPECTED = {"train": (3696, 462), "dev": (400, 50), "test": (192, 24)}
_ABSENT = {"dev": "development", "test": "core test"}
_RIGHT_TREE = """A right tree looks like this (upper or lower case):
  TIMIT/TRAIN/DR1/FCJF0/SA1.WAV  SA1.PHN  SA1.TXT ...
  TIMIT/TEST/DR1/FAKS0/SA1.WAV ...
Set corpus.root to the folder that holds TRAIN and TEST, or to the one above it"""


@dataclass(frozen=True)
class Recording:
    """Files of one sentence of one speaker, in a tree of TIMIT's layout."""

    speaker: str
    sentence: str
    wav: Path
    phn: Path

    @property
    def id(self) -> str:
        """Id of the utterance: speaker and sentence."""
        return f"{self.speaker}_{self.sentence}"


class TIMIT(Corpus):
    """Corpus TIMIT; `text` is the phones of `phone_set` (61, 48 or 39), scored as 39, `alignment` the 61 labels.

    `partial` accepts an incomplete copy. If it has no development or no core test speakers, that split is the training
    utterances, as `notes()` states.
    """

    sample_rate = 16000
    metric = "phone_error_rate"

    def __init__(self, name: str, root: str, tokens: Tokenizer, partial: bool = False, phone_set: int = 48) -> None:
        super().__init__(name, tokens)
        phones.phone_set(phone_set)
        self.root = Path(root).expanduser().absolute()
        self.partial = partial
        self.phone_set = phone_set

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"root": str(self.root), "partial": self.partial, "phone_set": self.phone_set}

    def inventory(self) -> list[str]:
        return [
            f"{recording.id} {stamp(recording.phn)}" for split in self.splits for recording in self._recordings[split]
        ]

    def utterances(self, split: str) -> list[Utterance]:
        """List the utterances of a split. Raises DataError naming a faulty file (and line), or missing files."""
        split = self.known_split(split)
        recordings = self._recordings[split] or self._recordings["train"]
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(functools.partial(read, phone_set=self.phone_set), recordings))

    def phone_times(self, utterance: Utterance) -> list[Interval]:
        """Return times in phones of `phone_set`; deleted ones leave a gap."""
        folded = ((interval, phones.fold(interval.symbol, self.phone_set)) for interval in utterance.alignment)
        return [Interval(each.start_s, each.end_s, phone) for each, phone in folded if phone is not None]

    def normalise(self, text: str) -> list[str]:
        """Convert phones by the convention `timit_kaldi`: 39 phones, no `q`. Raises DataError for an unknown phone."""
        return phones.fold_text(text, 39)

    def notes(self) -> list[str]:
        """Return counts of a partial copy, and which of its splits are scored on the training utterances."""
        if not self.partial:
            return []
        notes = [f"{self.name}: a partial copy of TIMIT in {self.root}"]
        for split, (utterances, speakers) in _EXPECTED.items():
            counted = f"{_count(self._recordings[split])} (the whole corpus: {utterances} of {speakers})"
            absent = f"no {_ABSENT.get(split)} speakers in this copy: scored on the training utterances"
            notes.append(f"{split}: {counted if self._recordings[split] else absent}")
        return notes

    @functools.cached_property
    def _recordings(self) -> dict[str, list[Recording]]:
        """Recordings of each split, sorted by id. Raises DataError for an incomplete copy."""
        tree = find_tree(self.root)
        train, test = ([each for each in scan(tree, part) if each.sentence[:2] != "sa"] for part in ("train", "test"))
        recordings = {split: [each for each in test if each.speaker in _SPEAKERS[split]] for split in _SPEAKERS}
        recordings = {"train": train} | recordings
        if not self.partial:
            _require_all(tree, recordings)
        if not train:
            raise DataError(f"{tree}: there are no training utterances in it.\n{_RIGHT_TREE}")
        return recordings


def find_tree(root: Path) -> Path:
    """Find the folder with TRAIN and TEST: `root`, or a folder called timit (or data) up to two levels below it.

    Raises DataError that shows the expected tree.
    """
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder. Set corpus.root to your copy of TIMIT.\n{_RIGHT_TREE}")
    level = [root]
    for _ in range(3):
        for folder in level:
            if any(_folders(part, "dr") for part in _folders(folder, "train") + _folders(folder, "test")):
                return folder
        level = [child for folder in level for name in ("timit", "data") for child in _folders(folder, name)]
    raise DataError(f"{root}: no TIMIT here: found neither TRAIN/DR1 nor TEST/DR1 in it.\n{_RIGHT_TREE}")


def scan(tree: Path, part: str) -> list[Recording]:
    """List the recordings of a part (`train` or `test`) of a tree of TIMIT's layout, sorted by id.

    Raises DataError naming a missing .WAV, .PHN or .TXT file whose siblings exist.
    """
    dialects = (region for folder in _folders(tree, part) for region in _folders(folder, "dr"))
    speakers = (entry for dialect in dialects for entry in sorted(dialect.iterdir()) if entry.is_dir())
    return sorted(itertools.chain.from_iterable(map(_sentences, speakers)), key=lambda recording: recording.id)


def read(recording: Recording, phone_set: int = 48) -> Utterance:
    """Read the utterance of a recording: text folded to `phone_set`, alignment in the labels of the .PHN file.

    The duration is 0 if the audio cannot be read. Raises DataError with file and line for an invalid .PHN file.
    """
    duration_s = audio_duration(recording.wav)
    alignment = read_phones(recording.phn, duration_s)
    folded = (phones.fold(interval.symbol, phone_set) for interval in alignment)
    text = " ".join(phone for phone in folded if phone is not None)
    return Utterance(recording.id, str(recording.wav), 0, 0.0, duration_s, text, recording.speaker, alignment)


def read_phones(path: Path, duration_s: float = 0.0) -> tuple[Interval, ...]:
    """Read the lines `start end label` of a .PHN file (samples at 16 kHz); returns times in seconds.

    The last label may end before the audio, or up to 0.1 s after it; a `duration_s` of 0 is unknown.
    Raises DataError naming file and line.
    """
    intervals: list[Interval] = []
    for number, line in text_files.lines(path):
        previous_s = intervals[-1].start_s if intervals else 0.0
        intervals.append(_interval(line, f"{path}:{number}", previous_s, duration_s))
    if not intervals:
        raise DataError(f"{path}: there are no phone labels in it. Copy it again")
    return tuple(intervals)


def _interval(line: str, where: str, previous_s: float, duration_s: float) -> Interval:
    words = line.split()
    if len(words) != 3 or not (text_files.is_integer(words[0]) and text_files.is_integer(words[1])):
        raise DataError(f"{where}: {line!r} is not `start end label` with times in samples")
    start_s, end_s, label = int(words[0]) / _LABEL_RATE, int(words[1]) / _LABEL_RATE, words[2]
    if label not in phones.LABELS:
        raise DataError(f"{where}: {label!r} is not one of TIMIT's 61 phone labels.{suggest(label, phones.LABELS)}")
    if not previous_s <= start_s <= end_s:
        raise DataError(f"{where}: {line!r} ends before it starts, or starts before the label above it")
    if duration_s and end_s > duration_s + _OVERHANG_S:
        times = f"the label ends at {end_s:.3f} s, the audio at {duration_s:.3f} s"
        raise DataError(f"{where}: {times}: not the same speech")
    return Interval(start_s, end_s, label)


def _folders(folder: Path, name: str) -> list[Path]:
    """Find the folders called `name` in any case; for `dr` those of the dialect regions, dr1 to dr8."""
    names = {f"dr{region}" for region in range(1, 9)} if name == "dr" else {name}
    return sorted(entry for entry in folder.iterdir() if entry.name.lower() in names and entry.is_dir())


def _sentences(folder: Path) -> list[Recording]:
    """List the recordings of a speaker's folder; files of one recording agree up to the first dot."""
    files: dict[str, dict[str, Path]] = {}
    for entry in sorted(folder.iterdir()):
        stem, _, extension = entry.name.lower().partition(".")
        if stem and extension in ("wav", "phn", "txt"):
            files.setdefault(stem, {})[extension] = entry
    recordings = []
    for sentence, paths in files.items():
        missing = next((extension for extension in ("wav", "phn", "txt") if extension not in paths), None)
        if missing is not None:
            other = next(iter(paths.values()))
            extension = missing if other.suffix.islower() else missing.upper()
            raise DataError(f"{other.with_suffix('.' + extension)} is missing next to {other.name}. Copy it again")
        recordings.append(Recording(folder.name.lower(), sentence, paths["wav"], paths["phn"]))
    return recordings


def _require_all(tree: Path, recordings: dict[str, list[Recording]]) -> None:
    complaints = [
        f"  {split}: {_count(listed)}, expected {utterances} of {speakers}{_missing(split, listed)}"
        for split, (utterances, speakers) in _EXPECTED.items()
        if len(listed := recordings[split]) != utterances
    ]
    if complaints:
        first = f"{tree}: this is not the whole of TIMIT (the SA sentences not counted):"
        last = "Copy the missing files, or set corpus.partial=true to accept a sample, which prints its counts"
        raise DataError("\n".join([first, *complaints, last]))


def _missing(split: str, recordings: list[Recording]) -> str:
    """Missing speakers of dev and test, and speakers with fewer than 8 sentences, as text for an error."""
    sentences = Counter(recording.speaker for recording in recordings)
    names = sorted(_SPEAKERS.get(split, frozenset()) - sentences.keys())
    names += sorted(f"{speaker} ({count} of 8 sentences)" for speaker, count in sentences.items() if count != 8)
    return f"; missing {first_of(names, 5)}" if names else ""


def _count(recordings: list[Recording]) -> str:
    return f"{len(recordings)} utterances of {len({recording.speaker for recording in recordings})} speakers"


_DEV = """
faks0 fdac1 fjem0 mgwt0 mjar0 mmdb1 mmdm2 mpdf0 fcmh0 fkms0 mbdg0 mbwm0 mcsh0 fadg0 fdms0 fedw0 mgjf0 mglb0 mrtk0
mtaa0 mtdt0 mthc0 mwjg0 fnmr0 frew0 fsem0 mbns0 mmjr0 mdls0 mdlf0 mdvc0 mers0 fmah0 fdrw0 mrcs0 mrjm4 fcal1 mmwh0
fjsj0 majc0 mjsw0 mreb0 fgjd0 fjmg0 mroa0 mteb0 mjfc0 mrjr0 fmml0 mrws1
"""
_CORE_TEST = """
mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0 mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0
mnjm0 fdhc0 mjln0 mpam0 fmld0
"""

DEV = frozenset(_DEV.split())
CORE_TEST = frozenset(_CORE_TEST.split())
_SPEAKERS = {"dev": DEV, "test": CORE_TEST}
