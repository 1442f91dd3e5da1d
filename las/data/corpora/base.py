"""Base of corpora: utterances by split, prepared manifests, a check of the data, and a table of counts."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from las.config import groups
from las.data import manifest, packing, quality
from las.data.audio import files
from las.data.manifest import Interval, Utterance
from las.data.quality import AudioScanCache, QualityCriteria, QualityLimits, QualityProblem
from las.data.tokenizers import Tokenizer
from las.runtime import devices
from las.runtime.errors import ConfigError, DataError, suggest
from las.scoring import error_rates
from las.scoring.error_rates import Score
from las.storage import atomic, bounded

# Part of the settings hash: raise it when the same settings begin to mean other manifests.
_FORMAT = 1
DEFAULT_LIMITS = QualityLimits()


class Recording(NamedTuple):
    """Recording of one utterance, as a corpus's own files list it."""

    id: str
    speaker: str
    audio: str
    text: str

    def utterance(self) -> Utterance:
        """Read the header of the audio; the duration is 0 if it cannot be read."""
        return Utterance(self.id, self.audio, 0, 0.0, audio_duration(self.audio), self.text, self.speaker)


class SplitRow(NamedTuple):
    """Statistics of a split: `symbols` counts the output symbols of all transcripts."""

    split: str
    utterances: int
    hours: float
    speakers: int
    symbols: int
    shortest_s: float
    longest_s: float


