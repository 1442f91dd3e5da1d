"""Wheel and source distribution, each installed into an empty environment and used there, outside the checkout."""

import filecmp
import importlib.metadata
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from places import REPOSITORY
from tiny import MODEL, QUICK, SHORT

pytestmark = pytest.mark.slow
SPEECH = [
    *("corpus=synthetic", "corpus.train_utterances=8", "corpus.dev_utterances=2", "corpus.test_utterances=2"),
    *("corpus.train_speakers=2", "corpus.dev_speakers=1", "corpus.test_speakers=1", "corpus.workers=1"),
]


def build(source: Path, target: str, output: Path) -> Path:
    """Build a `wheel` or `sdist` of a source tree; returns the file."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(output)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = output.iterdir()
    return built


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of the checkout, and the one that its source distribution builds."""
    pytest.importorskip("hatchling")
    root = tmp_path_factory.mktemp("release")
    sources = build(REPOSITORY, "sdist", root / "sources")
    with tarfile.open(sources) as tar:
        tar.extractall(root / "unpacked", filter="data")
    (unpacked,) = (root / "unpacked").iterdir()
    trees = {"wheel": REPOSITORY, "sdist": unpacked}
    return {name: build(tree, "wheel", root / name) for name, tree in trees.items()}


def contents(wheel: Path) -> dict[str, int]:
    """Names and checksums of the files in a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return {each.filename: each.CRC for each in opened.infolist()}


def test_both_have_the_same_files_and_all_that_is_no_code(wheels: dict[str, Path]) -> None:
    inside = contents(wheels["wheel"])
    assert contents(wheels["sdist"]) == inside
    for folder, place in (("configs", "las/configs"), ("recipes", "las/recipes"), ("las/templates", "las/templates")):
        files = [path for path in (REPOSITORY / folder).rglob("*") if path.suffix in (".yaml", ".html", ".css", ".js")]
        assert files and {f"{place}/{path.relative_to(REPOSITORY / folder)}" for path in files} <= inside.keys()
    sources = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "las/nn/kernels/csrc").iterdir()}
    assert sources and sources <= inside.keys() and not any(name.startswith("tests/") for name in inside)


@pytest.mark.parametrize("name", ["wheel", "sdist"])
def test_it_is_installed_elsewhere_and_trains_there(name: str, wheels: dict[str, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env/bin/python"
    # The dependencies are those of this environment, wherever they lie; an editable las in it is not followed.
    (packages,) = (tmp_path / "env/lib").glob("python*/site-packages")
    folders = {str(each.locate_file("")) for each in importlib.metadata.distributions()}
    (packages / "dependencies.pth").write_text("".join(f"{folder}\n" for folder in sorted(folders)))
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "configs/cell").mkdir(parents=True)
    (elsewhere / "configs/cell/mine.yaml").write_text("defaults:\n  - ln_global\n  - _self_\ncell_norm: output\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LAS_"))}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheels[name])
    las = tmp_path / "env/bin/las"
    assert wheels[name].name.startswith("las_asr-") and run(
        python, "-c", "import importlib.metadata; print(importlib.metadata.version('las-asr'))"
    )
    assert run(python, "-c", "import las; print(las.__file__)").strip() == str(packages / "las/__init__.py")
    own = "cell@model.listener.cell=mine"
    trained = run(las, "train", *SPEECH, *MODEL, *SHORT, *QUICK, own, "search.max_length=8", "run_dir=run")
    assert "cell/mine" in trained and "finished after 4 steps" in trained
    assert "2 utterances written to" in run(las, "decode", "checkpoint=run", "split=test", "search.max_length=8")
    assert "bo18_table3" in run(las, "reproduce", "recipe=bo18_table3", "tier=smoke", "dry_run=true")
    assert filecmp.cmp(packages / "las/configs/train.yaml", REPOSITORY / "configs/train.yaml", shallow=False)
