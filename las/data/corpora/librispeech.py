"""LibriSpeech and Mini LibriSpeech, in the tree of OpenSLR's archives (resources 12 and 31).

<part>/<speaker>/<chapter>/ holds <speaker>-<chapter>-<number>.flac and one <speaker>-<chapter>.trans.txt with lines
`<id> WORDS`. Copies may have the audio as .wav, .opus or .ogg instead. The training parts form one split, each other
part is a split of its own. `PARTS` lists all parts with the sizes and hashes of their archives.
"""

import functools
import itertools
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from las.data.corpora.base import Corpus, Recording, stamp
from las.data.manifest import Utterance
from las.data.tokenizers import Tokenizer
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, StorageError, first_of, suggest
from las.storage import archive, folders, text_files
from las.storage import download as storage_download

_NUM_THREADS = 8
_AUDIO = (".opus", ".ogg", ".wav", ".flac")
"""Endings of audio files; of two files of an utterance the one whose ending stands last is read."""
_RIGHT_TREE = """A right tree looks like this:
  LibriSpeech/train-clean-100/19/198/19-198-0000.flac  19-198-0001.flac ...  19-198.trans.txt
  LibriSpeech/dev-clean/84/121123/...
Set corpus.root to the folder LibriSpeech or to the one above it; corpus.download=true fetches what is not there"""


class Listing(NamedTuple):
    """Content of a chapter or a part: utterances, ids of those without audio or text, stamps of transcripts."""

    recordings: list[Recording]
    no_audio: list[str]
    no_text: list[str]
    transcripts: list[str]

    def lacking(self) -> str:
        """Text `; without audio: 19-198-0001 and 3 more; without text: ...`, empty for a complete listing."""
        named = {"without audio": self.no_audio, "without text": self.no_text}
        return "".join(f"; {label}: {first_of(names, 3)}" for label, names in named.items() if names)

    def counted(self, part: str) -> str:
        """Return the number of utterances of those that a part has, and what is lacking."""
        return f"{len(self.recordings)} utterances of {PARTS[part].utterances}{self.lacking()}"


