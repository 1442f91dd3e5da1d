"""A run folder knows its configuration, and what is written there is whole or not there."""

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tiny import overrides

from las.config.build import Config, compose, option
from las.runtime.errors import StorageError
from las.storage import run_directory


@pytest.fixture(scope="module")
def composed() -> Config:
    return compose("train", overrides(Path("somewhere")))


@pytest.fixture
def config(composed: Config, tmp_path: Path) -> Config:
    return changed(composed, run_dir=str(tmp_path / "run"))


def changed(config: Config, **flat: object) -> Config:
    """A config with some values replaced, `trainer__device="cuda"` for trainer.device."""
    new = copy.deepcopy(config)
    for key, value in flat.items():
        section, _, name = key.rpartition("__")
        (new[section] if section else new)[name] = value
    return new


def begun(config: Config) -> run_directory.RunDirectory:
    """A run folder with one event."""
    folder = run_directory.RunDirectory(config)
    folder.record(event="train", step=1, loss=1.0)
    return folder


def test_the_signature_is_of_what_is_trained_and_not_of_where_things_lie(config: Config) -> None:
    places = {"data_dir": "/a", "run_dir": "/a", "corpus__root": "/a", "trainer__device": "cuda"}
    display = {"trainer__num_workers": 7, "trainer__histograms": True, "trainer__attention_pictures": True}
    assert run_directory.signature(changed(config, **places, **display)) == run_directory.signature(config)
    trained = {"seed": 2, "name": "x", "trainer__max_steps": 5, "corpus__phone_set": 39, "optim__lr": 1.0}
    for key, value in trained.items():
        assert run_directory.signature(changed(config, **{key: value})) != run_directory.signature(config), key


@pytest.mark.parametrize(
    ("section", "other", "says"),
    [
        ("init", lambda config: config | {"init": option("init", "returnn")}, r"init\._target_: .* -> las\.I"),
        ("warm_start", lambda config: changed(config, warm_start__from="runs/other"), r"from: None -> runs/other"),
    ],
)
def test_a_run_from_before_there_was_a_section(config: Config, section: str, other: Any, says: str) -> None:
    """Its folder and its digest stay with the values that mean what it did, and others are refused by name."""
    former = {key: value for key, value in config.items() if key != section}
    begun(former)
    assert run_directory.signature_digest(config) == run_directory.signature_digest(former)
    run_directory.RunDirectory(config)
    assert run_directory.signature_digest(other(config)) != run_directory.signature_digest(former)
    with pytest.raises(StorageError, match=says):
        run_directory.RunDirectory(other(config))


def test_a_config_that_never_trained_may_be_mended(config: Config) -> None:
    run_directory.RunDirectory(changed(config, trainer__max_bad_fraction=0.0))
    folder = run_directory.RunDirectory(config)
    assert json.loads((folder.directory / "config.json").read_text()) == config


@pytest.mark.parametrize("content", [None, "", '{"name": "baseli', "[]", "{}", '{"trainer": 3}'])
def test_a_begun_run_without_its_config_is_refused(config: Config, content: str | None) -> None:
    path = begun(config).directory / "config.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(StorageError, match=r"config\.json: missing or damaged.*name=baseline_2"):
        run_directory.RunDirectory(config)
    path.write_text(json.dumps(config | {"model": 3}))  # a section that is none is a difference
    with pytest.raises(StorageError, match="another configuration"):
        run_directory.RunDirectory(config)


def test_a_folder_that_cannot_be_made_says_so(config: Config, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file/run: .*run_dir="):
        run_directory.RunDirectory(changed(config, run_dir=str(tmp_path / "file" / "run")))


def test_half_a_line_of_a_killed_process_is_dropped_and_what_is_not_json_not_written(config: Config) -> None:
    folder = begun(config)
    with pytest.raises(ValueError, match="JSON compliant"):
        folder.record(event="train", step=2, loss=float("nan"))
    with (folder.directory / "metrics.jsonl").open("a") as file:
        file.write('{"time": 1.0, "event": "tr')
    assert [event["step"] for event in folder.metrics()] == [1]
    folder.forget_after(1)
    folder.record(event="train", step=2, loss=1.0)
    assert [event["step"] for event in folder.metrics()] == [1, 2]


def test_the_commit_is_none_outside_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_directory, "__file__", str(tmp_path / "run.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert run_directory.commit.__wrapped__() is None
    repository = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(tmp_path)]
    subprocess.run([*repository, "init", "--quiet"], check=True)
    (tmp_path / "file").touch()
    subprocess.run([*repository, "add", "file"], check=True)
    subprocess.run([*repository, "commit", "--quiet", "--message=x"], check=True)
    clean = run_directory.commit.__wrapped__()
    assert clean is not None and len(clean) == 12
    (tmp_path / "file").write_text("changed")
    assert run_directory.commit.__wrapped__() == f"{clean}+"
