"""One file for another machine: what it holds, that it opens anywhere, and what a damaged or hostile one gets."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from console import Las
from tiny import wav

import las as package
from las.cli import export
from las.runtime.errors import ConfigError, LasError, StorageError
from las.storage import bundle, checkpoint


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elsewhere") / "model.las"
    export.export([f"checkpoint={trained / 'run'}", f"output={path}"])
    return path


def test_it_transcribes_as_the_run_without_paths_of_its_machine(
    exported: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = wav(trained, "mdab0_sx1")
    expected = package.load(str(trained / "run")).transcribe(path)
    monkeypatch.chdir(exported.parent)
    assert package.load("model.las").transcribe(path).to_json() == expected.to_json()
    content = exported.read_bytes()
    assert str(trained).encode() not in content and str(Path.home()).encode() + b"/" not in content
    found = bundle.read(exported)
    assert found.config.keys() == {"name", "seed", "model", "search"} and found.state.keys() == {"step", "corpus"}


def test_the_verb(trained: Path, tmp_path: Path, las: Las) -> None:
    output = tmp_path / "deep" / "model.las"
    answer = las("export", f"checkpoint={trained / 'run'}", f"output={output}")
    assert answer.code == 0 and f"{output.stat().st_size:,} bytes" in answer.out
    again = las("export", f"checkpoint={output}", f"output={tmp_path / 'again.las'}")
    assert again.code == 0 and bundle.read(tmp_path / "again.las")[1:] == bundle.read(output)[1:]
    assert las("transcribe", f"checkpoint={output}", f"input={wav(trained, 'mdab0_sx0')}").code == 0
    for command, says in (
        (("decode", f"checkpoint={output}", "split=dev"), "has no corpus"),
        (("export", f"checkpoint={trained / 'run'}", f"output={tmp_path}"), "is a folder"),
    ):
        las(*command).fails(2, says)


def test_scorers_that_are_files_stay_behind_and_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    search = {"_target_": "las.BeamSearch", "size": 8, "lm": {"path": "/x/lm.arpa"}, "ctc": {"weight": 0.3}}
    assert export.portable(search) == {"_target_": "las.BeamSearch", "size": 8, "ctc": {"weight": 0.3}}
    said = capsys.readouterr().out
    assert "search.lm" in said and "/x/lm.arpa" in said


def test_every_kind_of_tensor_comes_back(tmp_path: Path) -> None:
    model = {
        "a": torch.randn(3, 4).t(),
        "empty": torch.zeros(0, 2),
        "flag": torch.tensor(True),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "count": torch.tensor(7),
    }
    bundle.write(tmp_path / "x", model, {"step": 1, "param_groups": [], "corpus": {}}, {"model": 1, "run_dir": "/x"})
    found = bundle.read(tmp_path / "x")
    assert found.model.keys() == model.keys()
    assert all(torch.equal(found.model[name], model[name]) for name in model)
    assert (found.state, found.config) == ({"step": 1, "corpus": {}}, {"model": 1})


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.999])
def test_a_flipped_bit_or_a_cut_end_is_noticed(exported: Path, tmp_path: Path, share: float) -> None:
    content = bytearray(exported.read_bytes())
    place = int(share * len(content))
    (tmp_path / "cut").write_bytes(content[:place])
    content[place] ^= 1
    (tmp_path / "flipped").write_bytes(content)
    for name in ("cut", "flipped"):
        with pytest.raises(LasError):
            package.load(str(tmp_path / name))


def test_other_files_are_no_bundles(tmp_path: Path, trained: Path) -> None:
    kept = {"config": "[" * 100_000, "state": json.dumps({})}
    metadata = {"schema": bundle.SCHEMA, **kept, "sha256": bundle._sha256({}, kept)}
    (tmp_path / "deep").write_bytes(safetensors.torch.save({}, metadata))
    (tmp_path / "text").write_text("no tensors")
    (tmp_path / "empty").touch()
    model = next((trained / "run/checkpoints").glob("step-*")) / "model.safetensors"
    for path in (tmp_path / "deep", tmp_path / "text", tmp_path / "empty", model):
        with pytest.raises(StorageError, match=f"{path.name}: .*not a bundle"):
            checkpoint.find(path)
    with pytest.raises(StorageError, match="not be written"):
        bundle.write(tmp_path / "text" / "x", {}, {}, {})


def test_a_bundle_that_names_a_strange_target_runs_nothing(exported: Path, tmp_path: Path) -> None:
    found = bundle.read(exported)
    config = found.config | {"model": {"_target_": "os.system", "command": f"touch {tmp_path / 'witness'}"}}
    bundle.write(tmp_path / "forged", found.model, found.state, config)
    with pytest.raises(ConfigError, match=r"_target_: os\.system"):
        package.load(str(tmp_path / "forged"))
    assert not (tmp_path / "witness").exists()