class LibriSpeech(Corpus):
    """Corpus LibriSpeech: the parts `train` form the training split, each of `evaluate` is a split of its own.

    `text` is words in upper case. The first of `evaluate` is validated on during training. `partial` accepts an
    incomplete copy: parts of `evaluate` that it lacks are left out, except the first, which is then the training
    utterances, as `notes()` states. `download` fetches missing parts from OpenSLR.
    """

    sample_rate = 16000
    metric = "wer"

    def __init__(
        self,
        name: str,
        root: str,
        tokens: Tokenizer,
        train: Sequence[str],
        evaluate: Sequence[str],
        partial: bool = False,
        download: bool = False,
        metric: str | None = None,
    ) -> None:
        super().__init__(name, tokens, metric)
        for key, parts in (("train", train), ("evaluate", evaluate)):
            unknown = next((part for part in parts if part not in PARTS), None)
            if unknown is not None or not parts:
                raise ConfigError(
                    f"corpus.{key}={list(parts)}: expected one or more parts of LibriSpeech"
                    + (f", {unknown!r} is none.{suggest(unknown, PARTS)}" if unknown is not None else "")
                )
        self.root = Path(root).expanduser().absolute()
        self.tree = _tree(self.root)
        self.partial = partial
        self.download = download
        absent = [part for part in evaluate[1:] if partial and not download and _folder(self.tree, part) is None]
        self.left_out = tuple(absent)
        present = [part for part in evaluate if part not in absent]
        self.parts = {"train": list(train)} | {part.replace("-", "_"): [part] for part in present}
        self.splits = tuple(self.parts)

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"root": str(self.root), "partial": self.partial, "parts": self.parts}

    def inventory(self) -> list[str]:
        listings = self._listings.values()
        return [name for each in listings for name in (*(one.id for one in each.recordings), *each.transcripts)]

    def utterances(self, split: str) -> list[Utterance]:
        """List the utterances of a split. Raises DataError naming a faulty file (and line), or missing files."""
        split = self.known_split(split)
        recordings = [one for part in self.parts[split] for one in self._listings[part].recordings]
        if not recordings:
            return self.utterances("train")
        with ThreadPoolExecutor(_NUM_THREADS) as pool:
            read = pool.map(Recording.utterance, recordings)
            utterances = list(progress.counted(read, len(recordings), f"{split}: audio headers read"))
        return sorted(utterances, key=lambda utterance: utterance.id)

    def normalise(self, text: str) -> list[str]:
        """Split a text into words in upper case."""
        return text.upper().split()

    def notes(self) -> list[str]:
        """Return counts of a partial copy, and which of its splits are scored on the training utterances."""
        if not self.partial:
            return []
        notes = [f"{self.name}: a partial copy of LibriSpeech in {self.tree}"]
        for split, parts in self.parts.items():
            for part in parts:
                listing = self._listings[part]
                is_absent = split != "train" and not listing.recordings
                says = "not in this copy: scored on the training utterances" if is_absent else listing.counted(part)
                notes.append(f"{part}: {says}")
        notes += [f"{part}: not in this copy, left out" for part in self.left_out]
        unused = [part for part in PARTS if part not in self._listings and _folder(self.tree, part) is not None]
        return [*notes, f"also there, but no part of {self.name}: {', '.join(unused)}"] if unused else notes

    @functools.cached_property
    def _listings(self) -> dict[str, Listing]:
        """Listing of each part, downloaded first if configured. Raises DataError for an incomplete copy."""
        parts = [part for listed in self.parts.values() for part in listed]
        if self.download:
            for part in parts:
                if _folder(self.tree, part) is None:
                    fetch(part, self.tree)
        if all(_folder(self.tree, part) is None for part in parts):
            raise DataError(f"{self.root}: no LibriSpeech here: found none of {', '.join(parts)} in it.\n{_RIGHT_TREE}")
        listings = {part: scan(_folder(self.tree, part)) for part in parts}
        if not self.partial:
            _require_all(self.tree, listings)
        if not any(listings[part].recordings for part in self.parts["train"]):
            raise DataError(f"{self.tree}: there are no training utterances in it.\n{_RIGHT_TREE}")
        return listings


def fetch(part: str, tree: Path) -> None:
    """Download a part and unpack it into the tree, completely or not at all; then remove the archive.

    Raises DataError and StorageError as `las.storage.download.fetch` and `archive.extract` do.
    """
    known = PARTS[part]
    progress.say(f"{part}: {known.size / 1e9:.1f} GB from {known.url}")
    packed = storage_download.fetch(known.url, tree / f"{part}.tar.gz", known.size, sha256=known.sha256)
    unpacked = tree / f".unpacking-{part}"
    try:
        shutil.rmtree(unpacked, ignore_errors=True)
        progress.say(f"{part}: unpacking, this may take minutes")
        archive.extract(packed, unpacked)
        folder = _folder(_tree(unpacked), part)
        if folder is None:
            raise DataError(f"{packed}: there is no LibriSpeech/{part} in it")
        os.replace(folder, tree / part)
        shutil.rmtree(unpacked)
        packed.unlink()
    except OSError as error:
        raise StorageError(f"{tree}: {part} cannot be put there ({error})") from error


def scan(folder: Path | None) -> Listing:
    """List the folder of a part (None: empty), sorted by name. Raises DataError naming a bad line of a transcript."""
    speakers = sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder is not None else []
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        folders = pool.map(lambda speaker: sorted(entry for entry in speaker.iterdir() if entry.is_dir()), speakers)
        chapters = [Listing([], [], [], []), *pool.map(_chapter, itertools.chain.from_iterable(folders))]
    return Listing(*(list(itertools.chain.from_iterable(lists)) for lists in zip(*chapters, strict=True)))