class Corpus(ABC):
    """Base of corpora; a new one defines `utterances(split)` and `normalise(text)`, and names its `metric`.

    The first of `splits` is the training part, the second is validated on during training; all but the first are
    decoded and scored at the end.

    >>> import las
    >>> class Digits(las.Corpus):
    ...     # Files named by speaker and word, such as ann_one.wav.
    ...     metric = "wer"
    ...     def utterances(self, split):
    ...         speaker = {"train": "ann", "dev": "bob", "test": "eve"}[self.known_split(split)]
    ...         ids = [f"{speaker}_{word}" for word in ("one", "two")]
    ...         return [las.Utterance(each, f"{each}.wav", 0, 0.0, 1.0, each[4:], speaker) for each in ids]
    ...     def normalise(self, text):
    ...         return text.split()
    ...
    >>> corpus = Digits("digits", las.Characters("entow"))
    >>> corpus
    Digits(digits: train, dev, test; 16,000 Hz, Characters(6 symbols: 'e' 'n' 't' 'o' 'w'))
    >>> score = corpus.score("train", corpus.utterances("train"), {"ann_one": "one", "ann_two": "one"})
    >>> score.total.rate, score.total.substitutions
    (0.5, 1)
    """

    splits: tuple[str, ...] = ("train", "dev", "test")
    metric: str = "phone_error_rate"
    """Error rate of the results and of the best checkpoint: `phone_error_rate`, `wer`, or `cer` of the same words."""
    sample_rate: int = 16000
    channels: int | None = 1
    """Channels that every file has; None: any number."""

    def __init__(self, name: str, tokens: Tokenizer, metric: str | None = None) -> None:
        groups.check_name("corpus.name", name)
        self.name = name
        self.tokens = tokens
        self.metric = self.chosen_metric(metric)

    def chosen_metric(self, metric: str | None) -> str:
        """Return the corpus's own metric, or another one of words. Raises ConfigError for any other."""
        own = error_rates.known_metric(self.metric)
        if metric not in (None, own) and not {error_rates.known_metric(str(metric)), own} <= {"wer", "cer"}:
            raise ConfigError(f"corpus.metric={metric}: this corpus is of {error_rates.UNITS[own]}: leave it out")
        return metric or own

    def __repr__(self) -> str:
        splits = ", ".join(self.splits)
        return f"{type(self).__name__}({self.name}: {splits}; {self.sample_rate:,} Hz, {self.tokens!r})"

    @abstractmethod
    def utterances(self, split: str) -> list[Utterance]:
        """List the utterances of a split, sorted by id; those whose audio cannot be read have a duration of 0.

        Raises ConfigError for an unknown split, DataError for a tree or transcripts that cannot be used.
        """

    @abstractmethod
    def normalise(self, text: str) -> list[str]:
        """Convert a reference or hypothesis to the tokens that are scored, by the corpus's scoring convention."""

    def score(self, split: str, utterances: Sequence[Utterance], texts: Mapping[str, str]) -> Score:
        """Score decoded `texts` (by utterance id) of a split, here by aligning the normalised texts."""
        return error_rates.error_rate(
            references={utterance.id: self.normalise(utterance.text) for utterance in utterances},
            hypotheses={name: self.normalise(text) for name, text in texts.items()},
            speakers={utterance.id: utterance.speaker for utterance in utterances},
            metric=self.metric,
        )

    @property
    def packed(self) -> Path | None:
        """The root of the corpus, if it is a folder of shards that `las pack` wrote."""
        root: Path | None = getattr(self, "root", None)
        return root if root is not None and packing.is_packed(root) else None

    def provenance(self, split: str) -> dict[str, str]:
        """Properties of the scoring that a result must state, such as the file of mapping rules; here none."""
        self.known_split(split)
        return {}

    def settings(self) -> dict[str, Any]:
        """Return settings that determine the content of the manifests, as plain JSON values."""
        return {"format": _FORMAT, "name": self.name, "splits": list(self.splits), "tokens": self.tokens.settings()}

    def inventory(self) -> list[str]:
        """Inventory of the corpus on disk; when it changes, manifests are written again.

        It has the names of recordings, and the `stamp` of each transcript, so that a corrected one is read again.
        """
        return []

    def phone_times(self, utterance: Utterance) -> list[Interval]:
        """Return times of the phones of an utterance in the symbols of its text, where the corpus knows them."""
        return list(utterance.alignment)

    def dictionary(self) -> Path | None:
        """Return the pronouncing dictionary that comes with the corpus; here none."""
        return None

    def notes(self) -> list[str]:
        """Return the notes about this copy of the corpus that matter for its error rates."""
        return []

    def known_split(self, split: str) -> str:
        """Return the split. Raises ConfigError with the nearest names for an unknown one."""
        if split not in self.splits:
            raise ConfigError(f"{self.name} has no split {split!r}.{suggest(split, self.splits)}")
        return split

    def prepare(self, directory: str | Path) -> dict[str, list[Utterance]]:
        """Read the utterances of all splits from `<directory>/<name>-<settings hash>/<split>.jsonl`, or write them.

        Manifests are written again when settings or `inventory` differ, when a manifest is damaged, and when some audio
        could not be read last time. Learned tokens are learned from the well-formed training transcripts, and stored
        in the same folder. A corpus whose root is a folder of shards (`las.data.packing`) is read from there. Raises
        DataError as `utterances` and `Tokenizer.learn` do.
        """
        if self.packed is None:
            return self.prepare_in(self.folder(directory))
        prepared = packing.read_packed(self.packed, self.splits, self.settings())
        self.learn_tokens(prepared, Path(directory) / f"{self.name}-shards")
        return prepared

    @devices.garbage_paused()
    def prepare_in(self, folder: Path) -> dict[str, list[Utterance]]:
        """Read the utterances of all splits from a folder, or write them into it, as `prepare` does."""
        prepared = self.stored(folder)
        if prepared is None:
            prepared = {split: self.utterances(split) for split in self.splits}
            hashes = {split: manifest.write(folder / f"{split}.jsonl", listed) for split, listed in prepared.items()}
            atomic.write_json(folder / "index.json", {"settings": self.settings(), "content_hashes": hashes})
        self.learn_tokens(prepared, folder)
        return prepared

    def learn_tokens(self, prepared: dict[str, list[Utterance]], folder: Path) -> None:
        """Learn the tokens from the well-formed training transcripts, or load them from the folder."""
        texts = (utterance.text for utterance in prepared[self.splits[0]])
        self.tokens.learn(filter(quality.is_well_formed, texts), folder)

    def folder(self, directory: str | Path) -> Path:
        """Folder of the manifests in `directory`, named by a hash of the settings and the inventory."""
        text = json.dumps([self.settings(), self.inventory()], sort_keys=True, ensure_ascii=True)
        return Path(directory) / f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def stored(self, folder: Path) -> dict[str, list[Utterance]] | None:
        """Read the manifests of a folder; None unless all are intact and all their audio could be read."""
        try:
            hashes = bounded.read_object(folder / "index.json")["content_hashes"]
            stored = {split: manifest.read(folder / f"{split}.jsonl") for split in self.splits}
        except (OSError, ValueError, KeyError, DataError):
            return None
        intact = all(manifest.content_hash(listed) == hashes.get(split) for split, listed in stored.items())
        readable = all(utterance.duration_s > 0 for listed in stored.values() for utterance in listed)
        return stored if intact and readable else None

    def problems(
        self,
        utterances: Iterable[Utterance],
        num_states: Callable[[int], int] | None = None,
        num_workers: int = 2,
        limits: QualityLimits = DEFAULT_LIMITS,
        readings: AudioScanCache | None = None,
        title: str = "audio files read",
        ctc: bool = True,
    ) -> list[QualityProblem]:
        """List the utterances that cannot be trained on, in their order, with the first problem of each.

        Every audio file is read to its end, except those that `readings` has an entry for. Problems are
        audio that is missing, unreadable, damaged, too short or too long, of another rate or number of channels,
        silent or clipped; transcripts that are empty, hold control characters, decomposed Unicode or unknown symbols,
        and, where `num_states` gives the number of encoded states of a number of samples, more symbols than states, or
        than CTC can align to them (`ctc`).
        The caller leaves these utterances out of training; those of dev and test are never left out. `title` describes
        the files in the progress.
        """
        criteria = QualityCriteria(self.tokens, self.sample_rate, self.channels, limits, num_states, ctc)
        return quality.problems(list(utterances), criteria, readings or AudioScanCache(), num_workers, title)

    def table(self, prepared: dict[str, list[Utterance]]) -> list[SplitRow]:
        """Rows of the table that `las prepare` prints."""
        rows = []
        for split, utterances in prepared.items():
            durations = [utterance.duration_s for utterance in utterances]
            speakers = {utterance.speaker for utterance in utterances} - {""}
            symbols = sum(len(self.tokens.split(utterance.text)) for utterance in utterances)
            shortest_s, longest_s = min(durations, default=0.0), max(durations, default=0.0)
            hours = sum(durations) / 3600
            rows.append(SplitRow(split, len(utterances), hours, len(speakers), symbols, shortest_s, longest_s))
        return rows


def stamp(path: str | Path) -> str:
    """Name, size and modification time of a file, without reading it; the name alone for a missing file."""
    try:
        status = Path(path).stat()
    except OSError:
        return str(path)
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def audio_duration(path: str | Path) -> float:
    """Duration of an audio file in seconds; 0 if it cannot be read, for which `Corpus.problems` gives the reason."""
    try:
        return files.info(path).duration_s
    except DataError:
        return 0.0
