"""Classes of a package of one's own: the person who types the command trusts it, no file does."""

import json
import os
import re
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import tiny
from console import Answer, Las
from places import REPOSITORY

import las as package
from las.cli import sweep
from las.config import folders, targets
from las.config.build import build
from las.config.targets import Surroundings
from las.runtime.errors import ConfigError

PAGE = (REPOSITORY / "docs" / "extending.md").read_text("utf-8")
FILES = re.findall(r"^`([\w/.]+)` of your package:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CELL = {"_target_": "mypkg.MyCell", "_partial_": True}


@pytest.fixture
def own(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package of docs/extending.md on the path of modules, and the folder that it lies in as working directory."""
    assert [Path(name).suffix for name, _ in FILES] == [".toml", ".py", ".yaml", ".yaml", ".yaml"]
    for name, content in FILES:
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_text(content)
    monkeypatch.chdir(corpus)
    monkeypatch.syspath_prepend(corpus)
    monkeypatch.delenv(targets.TRUST_VARIABLE, raising=False)
    monkeypatch.delitem(sys.modules, "mypkg", raising=False)
    return corpus


def command(root: Path, *more: str) -> list[str]:
    given = [each for each in tiny.overrides(root, *more) if each != "search=greedy"]
    chosen = ["cell@model.listener.cell=mine", "loss=mine", "search=beam", "+scorer@search.mine=mine", "search.size=2"]
    return ["train", "--config-dir=options", *chosen, *given]


def test_a_package_of_ones_own_trains_is_exported_and_loaded(own: Path, las: Las) -> None:
    las(*command(own)).fails(2, "--trust mypkg")
    assert "mypkg" not in sys.modules
    assert las(*command(own), "--trust", "mypkg").code == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["model"]["listener"]["cell"]["_target_"] == "mypkg.MyCell"
    assert json.loads(Path("run/environment.json").read_text())["packages"] == "mypkg without a version"
    las("export", "checkpoint=run", "output=model.las", "--trust=mypkg").succeeds()
    wav = str(tiny.wav(own, "fadg0_sx0"))
    del sys.modules["mypkg"]
    for checkpoint in ("run", "model.las"):
        las("transcribe", f"checkpoint={checkpoint}", f"input={wav}").fails(2, "--trust mypkg")
        assert "mypkg" not in sys.modules
        with pytest.raises(ConfigError, match=r'las\.trust\("mypkg"\).* without a version'):
            package.load(checkpoint)
    for checkpoint in ("run", "model.las"):
        assert las("transcribe", "--trust=other,mypkg", f"checkpoint={checkpoint}", f"input={wav}").code == 0
        with package.trust("mypkg"):
            assert package.load(checkpoint).transcribe(wav)
    assert targets.trusted() == []
    las(*command(own, "trainer.max_steps=6"), "--trust", "mypkg").succeeds()


def test_sweeps_and_what_they_start_trust_what_the_command_trusts(
    own: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(sweep, "train_one", lambda *_: seen.append(os.environ[targets.TRUST_VARIABLE]))
    answer = las(*command(own), "-m", "seed=1", "--trust", "mypkg", "--trust", "other")
    assert seen == ["mypkg,other"], answer
    assert targets.TRUST_VARIABLE not in os.environ


def test_surroundings_are_entered_and_left(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with package.trust("mypkg", "other"), folders.used(folders.Folders((own / "options",))):
        here = Surroundings.here()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv(targets.TRUST_VARIABLE, "third")
    with here.entered():
        found = Path.cwd(), folders.own().named, targets.trusted()
        assert found == (own, (own / "options",), ["third", "mypkg", "other"])
    assert (Path.cwd(), folders.own().named, targets.trusted()) == (tmp_path / "elsewhere", (), ["third"])


@pytest.mark.slow
@pytest.mark.parametrize("who", ["joblib", "submitit_local", "reproduce"])
def test_jobs_in_processes_of_their_own_trust_what_the_command_trusts(who: str, own: Path) -> None:
    """Those of a sweep by each launcher, and the rows of a recipe."""
    if who == "reproduce":
        pytest.importorskip("joblib")
        given = ["reproduce", "recipe=bo18_table3", "rows=[baseline,ln_both]", "seeds=1", "jobs=2", "tier=smoke"]
        given += ["--config-dir=options", "loss=mine", "trainer.max_steps=2", *tiny.MODEL, *tiny.corpus(own)]
    else:
        pytest.importorskip(f"hydra_plugins.hydra_{who.partition('_')[0]}_launcher")
        given = [each for each in command(own) if not each.startswith("run_dir")]
        given += ["-m", "seed=1,2", f"hydra/launcher={who}"]
    environment = os.environ | {"PYTHONPATH": f"{own}:{REPOSITORY}"}
    typed = [sys.executable, "-m", "las", *given, "--trust=mypkg"]
    done = subprocess.run(typed, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done
    assert len(list(own.glob("runs/*/*/seed*/result.json"))) == 2, done


def test_the_environment_and_a_call_trust_too(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(targets.TRUST_VARIABLE, "mypkg")
    assert build(CELL, where="model.listener.cell")(3, 4).hidden_size == 4
    monkeypatch.setenv(targets.TRUST_VARIABLE, "my")  # another package
    with pytest.raises(ConfigError, match="is not allowed"):
        build(CELL)
    package.trust("mypkg.cells", "mypkg")
    assert targets.trusted() == ["my", "mypkg.cells", "mypkg"] and build(CELL)(3, 4).hidden_size == 4


@pytest.mark.parametrize(
    ("place", "target", "wanted"),
    [
        ("loss", "mypkg.MyCell", "las.nn.losses.TrainingLoss"),
        ("optim", "torch.nn.Linear", "torch.optim.optimizer.Optimizer"),
        ("corpus", "las.Listener", "las.data.corpora.base.Corpus"),
        ("search", "las.AdditiveAttention", "las.decoding.base.Search"),
        ("init", "torch.optim.SGD", "las.nn.initialisation.InitialisationProtocol"),
        ("model.listener.cell", "torch.nn.LSTMCell", "las.nn.cells.base.RecurrentCell"),
        ("model.listener.cell", "mypkg.MyLoss", "las.nn.cells.base.RecurrentCell"),
        ("model.speller.attention", "las.PlainLSTMCell", "las.nn.attention.base.Attention"),
        ("search.mine", "mypkg.MyCell", "las.decoding.scorers.base.Scorer"),
    ],
)
def test_a_class_of_another_kind_is_refused_before_it_is_made(place: str, target: str, wanted: str, own: Path) -> None:
    config = package.compose("train", ["search=beam"])
    *outer, last = place.split(".")
    section = config
    for key in outer:
        section = section[key]
    section[last] = {"_target_": target, "_partial_": False}
    top = place.partition(".")[0]
    with package.trust("mypkg"), pytest.raises(ConfigError, match=re.escape(f"{place}: ")) as error:
        build(config[top], where=top)
    assert wanted in str(error.value), error.value


def test_nothing_that_is_no_package_of_ones_own_is_trusted(own: Path, las: Las) -> None:
    for name in ("os", "subprocess", "builtins", "las", "my-pkg", "../x"):
        las("score", f"--trust={name}", "--cfg", "job").fails(2, f"--trust: {name}")
    (own / "mypkg.py").write_text("from subprocess import Popen\n")
    with package.trust("mypkg"), pytest.raises(ConfigError, match="no such class"):
        build({"_target_": "mypkg.Popen", "args": "touch x"})
    with package.trust("nowhere"), pytest.raises(ConfigError, match=r"module nowhere.*PYTHONPATH"):
        build({"_target_": "nowhere.Thing"})


@pytest.mark.slow
def test_a_package_in_an_environment_of_its_own(own: Path, tmp_path: Path) -> None:
    """Installed by its three files, it trains, is exported and loaded; doctor lists it and does not import it."""
    pytest.importorskip("hatchling")
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env/bin/python"
    (packages,) = (tmp_path / "env/lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join([str(REPOSITORY), *site.getsitepackages(), *sys.path]) + "\n")
    wheel = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "wheel")]
    subprocess.run(wheel, cwd=own, check=True, capture_output=True)
    (built,) = (tmp_path / "wheel").iterdir()
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", built]
    subprocess.run(install, check=True, capture_output=True)
    (own / "mypkg.py").unlink()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LAS_"))}

    def run(*arguments: str) -> Answer:
        done = subprocess.run(
            [python, "-m", "las", *arguments], cwd=own, env=environment, capture_output=True, text=True
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    run(*command(own), "--trust=mypkg").succeeds()
    assert json.loads((own / "run/environment.json").read_text())["packages"] == "mypkg 0.1.0"
    assert run("export", "checkpoint=run", "output=model.las", "--trust=mypkg").code == 0
    spoken = ["transcribe", "checkpoint=model.las", f"input={tiny.wav(own, 'fadg0_sx0')}"]
    assert run(*spoken, "--trust=mypkg").code == 0
    run(*spoken, "search=greedy").fails(2, "--trust mypkg 0.1.0")
    assert "available: mypkg" in run("doctor").out


BROKEN = "class Broken(las.LSTMCell):\n    def __init__(self, *sizes, **options):\n        {}\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("raise ValueError('odd')", "ValueError: odd"),
        ("len(3)", "TypeError: object of type 'int' has no len()"),
        ("{}['x']", "KeyError: 'x'"),
    ],
)
def test_a_bug_in_a_class_of_ones_own_keeps_its_traceback(
    line: str, says: str, own: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import las\n\n\n" + BROKEN.format(line)
    (own / "mypkg.py").write_text(source)
    (own / "options/cell/mine.yaml").write_text("_target_: mypkg.Broken\n_partial_: true\n")
    given = ["--trust=mypkg", "--config-dir=options", "cell@model.listener.cell=mine", *tiny.overrides(own)]
    answer = las("train", *given)
    number = source.splitlines().index(f"        {line}") + 1
    assert answer.code == 1 and f'mypkg.py", line {number}, in __init__\n' in answer.err and says in answer.err, answer
    assert "las/runtime" not in answer.err and "LAS_TRACEBACK=1" in answer.err
    monkeypatch.setenv("LAS_TRACEBACK", "1")
    assert "las/config/build.py" in las("train", *given).err