def _chapter(folder: Path) -> Listing:
    speaker, prefix = folder.parent.name, f"{folder.parent.name}-{folder.name}"
    entries = (entry for entry in os.scandir(folder) if not entry.name.startswith(folders.APPLE_DOUBLE))
    files = {entry.name.lower(): entry.path for entry in entries}
    audio = {
        name.removesuffix(ending): path for ending in _AUDIO for name, path in files.items() if name.endswith(ending)
    }
    transcript = files.get(f"{prefix}.trans.txt")
    texts = _texts(Path(transcript), prefix) if transcript is not None else {}
    return Listing(
        [Recording(name, speaker, audio[name], text) for name, text in sorted(texts.items()) if name in audio],
        sorted(texts.keys() - audio.keys()),
        sorted(audio.keys() - texts.keys()),
        [stamp(transcript)] if transcript is not None else [],
    )


def _texts(path: Path, prefix: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, line in text_files.lines(path):
        name, _, text = line.partition(" ")
        if not name.startswith(f"{prefix}-") or name in texts:
            problem = "is there already" if name in texts else f"does not begin with {prefix}-"
            raise DataError(f"{path}:{number}: the id {name!r} {problem}: lines are `{prefix}-0000 WORDS`")
        texts[name] = " ".join(text.split())
    return texts


def _tree(root: Path) -> Path:
    """Find the folder of the parts: `root` if it has one, else LibriSpeech in it, else `root` of that name."""
    if any(_folder(root, part) for part in PARTS):
        return root
    return _folder(root, "librispeech") or (root if root.name.lower() == "librispeech" else root / "LibriSpeech")


def _folder(parent: Path, name: str) -> Path | None:
    """Find a folder by name in any case of letters; None without one."""
    entries = parent.iterdir() if parent.is_dir() else ()
    return next((entry for entry in entries if entry.name.lower() == name and entry.is_dir()), None)


def _require_all(tree: Path, listings: dict[str, Listing]) -> None:
    complaints = [
        f"  {part}: {listing.counted(part)}"
        for part, listing in listings.items()
        if len(listing.recordings) != PARTS[part].utterances or listing.lacking()
    ]
    if complaints:
        first = f"{tree}: this is not the whole of LibriSpeech:"
        last = (
            "Copy what is missing; corpus.download=true fetches parts of which there is no folder; corpus.partial=true "
            "accepts a sample and prints its counts"
        )
        raise DataError("\n".join([first, *complaints, last]))


class CorpusPart(NamedTuple):
    """Part of the corpus: number of utterances, and url, size in bytes and hash of its archive."""

    utterances: int
    url: str
    size: int
    sha256: str


_ARCHIVES = """
train-clean-100 28539 12 6387309499 d4ddd1d5a6ab303066f14971d768ee43278a5f2a0aa43dc716b0e64ecbbbf6e2
train-clean-360 104014 12 23049477885 146a56496217e96c14334a160df97fffedd6e0a04e66b9c5af0d40be3c792ecf
train-other-500 148688 12 30593501606 ddb22f27f96ec163645d53215559df6aa36515f26e01dd70798188350adcb6d2
dev-clean 2703 12 337926286 76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3
dev-other 2864 12 314305928 12661c48e8c3fe1de2c1caa4c3e135193bfb1811584f11f569dd12645aa84365
test-clean 2620 12 346663984 39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23
test-other 2939 12 328757843 d09c181bba5cf717b3dee7d4d592af11a3ee3a09e08ae025c5506f6ebe961c29
train-clean-5 1519 31 332954390 47805806c8b15f7549f3c51bd6b7da72ec0128a34d32830c8014a88658c0292d
dev-clean-2 1089 31 126046265 176ec501490eced2d6c1f89f4f0ddc7dfe799e649e5322f8ba49fe3ff50c8012
"""
"""Rows `part utterances resource bytes sha256` of OpenSLR's archives. OpenSLR publishes md5 sums; the sha256 values are
those of archives with these sums."""
PARTS = {
    part: CorpusPart(int(count), f"https://www.openslr.org/resources/{number}/{part}.tar.gz", int(size), sha256)
    for part, count, number, size, sha256 in map(str.split, _ARCHIVES.strip().splitlines())
}
"""Parts by name."""
