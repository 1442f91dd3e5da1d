"""A corpus from its shards: the same utterances and model as from its tree, and clear words where they differ."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
from console import Answer
from refusals import refused

from las.cli import pack
from las.data import manifest
from las.data.corpora.timit import TIMIT
from las.data.loader import read
from las.data.tokenizers import Phones
from las.runtime.errors import ConfigError
from las.training import data_preparation

Las = Callable[..., Answer]


def timit(root: Path, phone_set: int = 48) -> TIMIT:
    return TIMIT("timit", str(root), Phones(phone_set), partial=True, phone_set=phone_set)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """The tiny corpus, and its shards next to it."""
    tiny.tree(tmp_path)
    places = [f"corpus.root={tmp_path / 'TIMIT'}", f"output={tmp_path / 'shards'}", f"data_dir={tmp_path / 'data'}"]
    pack.pack(["corpus=timit", "corpus.partial=true", "shard_mb=0.1", *places])
    return tmp_path


def test_the_utterances_are_those_of_the_tree(packed: Path) -> None:
    outside = timit(packed / "TIMIT").prepare(packed / "one")
    shutil.rmtree(packed / "TIMIT")
    corpus = timit(packed / "shards")
    inside = data_preparation.prepared(corpus, str(packed))
    assert list(inside) == list(outside)
    for split, listed in outside.items():
        assert manifest.content_hash(inside[split]) == manifest.content_hash(listed)
        for one, other in zip(inside[split], listed, strict=True):
            assert ".tar#" in one.audio and one.alignment == other.alignment and one.speaker == other.speaker
            assert read(one, 16000).equal(read(other, 16000)) if Path(other.audio).exists() else True
    assert corpus.problems(inside["train"]) == []


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
    assert answer.code == 0 and f"audio from the shards in {packed / 'shards'}" in answer.out, answer.err
    splits = [json.loads((root / "run" / "result.json").read_text())["splits"] for root in (trained, packed)]
    models = [max((root / "run/checkpoints").glob("*/model.safetensors")).read_bytes() for root in (trained, packed)]
    assert splits[0] == splits[1] and models[0] == models[1]
