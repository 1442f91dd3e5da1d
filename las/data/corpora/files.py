"""One's own recordings, described by files: JSON lines, tables, Kaldi folders, folders of audio with texts.

`las.data.sources` reads the formats. Here entries become splits: ids, texts by the rules, what is held out, symbols
learned from the training texts, one sample rate.
"""

import filecmp
import functools
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from las.config import groups
from las.config.build import require
from las.data import learned_symbols, quality
from las.data.audio import files, streaming
from las.data.corpora import files_notes, files_snapshot
from las.data.corpora.base import Corpus, stamp
from las.data.manifest import Utterance
from las.data.quality import AudioScanCache, Headers
from las.data.sources import fields, formats, parts, utterances
from las.data.sources.base import Entry, ReadingOptions
from las.data.text_rules import TextRules
from las.data.tokenizers import Tokenizer
from las.runtime import devices, progress
from las.runtime.errors import ConfigError, DataError, require_known
from las.storage import atomic

Paths = str | Sequence[str]
HELD_OUT = ("speakers", "utterances")


class Contents(NamedTuple):
    """Entries of each split after the rules for texts, their texts before, the files that were read, and remarks.

    `listed`: every audio file is named in one of the files, and none was found by looking into folders.
    """

    entries: dict[str, list[Entry]]
    texts: list[str]
    files: list[Path]
    remarks: list[str]
    listed: bool


