"""Packing of a corpus into shards: tar files in the layout of WebDataset, and manifests that name the files in them."""

import io
import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from las.data import manifest
from las.data.audio import shards
from las.data.manifest import Utterance
from las.runtime import progress
from las.runtime.errors import DataError
from las.storage import atomic


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

    def description(self) -> bytes:
        """The JSON member beside it: WebDataset joins members that are equal up to the first dot of their names."""
        keys = ("id", "channel", "start_s", "duration_s", "text", "speaker")
        listed = [{key: getattr(each, key) for key in keys} for each in self.utterances]
        return json.dumps({"utterances": listed}, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")

    @property
    def description_name(self) -> str:
        name = Path(self.audio).name
        return f"{self.number:08d}/{name.partition('.')[0] or name}.json"


def pack(split: str, utterances: Sequence[Utterance], output: Path, shard_bytes: int) -> PackedSplit:
    """Write the audio files of a split into shards of about `shard_bytes`, and the manifest that names them there.

    An audio file with several utterances is written once. A shard that an earlier, interrupted call wrote whole is
    kept. The same utterances give the same bytes. Raises DataError for an audio file that cannot be read.
    """
    plan = list(_plan(utterances, shard_bytes))
    output.mkdir(parents=True, exist_ok=True)
    places: dict[str, str] = {}
    written, num_kept = [], 0
    for number, files in enumerate(progress.counted(plan, len(plan), f"shards of {split}")):
        shard = output / f"{split}-{number:06d}.tar"
        found = _places(shard, files)
        if found is None:
            _write(shard, files)
            found = _places(shard, files)
            if found is None:
                raise DataError(f"{shard}: reads otherwise than it was written. Is the disk sound? Pack again")
        else:
            num_kept += 1
        places |= found
        written.append(shard)
    target = output / f"{split}.jsonl"
    content_hash = manifest.write(
        target, [replace(each, audio=places.get(each.audio, each.audio)) for each in utterances]
    )
    listed = [file for files in plan for file in files]
    return PackedSplit(
        target, content_hash, written, num_kept, len(listed), sum(shard.stat().st_size for shard in written)
    )


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
        size = _size(audio, listed[0]) if inside is None else inside.size
        if files and filled + size > shard_bytes:
            yield files
            files, filled = [], 0
        files.append(_Packed(audio, size, number, listed))
        filled += size
    if files:
        yield files


def _size(audio: str, utterance: Utterance) -> int:
    try:
        return os.stat(audio).st_size
    except OSError as error:
        raise DataError(f"utterance {utterance.id}: {audio}: cannot be read ({error.strerror})") from error


def _members(files: Sequence[_Packed]) -> Iterator[tuple[tarfile.TarInfo, _Packed, bytes | None]]:
    """Headers of the members of a shard in their order, with the content of those that are not audio."""
    for file in files:
        description = file.description()
        for name, size, content in (
            (file.name, file.size, None),
            (file.description_name, len(description), description),
        ):
            header = tarfile.TarInfo(name)
            header.size, header.mode = size, 0o644  # no times, no owners: the same corpus gives the same bytes
            yield header, file, content


def _write(shard: Path, files: Sequence[_Packed]) -> None:
    with (
        atomic.opened(shard, durable=True) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for header, file, content in _members(files):
            _add(tar, header, file, content)


def _add(tar: tarfile.TarFile, header: tarfile.TarInfo, file: _Packed, content: bytes | None) -> None:
    if content is not None:
        tar.addfile(header, io.BytesIO(content))
        return
    try:
        with shards.open_binary(file.audio) as stream:
            tar.addfile(header, stream)
    except OSError as error:
        message = f"{file.audio}: cannot be read whole ({error.strerror or error}): was it changed meanwhile?"
        raise DataError(f"utterance {file.utterances[0].id}: {message}") from error


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
                elif _content(tar, there) != content:
                    return None
    except (OSError, tarfile.TarError):
        return None
    return places


def _content(tar: tarfile.TarFile, header: tarfile.TarInfo) -> bytes | None:
    file = tar.extractfile(header)
    return None if file is None else file.read()
