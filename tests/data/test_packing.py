"""Shards: what is in them, how an interrupted packing goes on, what readers see, damage, a corpus from them."""

import dataclasses
import errno
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from console import Answer
from refusals import refused
from webdataset import tariterators

from las.cli import prepare
from las.data import manifest, packing
from las.data.audio import files, shards
from las.data.audio.worker import state
from las.data.corpora.files import FilesCorpus
from las.data.corpora.timit import TIMIT
from las.data.loader import read
from las.data.manifest import Utterance
from las.data.tokenizers import Phones
from las.runtime.errors import ConfigError


@pytest.fixture
def utterances(tmp_path: Path) -> list[Utterance]:
    """Six utterances in five files; two files have one name."""
    listed = []
    for number in range(5):
        folder = tmp_path / f"speaker{number // 2}"
        folder.mkdir(exist_ok=True)
        path = tiny.sound(folder / f"SX{number % 2}.v1.wav", 0.2 + 0.05 * number, number)
        listed.append(Utterance(f"u{number}", str(path), 0, 0.0, 0.2, "äh", f"s{number // 2}"))
    return [*listed, Utterance("late", listed[0].audio, 0, 0.1, 0.1, "b", "s0")]


def placed(packed: packing.PackedSplit) -> list[Utterance]:
    """Utterances of a manifest, with the paths of their audio in the shards."""
    folder = packed.manifest.parent
    return [dataclasses.replace(each, audio=str(folder / each.audio)) for each in manifest.read(packed.manifest)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_every_utterance_is_in_a_shard_once_and_the_manifest_keeps_its_hash(
    utterances: list[Utterance], tmp_path: Path
) -> None:
    result = packing.pack("train", utterances, tmp_path / "out", 24_000)
    assert result.num_files == 5 and len(result.shards) == 3 and result.num_kept == 0
    packed = placed(result)
    assert manifest.content_hash(packed) == manifest.content_hash(utterances)
    assert packed[0].audio == packed[-1].audio
    again = packing.pack("train", packed, tmp_path / "again", 1 << 30)
    assert len(again.shards) == 1 and again.num_files == 5
    for outside, *inside in zip(utterances, packed, placed(again), strict=True):
        assert all(read(each, 16000).equal(read(outside, 16000)) for each in inside)


def test_an_interrupted_packing_goes_on_and_ends_with_the_same_bytes(
    utterances: list[Utterance], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = packing.pack("train", utterances, tmp_path / "whole", 24_000)
    begun = tmp_path / "begun"
    with monkeypatch.context() as patch:
        write, calls = packing._write, []

        def interrupted(*arguments: Any) -> dict[str, bytes]:
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return write(*arguments)

        patch.setattr(packing, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            packing.pack("train", utterances, begun, 24_000)
    assert len(contents(begun)) == 2
    (begun / "train-000001.tar").write_bytes((begun / "train-000001.tar").read_bytes()[:3000])
    assert packing.pack("train", utterances, begun, 24_000).num_kept == 1
    assert contents(begun) == contents(whole.manifest.parent)
    (texts,) = [each for each in utterances if each.id == "late"]
    changed = [*utterances[:-1], dataclasses.replace(texts, text="c")]
    assert packing.pack("train", changed, begun, 24_000).num_kept == 2  # its JSON is in the first


def test_webdataset_reads_the_shards(utterances: list[Utterance], tmp_path: Path) -> None:
    result = packing.pack("train", utterances, tmp_path / "out", 24_000)
    samples = []
    for shard in result.shards:
        with shard.open("rb") as stream:  # WebDataset itself leaves its files open, which pytest reports
            members = tariterators.tar_file_expander([{"url": str(shard), "stream": stream}])
            samples += tariterators.group_by_keys(members)
    assert [sample["__key__"] for sample in samples] == [f"{n:08d}/SX{n % 2}" for n in range(5)]
    for sample, utterance in zip(samples, utterances, strict=False):
        assert sample["v1.wav"] == Path(utterance.audio).read_bytes()
        assert json.loads(sample["json"])["utterances"][0]["id"] == utterance.id


@pytest.mark.parametrize("stem", ["a" * 92, "a" * 140, "a" * 251, "ä" * 60, "e\u0301" * 50 + ".x", "字" * 40])
def test_a_file_of_any_name_is_read_from_its_shard(tmp_path: Path, stem: str) -> None:
    """A tar header has 100 bytes for a name; a longer one stands before it, and must still be that of the file."""
    path = tiny.sound(tmp_path / f"{stem}.wav", 0.2)
    listed = [Utterance(f"u{n}", str(path), 0, 0.0, 0.2, "a", "s") for n in range(2)]
    result = packing.pack("train", listed, tmp_path / "out", 1 << 30)
    inside = placed(result)[0].audio
    assert inside.endswith(f"/{stem}.wav")
    assert (files.read(inside)[1] == files.read(path)[1]).all()
    refused("shard was changed", files.read, inside.replace(f"/{stem}.wav", f"/x{stem}.wav"))


def test_a_file_of_the_same_size_with_other_content_is_packed_anew(utterances: list[Utterance], tmp_path: Path) -> None:
    """Also with its old time, as `cp -p` and rsync keep it."""
    packing.pack("train", utterances, tmp_path / "out", 24_000)
    changed = Path(utterances[1].audio)
    old = changed.stat()
    content = changed.read_bytes()
    changed.write_bytes(content[:-100] + bytes(100))
    os.utime(changed, ns=(old.st_atime_ns, old.st_mtime_ns))
    result = packing.pack("train", utterances, tmp_path / "out", 24_000)
    assert result.num_kept == 2 and len(result.shards) == 3
    for inside, outside in zip(placed(result), utterances, strict=True):
        assert (files.read(inside.audio)[1] == files.read(outside.audio)[1]).all()
    assert packing.pack("train", utterances, tmp_path / "out", 24_000).num_kept == 3


def test_what_was_written_is_read_back(
    utterances: list[Utterance], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit that flips between the source and the shard is found before the manifest is written."""
    write = packing._write

    def flipped(shard: Path, listed: Any) -> dict[str, bytes]:
        digests = write(shard, listed)
        content = bytearray(shard.read_bytes())
        content[700] ^= 1
        shard.write_bytes(content)
        return digests

    monkeypatch.setattr(packing, "_write", flipped)
    refused("train-000000.tar|Pack again", packing.pack, "train", utterances, tmp_path / "out", 1 << 30)
    assert not (tmp_path / "out" / "train.jsonl").exists()


def test_a_full_disk_is_not_a_fault_of_the_audio(
    utterances: list[Utterance], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addfile = tarfile.TarFile.addfile

    def full(tar: tarfile.TarFile, header: tarfile.TarInfo, source: Any = None) -> None:
        if header.name.endswith(".wav"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        addfile(tar, header, source)

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(OSError, match="No space left") as raised:
        packing.pack("train", utterances, tmp_path / "out", 1 << 30)
    assert raised.value.errno == errno.ENOSPC and str(raised.value.filename).endswith("train-000000.tar")
    assert not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize("change", [lambda content: content[:-10], lambda content: content + b"more"])
def test_audio_that_changes_while_it_is_packed_is_named(
    utterances: list[Utterance], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]
) -> None:
    path, write = Path(utterances[0].audio), packing._write

    def late(*arguments: Any) -> Any:
        path.write_bytes(change(path.read_bytes()))
        return write(*arguments)

    monkeypatch.setattr(packing, "_write", late)
    refused("SX0.v1.wav|changed while", packing.pack, "train", utterances, tmp_path / "out", 1 << 30)


@pytest.mark.parametrize(("replace", "says"), [(lambda path: None, "No such file"), (os.mkfifo, "FIFO")])
def test_a_file_that_is_gone_or_a_fifo_is_named(
    replace: Callable[[Path], object], says: str, utterances: list[Utterance], tmp_path: Path
) -> None:
    path = Path(utterances[2].audio)
    path.unlink()
    replace(path)
    refused(f"utterance u2: |SX0.v1.wav|{says}", packing.pack, "train", utterances, tmp_path / "out", 1 << 30)


def test_a_corpus_of_files_is_the_same_from_shards(utterances: list[Utterance], tmp_path: Path) -> None:
    rows = "".join(f"{each.audio},{each.id},{each.text},{each.speaker}\n" for each in utterances[:-1])
    (tmp_path / "all.csv").write_text("audio,id,text,speaker\n" + rows, encoding="utf-8")

    def prepared(train: Path, **dev: str) -> list[Utterance]:
        corpus = FilesCorpus("mine", str(train), str(tmp_path / "resampled"), **dev, test_share=0.0)
        return corpus.prepare(tmp_path / "manifests")["train"]

    outside = prepared(tmp_path / "all.csv")
    packed = packing.pack("train", outside, tmp_path / "shards", 24_000).manifest
    inside = prepared(packed, dev=str(tmp_path / "all.csv"))
    assert manifest.content_hash(inside) == manifest.content_hash(outside)
    for one, other in zip(inside, outside, strict=True):
        assert ".tar#" in one.audio and read(one, 16000).equal(read(other, 16000))


def members(folder: Path, *audio: Path) -> list[str]:
    """Names of audio files in a shard of their own."""
    listed = [Utterance(f"u{n}", str(path), 0, 0.0, 0.1, "a", "") for n, path in enumerate(audio)]
    return [each.audio for each in placed(packing.pack("train", listed, folder / "shards", 1 << 30))]


@pytest.mark.parametrize("name", ["123_1pcbe_shn", "123_2ulaw"])
def test_sphere_plain_and_compressed(name: str, shared_data: Path, tmp_path: Path) -> None:
    outside = shared_data / f"sphere_samples/shorten/{name}.sph"
    (inside,) = members(tmp_path, outside)
    assert np.array_equal(files.read(inside)[1], files.read(outside)[1])


def test_a_shard_that_is_cut_short_or_changed_is_named(tmp_path: Path) -> None:
    first, second = members(tmp_path, *(tiny.sound(tmp_path / f"{name}.wav", 0.2) for name in "ab"))
    shard, inside = Path(shards.file_of(second)), shards.member(second)
    assert state(second) == [shard.stat().st_size, shard.stat().st_mtime_ns] and inside is not None
    content = shard.read_bytes()
    shard.write_bytes(content[: inside.offset + 100])
    refused("train-000000.tar|cut short|b.wav ends", files.info, second)
    assert files.info(first).num_samples == 3200
    shard.write_bytes(content[:1024] + content)
    refused("b.wav|shard was changed", files.load, second)
    members(tmp_path, tiny.sound(tmp_path / "a.wav", 0.3))
    refused("a.wav|shard was changed", files.info, first)
    shard.unlink()
    refused("train-000000.tar|does not exist", files.info, second)


def test_names_that_only_look_like_members_are_paths(tmp_path: Path) -> None:
    odd = tiny.sound(tmp_path / "a.tar#12.wav", 0.2)
    assert shards.member(odd) is None and files.info(odd).num_samples == 3200


Las = Callable[..., Answer]


def timit(root: Path, phone_set: int = 48) -> TIMIT:
    return TIMIT("timit", str(root), Phones(phone_set), partial=True, phone_set=phone_set)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """The tiny corpus, and its shards next to it."""
    tiny.tree(tmp_path)
    places = [f"corpus.root={tmp_path / 'TIMIT'}", f"output={tmp_path / 'shards'}", f"data_dir={tmp_path / 'data'}"]
    prepare.pack(["corpus=timit", "corpus.partial=true", "shard_mb=0.1", *places])
    return tmp_path


def test_other_settings_changed_manifests_and_missing_shards_are_refused(packed: Path) -> None:
    shards, folder = packed / "shards", packed / "manifests"
    refused("phone_set: 48 in|39 here|las pack", timit(shards, 39).prepare, folder, kind=ConfigError)
    content = (shards / "dev.jsonl").read_text()
    (shards / "dev.jsonl").write_text(content.replace("h#", "h"))
    refused("dev.jsonl|Copy it again", timit(shards).prepare, folder)
    (shards / "dev.jsonl").write_text(content)
    (shards / "train-000000.tar").unlink()
    refused("train-000000.tar|1 missing", timit(shards).prepare, folder)
    (shards / "packed.json").write_text("[]")
    refused("packed.json|cannot be read", timit(shards).prepare, folder)


def test_the_command_that_pack_prints_trains_the_same_model(packed: Path, trained: Path, las: Las) -> None:
    again = ["pack", "corpus=timit", "corpus.partial=true", f"corpus.root={packed / 'TIMIT'}", "shard_mb=0.1"]
    answer = las(*again, f"output={packed / 'shards'}", f"data_dir={packed / 'data'}")
    command = next(line for line in answer.out.splitlines() if line.startswith("next:  "))
    assert command.split()[1:5] == ["las", "train", "corpus=timit", "corpus.partial=true"]
    assert f"corpus.root={packed / 'shards'}" in command and "output=" not in command
    answer = las("train", *tiny.overrides(packed, f"corpus.root={packed / 'shards'}"))
    assert answer.code == 0 and f"shards in {packed / 'shards'}" in answer.out, answer.err
    splits = [json.loads((root / "run" / "result.json").read_text())["splits"] for root in (trained, packed)]
    models = [max((root / "run/checkpoints").glob("*/model.safetensors")).read_bytes() for root in (trained, packed)]
    assert splits[0] == splits[1] and models[0] == models[1]