class FilesCorpus(Corpus):
    """Corpus of recordings described by files.

    Args:
        name: name of the folders of runs and manifests.
        train: a source or several; `dev` and `test` likewise, None for those held out of train.
        resampled: folder of the resampled copies of files of another rate.
        format: name of the format of all sources; None: recognised.
        audio_root: folder that relative paths of audio start from; None: that of the file that names them.
        columns: names of columns by role, where they are not the usual ones.
        channel: channel of the files whose source names none, counted from 0.
        sample_rate: in Hz; None: that of most training files.
        dev_share: share of the training utterances that is held out as dev.
        test_share: share that is held out as test; 0: no test.
        seed: of what is held out.
        hold_out: whole `speakers`, where they are known, or single `utterances`.
        unit: output symbols: characters, words, phones, or bpe with as many `pieces`.
        text: rules for the texts.
        metric: error rate, wer or cer; None: wer, of unit=phones the phone error rate.

    Sources are read, headers of audio files too, when tokens, sample rate or splits are first asked for. Raises
    DataError naming files and lines that cannot be used.
    """

    channels = None

    def __init__(
        self,
        name: str,
        train: Paths,
        resampled: str,
        dev: Paths | None = None,
        test: Paths | None = None,
        format: str | None = None,
        audio_root: str | None = None,
        columns: dict[str, str | None] | None = None,
        channel: int | None = None,
        sample_rate: int | None = None,
        dev_share: float = 0.05,
        test_share: float = 0.05,
        seed: int = 1,
        hold_out: str = "speakers",
        unit: str = "characters",
        pieces: int = 1000,
        text: TextRules | None = None,
        metric: str | None = None,
    ) -> None:
        groups.check_name("corpus.name", name)
        formats.check_format(format)
        require_known("unit", unit, learned_symbols.UNITS)
        require_known("hold_out", hold_out, HELD_OUT)
        for role in columns or {}:
            require_known("columns", role, fields.USUAL)
        require("dev_share", dev_share, 0.0, 0.5)
        require("test_share", test_share, 0.0, 0.5)
        require("channel", channel, 0)
        require("pieces", pieces, 1)
        self.name = name
        given = {"train": _paths(train), "dev": _paths(dev), "test": _paths(test)}
        self.sources, self._parts = parts.divided(given)
        if not self.sources["dev"] and dev_share == 0:
            raise ConfigError("corpus.dev_share=0 leaves nothing to validate on: name corpus.dev=..., or hold some out")
        shares = {"dev": dev_share, "test": test_share}
        self.shares = {split: share for split, share in shares.items() if share and not self.sources[split]}
        self.splits = tuple(split for split in self.sources if self.sources[split] or split in self.shares)
        self.metric = "phone_error_rate" if unit == "phones" else "wer"
        self.metric = self.chosen_metric(metric)
        self.unit, self.pieces, self.seed, self.hold_out = unit, pieces, seed, hold_out
        self.text = text or TextRules()
        if unit in ("words", "phones"):
            self.text = self.text.for_whole_words()
        self.resampled = Path(resampled).expanduser()
        self.manifests: Path | None = None
        self._notes: list[str] | None = None
        self._format, self._channel, self._sample_rate = format, channel, sample_rate
        root = None if audio_root is None else Path(audio_root).expanduser()
        self._options = ReadingOptions(columns or {}, root)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {', '.join(self.splits)}; {self.unit})"

    # The base class has plain attributes; here two of them are known only when the sources have been read.
    @functools.cached_property
    def tokens(self) -> Tokenizer:  # type: ignore[override]
        """The tokenizer of the unit, with the symbols of the training texts."""
        texts = filter(quality.is_well_formed, (entry.text for entry in self.contents.entries["train"]))
        return learned_symbols.tokenizer(self.unit, texts, self.pieces, self.name)

    @functools.cached_property
    def sample_rate(self) -> int:  # type: ignore[override]
        """The given sample rate in Hz, or that of most training files (of two equally frequent ones, the higher)."""
        if self._sample_rate is not None:
            return self._sample_rate
        rates = utterances.rates((entry.audio for entry in self.contents.entries["train"]), self.headers)
        if not rates:
            files.info(self.contents.entries["train"][0].audio)  # raises the reason for the first one
        return max(rates, key=lambda rate: (rates[rate], rate))

    @functools.cached_property
    @devices.garbage_paused()
    def headers(self) -> Headers:
        """Headers of all audio files, None for those that cannot be read."""
        paths = (entry.audio for listed in self.contents.entries.values() for entry in listed)
        cached = self.resampled.with_name(f"{self.resampled.name}.headers.jsonl")
        return AudioScanCache.remembered(cached).headers(sorted(set(paths)))

    @functools.cached_property
    @devices.garbage_paused()
    def contents(self) -> Contents:
        """The sources, read, checked and divided into splits."""
        entries: dict[str, list[Entry]] = {}
        read_files: list[Path] = []
        remarks, names = list(self._parts), set()
        for split, path in ((split, path) for split, paths in self.sources.items() for path in paths):
            name, source = formats.read(path, self._format, self._options)
            names.add(name)
            entries.setdefault(split, []).extend(source.entries)
            read_files += source.files
            remarks += [f"{split}: {len(source.entries):,} utterances of {path}, read as {name}", *source.remarks]
        entries = {split: utterances.identified(self._with_channel(listed)) for split, listed in entries.items()}
        everything = [entry for listed in entries.values() for entry in listed]
        utterances.require_audio(everything)
        divided, of_division = self._divided({split: self._ruled(listed) for split, listed in entries.items()})
        texts, is_listed = [entry.text for entry in everything], names.isdisjoint(formats.SEARCHED)
        return Contents(divided, texts, read_files, remarks + of_division, is_listed)

    def _with_channel(self, entries: list[Entry]) -> list[Entry]:
        """Entries with the given channel where their source names none."""
        return [each if each.channel is not None else each._replace(channel=self._channel) for each in entries]

    def _ruled(self, entries: list[Entry]) -> list[Entry]:
        ruled = zip(entries, self.text.apply_all(entry.text for entry in entries), strict=True)
        return [entry if text is entry.text else entry._replace(text=text) for entry, text in ruled]

    def _divided(self, entries: dict[str, list[Entry]]) -> tuple[dict[str, list[Entry]], list[str]]:
        """Hold splits out of train. Returns the entries by split, and a remark for each split held out."""
        if not self.shares:
            return entries, []
        train = entries["train"]
        if len(train) <= len(self.shares):
            splits = " and ".join(self.shares)
            raise DataError(f"{self.name}: train has too few utterances ({len(train)}) to hold out {splits}")
        held_out, reason = utterances.divide(train, self.shares, self.seed, self.hold_out == "speakers")
        if not held_out["train"]:
            raise DataError(f"{self.name}: nothing of train remains besides what is held out: lower corpus.dev_share")
        divided = {split: (entries | held_out)[split] for split in self.splits}
        remarks = [files_notes.held_out(split, divided[split], train, reason, self.seed) for split in self.shares]
        num_taken = len(train) - len(divided["train"])
        return divided, remarks + files_notes.much_held_out(self.shares, num_taken, len(train), not reason)

    def utterances(self, split: str) -> list[Utterance]:
        """List the utterances of a split; files of another rate are resampled. Raises DataError as `contents` does."""
        entries = self.contents.entries[self.known_split(split)]
        of_copies = AudioScanCache().headers(map(str, self.copies.values()))
        infos = dict(self.headers) | {path: of_copies[str(copy)] for path, copy in self.copies.items()}
        return utterances.utterances(entries, infos, self.copies)

    def normalise(self, text: str) -> list[str]:
        """Split a text into words, or phones."""
        return text.split()

    def settings(self) -> dict[str, Any]:
        return super().settings() | self._given() | {"sample_rate": self.sample_rate}

    def _given(self) -> dict[str, Any]:
        """Options that determine the manifests, as far as they are known before the sources are read."""
        return {
            "sources": {split: [str(path.absolute()) for path in paths] for split, paths in self.sources.items()},
            "format": self._format,
            "columns": dict(self._options.columns),
            "audio_root": str(self._options.audio_root),
            "channel": self._channel,
            "sample_rate": self._sample_rate,
            "shares": self.shares,
            "seed": self.seed,
            "text": self.text.settings(),
        } | ({} if self.hold_out == "speakers" else {"hold_out": self.hold_out})

    def inventory(self) -> list[str]:
        """Inventory with the resampled copies, which are thereby written again where they are gone."""
        described = [stamp(path) for path in self.contents.files]
        sizes = {path: info and (info.sample_rate, info.num_samples) for path, info in self.headers.items()}
        return described + [f"{path} {size} {self.copies.get(path, '')}" for path, size in sizes.items()]

    def notes(self) -> list[str]:
        """Return the notes about sources, held-out parts, speakers, sample rates, texts and symbols."""
        if self._notes is not None:
            return self._notes
        rates = utterances.rates(self.headers, self.headers)
        changes = [f"  {change}" for change in self.text.changes(self.contents.texts)]
        paths = [] if self.manifests is None else [f"{self.manifests / split}.jsonl" for split in self.splits]
        return [
            *self.contents.remarks,
            *files_notes.overlaps(self.contents.entries),
            *files_notes.rates(rates, self.sample_rate, self.resampled),
            *files_notes.cut(self.contents.entries, self.headers),
            *files_notes.empty(self.contents.entries),
            *files_notes.unknown_words(self.contents.entries),
            *files_notes.symbols(self.tokens, self.unit),
            *(["texts changed by corpus.text:", *changes] if changes else []),
            *([f"manifests: {', '.join(paths)}"] if paths else []),
        ]

    @devices.garbage_paused()
    def prepare(self, directory: str | Path) -> dict[str, list[Utterance]]:
        """Prepare the corpus as `Corpus.prepare` does; write the manifests also to `<directory>/<name>/<split>.jsonl`.

        There they are replaced by those of the next preparation under this name, with whatever settings. The sources
        are read only if they, an audio file or the options differ from those of the last preparation
        (`files_snapshot`); where folders were searched for audio, or some was resampled, they always are.
        """
        self.manifests = Path(directory) / self.name
        path = self.manifests.with_name(f"{self.name}.sources.json")
        options = self._given() | {"unit": self.unit, "pieces": self.pieces, "directory": str(directory)}
        snapshot = files_snapshot.recall(path, options)
        if snapshot is None:
            snapshot = self._prepared(Path(directory))
            unread = any(utterance.duration_s == 0 for listed in snapshot.splits.values() for utterance in listed)
            if self.contents.listed and not self.copies and not unread:
                named = (source for paths in self.sources.values() for source in paths)
                files_snapshot.store(path, options, [*named, *self.contents.files], snapshot)
        else:
            self.tokens = learned_symbols.tokenizer(self.unit, snapshot.symbols, self.pieces, self.name)
            self.sample_rate, self._notes = snapshot.sample_rate, snapshot.notes
            self.learn_tokens(snapshot.splits, snapshot.folder)
        for split in snapshot.splits:
            _copy_changed(snapshot.folder / f"{split}.jsonl", self.manifests / f"{split}.jsonl")
        return snapshot.splits

    def _prepared(self, directory: Path) -> files_snapshot.Snapshot:
        folder = self.folder(directory)
        try:
            prepared = self.prepare_in(folder)
        except DataError as error:
            raise DataError(str(error).replace("corpus.tokens.size", "corpus.pieces"), error.kind) from error
        return files_snapshot.Snapshot(folder, prepared, self.sample_rate, list(self.tokens.symbols[1:]), self.notes())

    def stored(self, folder: Path) -> None:
        """Read none: the sources have been read by now, and what is made of them is compared with the manifests."""

    @functools.cached_property
    def copies(self) -> dict[str, Path]:
        """Resampled copies of the files of another rate, by path; those that are not there are written.

        Damaged files have none: the check of the corpus reads them, and names the damage.
        """
        infos = self.headers.items()
        other = [path for path, info in infos if info is not None and info.sample_rate != self.sample_rate]
        with ThreadPoolExecutor(2) as pool:
            copying = pool.map(self._copy, other)
            copies = list(progress.counted(copying, len(other), "audio files resampled"))
        return {path: copy for path, copy in zip(other, copies, strict=True) if copy is not None}

    def _copy(self, path: str) -> Path | None:
        try:
            return streaming.resampled_copy(Path(path), self.sample_rate, self.resampled)
        except DataError:
            return None


def _copy_changed(source: Path, target: Path) -> None:
    if not (target.is_file() and filecmp.cmp(source, target, shallow=False)):
        with source.open("rb") as content, atomic.opened(target, durable=True) as copy:
            shutil.copyfileobj(content, copy)


def _paths(given: Paths | None) -> list[Path]:
    listed = [given] if isinstance(given, str) else list(given or ())
    return [Path(path).expanduser() for path in listed]
