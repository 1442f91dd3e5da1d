"""Packing of a corpus into shards: tar files in the layout of WebDataset, and manifests that name the files in them.

The folder of shards takes the place of the corpus's own tree, `corpus.root=shards`. Next to the manifests lies
`packed.json`, with the settings of the corpus and the hashes of its manifests.
"""

import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from las.data import manifest
from las.data.audio import shards
from las.data.manifest import Utterance
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError
from las.storage import atomic, bounded

_INDEX = "packed.json"
_FREE = ("root", "transcripts", "tokens")
"""Settings that may differ: where a corpus lies, and the symbols that its texts are written in."""


class PackedSplit(NamedTuple):
    """Result of packing a split: the manifest and its content hash, its shards, how many of them were there already,
    audio files, bytes.
    """

    manifest: Path
    content_hash: str
    shards: list[Path]
    num_kept: int
    num_files: int
    num_bytes: int


class _Packed(NamedTuple):
    """Audio file on its way into a shard, with its utterances."""

    audio: str
    size: int
    number: int
    utterances: list[Utterance]

    @property
    def name(self) -> str:
        """Name of the member: files of one name in different folders must differ."""
        return f"{self.number:08d}/{Path(self.audio).name}"

    def reading(self) -> AbstractContextManager[None]:
        """Context in which an OSError becomes a DataError naming utterance and file."""
        return _reading(self.audio, self.utterances[0])

    def description(self) -> bytes:
        """Return the JSON member next to it: WebDataset joins names that are equal up to the first dot."""
        keys = ("id", "channel", "start_s", "duration_s", "text", "speaker")
        listed = [{key: getattr(each, key) for key in keys} for each in self.utterances]
        return json.dumps({"utterances": listed}, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")

    @property
    def description_name(self) -> str:
        name = Path(self.audio).name
        return f"{self.number:08d}/{name.partition('.')[0] or name}.json"


def pack(split: str, utterances: Sequence[Utterance], output: Path, shard_bytes: int) -> PackedSplit:
    """Write the audio files of a split into shards of about `shard_bytes`, and the manifest that names them there.

    An audio file with several utterances is written once. A shard of an earlier call is kept if each file in it has the
    bytes that its source has now. Shards that are written are read back by the names in the manifest, and compared with
    what was read of the sources. The same utterances give the same bytes. Raises DataError for an audio file that
    cannot be read or changes meanwhile, OSError naming the shard for a disk that is full.
    """
    plan = list(_plan(utterances, shard_bytes))
    output.mkdir(parents=True, exist_ok=True)
    places: dict[str, str] = {}
    written, num_kept = [], 0
    for number, files in enumerate(progress.counted(plan, len(plan), f"shards of {split}")):
        shard = output / f"{split}-{number:06d}.tar"
        found = _places(shard, files)
        if found is not None and _hold(output, found, {file.audio: _source_digest(file) for file in files}):
            num_kept += 1
        else:
            digests = _write(shard, files)
            found = _places(shard, files)
            if found is None or not _hold(output, found, digests):
                raise DataError(f"{shard}: reads otherwise than it was written. Is the disk sound? Pack again")
        places |= found
        written.append(shard)
    target = output / f"{split}.jsonl"
    placed = [replace(each, audio=places.get(each.audio, each.audio)) for each in utterances]
    num_files, num_bytes = sum(map(len, plan)), sum(shard.stat().st_size for shard in written)
    return PackedSplit(target, manifest.write(target, placed), written, num_kept, num_files, num_bytes)


def _plan(utterances: Sequence[Utterance], shard_bytes: int) -> Iterator[list[_Packed]]:
    """Distribute audio files over shards in the order of their first utterances."""
    by_file: dict[str, list[Utterance]] = {}
    for utterance in utterances:
        if utterance.audio:
            by_file.setdefault(utterance.audio, []).append(utterance)
    files: list[_Packed] = []
    filled = 0
    for number, (audio, listed) in enumerate(by_file.items()):
        inside = shards.member(audio)
        with _reading(audio, listed[0]):
            size = bounded.size(Path(audio), sys.maxsize) if inside is None else inside.size
        if files and filled + size > shard_bytes:
            yield files
            files, filled = [], 0
        files.append(_Packed(audio, size, number, listed))
        filled += size
    if files:
        yield files


@contextmanager
def _reading(audio: str, utterance: Utterance) -> Iterator[None]:
    """Raise DataError naming utterance and file in place of an OSError of the body."""
    try:
        yield
    except OSError as error:
        raise _unreadable(audio, utterance, error.strerror) from error


def _unreadable(audio: str, utterance: Utterance, reason: str | None) -> DataError:
    return DataError(f"utterance {utterance.id}: {audio}: cannot be read ({reason})")


def _members(files: Sequence[_Packed]) -> Iterator[tuple[tarfile.TarInfo, _Packed, bytes | None]]:
    """Headers of the members of a shard in their order, with the content of those that are not audio."""
    for file in files:
        description = file.description()
        audio, described = (file.name, file.size, None), (file.description_name, len(description), description)
        for name, size, content in (audio, described):
            header = tarfile.TarInfo(name)
            header.size, header.mode = size, 0o644  # no times, no owners: the same corpus gives the same bytes
            yield header, file, content


class _Source:
    """Audio file that tar copies: its digest, and errors of reading that are not those of writing the shard."""

    def __init__(self, file: _Packed, stream: BinaryIO) -> None:
        self.file, self.stream, self.hash = file, stream, hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        with self.file.reading():
            content = self.stream.read(size)
        if len(content) < size:
            raise self.changed()
        self.hash.update(content)
        return content

    def changed(self) -> DataError:
        """Return the error of a file that is longer or shorter than it was."""
        return _unreadable(self.file.audio, self.file.utterances[0], "it changed while it was packed: pack again")


def _write(shard: Path, files: Sequence[_Packed]) -> dict[str, bytes]:
    """Write a shard. Returns the digest of each audio file by its name, as it was read."""
    digests = {}
    try:
        with (
            atomic.opened(shard, durable=True) as stream,
            tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar,
        ):
            for header, file, content in _members(files):
                if content is None:
                    digests[file.audio] = _add(tar, header, file)
                else:
                    tar.addfile(header, io.BytesIO(content))
    except OSError as error:
        error.filename = error.filename or str(shard)
        raise
    return digests


def _add(tar: tarfile.TarFile, header: tarfile.TarInfo, file: _Packed) -> bytes:
    with file.reading():
        opened = shards.open_binary(file.audio)
    with opened as stream:
        source = _Source(file, stream)
        tar.addfile(header, source)  # type: ignore[arg-type] # tar only reads
        if stream.read(1):
            raise source.changed()
    return source.hash.digest()


def _source_digest(file: _Packed) -> bytes:
    with file.reading(), shards.open_binary(file.audio) as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _hold(output: Path, places: Mapping[str, str], digests: Mapping[str, bytes]) -> bool:
    """Return whether the files at these places, read by their names, have these digests."""
    try:
        for audio, place in places.items():
            with shards.open_binary(output / place) as stream:
                if hashlib.file_digest(stream, "sha256").digest() != digests[audio]:
                    return False
    except (OSError, DataError):
        return False
    return True


def _places(shard: Path, files: Sequence[_Packed]) -> dict[str, str] | None:
    """Name of each audio file in a shard, relative to its folder; None unless the shard is whole and of these files."""
    try:
        with tarfile.open(shard, "r:") as tar:
            found = tar.getmembers()
            expected = list(_members(files))
            if [(each.name, each.size) for each in found] != [(header.name, header.size) for header, *_ in expected]:
                return None
            places = {}
            for there, (_, file, content) in zip(found, expected, strict=True):
                if content is None:
                    inside = shards.Member(Path(shard.name), there.offset_data, there.size, Path(file.audio).name)
                    places[file.audio] = str(inside)
                elif (member := tar.extractfile(there)) is None or member.read() != content:
                    return None
    except (OSError, tarfile.TarError):
        return None
    return places


def is_packed(folder: Path) -> bool:
    """Return whether a folder was written by `las pack`."""
    return (folder / _INDEX).is_file()


def write_index(folder: Path, settings: Mapping[str, Any], hashes: Mapping[str, str]) -> None:
    """Write the settings of a corpus and the content hash of each of its manifests into its folder of shards."""
    atomic.write_json(folder / _INDEX, {"settings": _compared(settings), "content_hashes": dict(hashes)}, durable=True)


def read_packed(folder: Path, splits: Sequence[str], settings: Mapping[str, Any]) -> dict[str, list[Utterance]]:
    """Read the utterances of all splits, with the absolute names of their audio in the shards.

    Raises ConfigError listing the `settings` in which the packed corpus differs, and DataError for manifests that were
    changed and shards that are missing.
    """
    try:
        index = bounded.read_object(folder / _INDEX)
        packed, hashes = dict(index["settings"]), dict(index["content_hashes"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / _INDEX}: cannot be read ({error}). Pack the corpus again: las pack") from error
    own = _compared(settings)
    if differing := sorted(key for key in own.keys() | packed.keys() if own.get(key) != packed.get(key)):
        listed = "\n".join(f"  {key}: {packed.get(key)} in the shards, {own.get(key)} here" for key in differing)
        raise ConfigError(
            f"{folder}: the corpus was packed with other settings:\n{listed}\nGive the same, or pack it again: las pack"
        )
    read = {split: _read_manifest(folder / f"{split}.jsonl", hashes.get(split)) for split in splits}
    holders = {shards.file_of(each.audio) for listed in read.values() for each in listed if each.audio}
    if missing := sorted(path for path in holders if not os.path.isfile(path)):
        raise DataError(f"{missing[0]}: there is no such shard ({len(missing)} missing). Copy it again")
    return read


def _read_manifest(path: Path, content_hash: str | None) -> list[Utterance]:
    listed = manifest.read(path)
    if manifest.content_hash(listed) != content_hash:
        raise DataError(f"{path}: changed after it was written. Copy it again, or pack the corpus again: las pack")
    here = path.parent.absolute()
    return [replace(each, audio=os.path.join(here, each.audio)) if each.audio else each for each in listed]


def _compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return {key: value for key, value in plain.items() if key not in _FREE}
