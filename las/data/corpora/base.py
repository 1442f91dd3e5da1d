"""What every corpus offers: utterances by split, prepared manifests, a check of the data, and a table of counts."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from las.data import manifest, quality
from las.data.audio import files
from las.data.audio_scan import AudioScanCache
from las.data.manifest import Utterance
from las.data.quality import QualityCriteria, QualityLimits, QualityProblem
from las.data.tokenizers import Tokenizer
from las.runtime import config_groups
from las.runtime.errors import ConfigError, DataError, suggest
from las.scoring import error_rates
from las.scoring.error_rates import Score
from las.storage import atomic, bounded

# Part of the settings hash: raise it when the same settings begin to mean other manifests.
_FORMAT = 1
DEFAULT_LIMITS = QualityLimits()


class SplitRow(NamedTuple):
    """One split in numbers: `symbols` counts the output symbols of all transcripts."""

    split: str
    utterances: int
    hours: float
    speakers: int
    symbols: int
    shortest_s: float
    longest_s: float


class Corpus(ABC):
    """A corpus: `utterances(split)` and `normalise(text)` are what a new one has to write.

    The first of its `splits` is trained on, the second tells when training is good; all but the first are decoded and
    scored at the end.

    >>> import las
    >>> class Digits(las.Corpus):
    ...     # Files named by speaker and word, such as ann_one.wav.
    ...     metric = "word_error_rate"
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
    sample_rate: int = 16000
    channels: int = 1

    def __init__(self, name: str, tokens: Tokenizer) -> None:
        config_groups.check_name("corpus.name", name)
        self.name = name
        self.tokens = tokens

    def __repr__(self) -> str:
        splits = ", ".join(self.splits)
        return f"{type(self).__name__}({self.name}: {splits}; {self.sample_rate:,} Hz, {self.tokens!r})"

    @abstractmethod
    def utterances(self, split: str) -> list[Utterance]:
        """The utterances of a split, sorted by id; those whose audio cannot be read have a duration of 0.

        Raises ConfigError for an unknown split, DataError for a tree or transcripts that cannot be used.
        """

    @abstractmethod
    def normalise(self, text: str) -> list[str]:
        """The tokens that are scored: those of a reference or hypothesis, after the corpus's scoring convention."""

    def score(self, split: str, utterances: Sequence[Utterance], texts: Mapping[str, str]) -> Score:
        """Errors of the decoded `texts`, by utterance id, of one split: here by the scored form of both sides."""
        return error_rates.error_rate(
            references={utterance.id: self.normalise(utterance.text) for utterance in utterances},
            hypotheses={name: self.normalise(text) for name, text in texts.items()},
            speakers={utterance.id: utterance.speaker for utterance in utterances},
        )

    def provenance(self, split: str) -> dict[str, str]:
        """What a result must say about how a split was scored, such as the file of mapping rules: here nothing."""
        self.known_split(split)
        return {}

    def settings(self) -> dict[str, Any]:
        """All that decides what the manifests hold, as plain JSON values."""
        return {"format": _FORMAT, "name": self.name, "splits": list(self.splits), "tokens": self.tokens.settings()}

    def inventory(self) -> list[str]:
        """What of the corpus is there: when this changes, manifests are made again.

        Names of recordings, and the `stamp` of each transcript, so that one that was mended is read again.
        """
        return []

    def notes(self) -> list[str]:
        """Lines a user should read before trusting numbers on this copy of the corpus."""
        return []

    def known_split(self, split: str) -> str:
        """The split itself. Raises ConfigError naming the nearest ones when there is none of that name."""
        if split not in self.splits:
            raise ConfigError(f"{self.name} has no split {split!r}.{suggest(split, self.splits)}")
        return split

    def prepare(self, directory: str | Path) -> dict[str, list[Utterance]]:
        """Every split's utterances, from `<directory>/<name>-<settings hash>/<split>.jsonl`, written where need be.

        Manifests are made again when settings or `inventory` differ, when a manifest is damaged, and when some audio
        could not be read last time. Tokens that are learned learn from the well-formed training transcripts here, and
        keep what they learned in the same folder. Raises DataError as `utterances` and `Tokenizer.learn` do.
        """
        settings = self.settings()
        text = json.dumps([settings, self.inventory()], sort_keys=True, ensure_ascii=True)
        folder = Path(directory) / f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        prepared = _prepared(folder, self.splits)
        if prepared is None:
            prepared = {split: self.utterances(split) for split in self.splits}
            hashes = {split: manifest.write(folder / f"{split}.jsonl", listed) for split, listed in prepared.items()}
            atomic.write_json(folder / "index.json", {"settings": settings, "content_hashes": hashes})
        texts = (utterance.text for utterance in prepared[self.splits[0]])
        self.tokens.learn(filter(quality.is_well_formed, texts), folder)
        return prepared

    def problems(
        self,
        utterances: Iterable[Utterance],
        num_states: Callable[[int], int] | None = None,
        num_workers: int = 2,
        limits: QualityLimits = DEFAULT_LIMITS,
        readings: AudioScanCache | None = None,
        what: str = "audio files read",
    ) -> list[QualityProblem]:
        """What keeps utterances from being trained on, in their order: one entry for each that has a problem.

        Every audio file is read to its end, except those of which `readings` remember what was found. Problems are
        audio that is missing, unreadable, damaged, too short or too long, of another rate or number of channels,
        silent or clipped; transcripts that are empty, hold control characters, decomposed Unicode or unknown symbols,
        and, where `num_states` gives the listener's output rows for a number of samples, more symbols than that. The
        caller lists the problems and leaves these utterances out of training; those of dev and test are never left
        out. `what` is said of the progress.
        """
        asked = QualityCriteria(self.tokens, self.sample_rate, self.channels, limits, num_states)
        return quality.problems(list(utterances), asked, readings or AudioScanCache(), num_workers, what)

    def table(self, prepared: dict[str, list[Utterance]]) -> list[SplitRow]:
        """The rows of the table that `las prepare` prints."""
        return [self._row(split, utterances) for split, utterances in prepared.items()]

    def _row(self, split: str, utterances: list[Utterance]) -> SplitRow:
        durations = [utterance.duration_s for utterance in utterances]
        return SplitRow(
            split=split,
            utterances=len(utterances),
            hours=sum(durations) / 3600,
            speakers=len({utterance.speaker for utterance in utterances}),
            symbols=sum(len(self.tokens.split(utterance.text)) for utterance in utterances),
            shortest_s=min(durations, default=0.0),
            longest_s=max(durations, default=0.0),
        )


def stamp(path: str | Path) -> str:
    """Name, size and time of change of a file, without reading it; the name alone where there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return str(path)
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def audio_duration(path: str | Path) -> float:
    """Seconds of audio in a file, or 0 where it cannot be read: `Corpus.problems` then says why."""
    try:
        return files.info(path).duration_s
    except DataError:
        return 0.0


def _prepared(folder: Path, splits: tuple[str, ...]) -> dict[str, list[Utterance]] | None:
    """The manifests of a folder if all are whole and all their audio could be read, else None."""
    try:
        hashes = bounded.read_object(folder / "index.json")["content_hashes"]
        prepared = {split: manifest.read(folder / f"{split}.jsonl") for split in splits}
    except (OSError, ValueError, KeyError, DataError):
        return None
    whole = all(manifest.content_hash(listed) == hashes.get(split) for split, listed in prepared.items())
    readable = all(utterance.duration_s > 0 for listed in prepared.values() for utterance in listed)
    return prepared if whole and readable else None
