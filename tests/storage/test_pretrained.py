"""Pretrained models: found by name, here or on a server, and accepted only as the list says."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import local_server
import pytest
import torch
from console import Las
from places import REPOSITORY
from tiny import wav

import las as package
from las.cli import export
from las.runtime.errors import ArgumentError, ConfigError, DataError, StorageError
from las.storage import bundle, pretrained

Listed = Callable[..., Path]


@pytest.fixture
def listed(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listed:
    """Lists a tiny model as `tiny`, changed as asked for, in a folder in place of the package's; returns its file."""

    def listed(**changes: str) -> Path:
        path = tmp_path / "tiny.las"
        export.export([f"checkpoint={trained / 'run'}", f"output={path}", "weights=int8"])
        content = path.read_bytes()
        entry = {
            "task": "phones",
            "parameters": 10,
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        entry |= {"error": "PER 90.0 %", "licence": "CC0", "command": "las train", **changes}
        (tmp_path / "models.json").write_text(json.dumps({"tiny": entry}))
        monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
        monkeypatch.setenv(pretrained.CACHE, str(tmp_path / "cache"))
        return path

    return listed


def test_a_model_is_taken_by_name_by_command_and_in_python(listed: Listed, trained: Path, las: Las) -> None:
    audio = wav(trained, "mdab0_sx0")
    expected = package.load(listed()).transcribe(audio)
    assert package.load("tiny").transcribe(audio).to_json() == expected.to_json()
    for given in (["model=tiny"], ["checkpoint=tiny"], []):
        answer = las("transcribe", *given, str(audio)).succeeds(expected.text)
        assert ("model=tiny" in answer.out) == (not given)
    las("models").succeeds("tiny PER 90.0 % CC0 las train")
    las("transcribe", "model=tinny", str(audio)).fails(2, "tinny tiny")
    las("transcribe", "model=tiny", f"checkpoint={trained / 'run'}", str(audio)).fails(2, "model=tiny checkpoint=")


def test_a_training_has_models_of_its_own(las: Las) -> None:
    las("train", "model=las_small", "--cfg", "job").succeeds("las.ListenAttendSpell")


def test_another_model_is_downloaded_once(listed: Listed, tmp_path: Path) -> None:
    with local_server.serving() as site:
        path = listed(url=f"{site.url}/tiny.las")
        site.files["/tiny.las"] = path.read_bytes()
        path.unlink()
        for _ in range(2):
            found = pretrained.path_of("tiny")
        assert found.is_relative_to(tmp_path / "cache") and len(site.asked) == 1
        assert bundle.read(found).model
        found.unlink()
        site.files["/tiny.las"] = bytes(len(site.files["/tiny.las"]))
        with pytest.raises(DataError, match="sha256"):
            pretrained.path_of("tiny")


def test_files_that_are_not_those_of_the_list_are_refused(listed: Listed) -> None:
    listed().write_bytes(b"something else")
    with pytest.raises(StorageError, match="install las"):
        pretrained.path_of("tiny")
    with pytest.raises(ConfigError, match="tiny"):
        pretrained.path_of("tine")


@pytest.mark.parametrize(("weights", "bits", "error"), [("fp32", 32, 0.0), ("bf16", 16, 2**-8), ("int8", 8, 1 / 254)])
def test_matrices_are_stored_in_fewer_bits(tmp_path: Path, weights: str, bits: int, error: float) -> None:
    draw = torch.Generator().manual_seed(1)
    model = {"w": torch.randn(40, 5, 50, generator=draw), "b": torch.randn(40, generator=draw), "n": torch.tensor(3)}
    model["w"][3] = 0.0
    path = tmp_path / "model.las"
    bundle.write(path, model, {}, {}, weights)
    found = bundle.read(path).model
    assert found.keys() == model.keys() and found["w"].dtype == torch.float32
    assert torch.equal(found["b"], model["b"]) and found["n"] == 3
    largest = model["w"].abs().amax((1, 2), keepdim=True)
    assert ((found["w"] - model["w"]).abs() <= error * largest * 1.0001).all()
    assert path.stat().st_size < 10000 * bits / 8 + 2000


def test_another_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="int8"):
        bundle.write(tmp_path / "model.las", {}, {}, {}, "int4")


def test_a_card_has_errors_of_the_file_by_split_and_speaker(trained: Path, tmp_path: Path, las: Las) -> None:
    given = [
        f"checkpoint={trained / 'run'}",
        f"output={tmp_path / 'tiny.las'}",
        "card=true",
        "licence=CC BY 4.0, see x",
    ]
    las("export", *given, "weights=bf16").succeeds("card")
    card = (tmp_path / "tiny.md").read_text()
    rates = json.loads((trained / "run/result.json").read_text())["splits"]
    for split, values in rates.items():
        (row,) = (line for line in card.splitlines() if line.startswith(f"| {split} | {values['utterances']} |"))
        assert row.endswith(f"| {100 * values['phone_error_rate']:.1f} % |")
    assert "CC BY 4.0, see x" in card and "| test | mdab0 | 2 |" in card and "Attribution: not stated" in card
    las("export", f"checkpoint={tmp_path / 'tiny.las'}", f"output={tmp_path / 'b.las'}", "card=true").fails(2, "corpus")


@pytest.mark.parametrize("name", pretrained.models())
def test_models_of_the_package_are_those_of_the_list(name: str) -> None:
    model = pretrained.models()[name]
    path = pretrained.path_of(name)
    assert path.stat().st_size == model.size and path.with_suffix(".md").is_file()
    parameters = sum(tensor.numel() for tensor in bundle.read(path).model.values())
    assert abs(parameters - model.parameters) < 0.01 * model.parameters


def test_the_recording_of_the_documentation_is_transcribed(las: Las) -> None:
    las("transcribe", "model=an4", str(REPOSITORY / "docs/examples/an4.flac")).succeeds("ENTER NINE ONE SIX NINE")
