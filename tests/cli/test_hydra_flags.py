"""Hydra's own flags on every verb, by commands as docs/configuration.md prints them, and the user's own options."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from console import Las
from omegaconf import OmegaConf
from places import REPOSITORY
from tiers import rest_slow

from las.cli import main
from las.config import build, folders

WITH_CONFIG = [name for name, verb in main.VERBS.items() if verb.config]
MINE = "# Layer norm, wider.\ndefaults:\n  - ln_global\n  - _self_\ncell_norm: output\n"
TRIAL = "# @package _global_\ndefaults:\n  - override /cell@model.listener.cell: mine\n  - _self_\nname: trial\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with options, which is not the working directory's `configs/`."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("cell/mine", MINE), ("experiment/trial", TRIAL)):
        path = tmp_path / "own" / f"{name}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "own"


@pytest.mark.parametrize("verb", rest_slow(WITH_CONFIG, keep=1))
def test_every_verb_prints_its_config_and_does_nothing_else(
    verb: str, las: Las, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main, "function", lambda name: pytest.fail(f"{name} ran"))
    answer = las(verb, "--cfg", "job").succeeds_quietly()
    given = OmegaConf.load(REPOSITORY / "configs" / f"{main.VERBS[verb].config}.yaml")
    assert {str(key) for key in given} - {"defaults"} <= {str(key) for key in OmegaConf.create(answer.out)}
    assert list(tmp_path.iterdir()) == []


def test_cfg_prints_what_is_composed_with_interpolations_or_resolved(las: Las) -> None:
    given = ["+experiment=ln_both", "optim.lr=0.002"]
    plain = OmegaConf.create(las("train", *given, "--cfg", "job").out)
    assert OmegaConf.to_container(plain, resolve=True) == build.compose("train", given)
    part = las("train", "--cfg", "job", "--package", "optim").out
    assert part.startswith("# @package optim\n") and "lr: ${learning_rate.value}\n" in part
    resolved = las("train", "--cfg", "job", "--resolve", "-p", "optim").out
    assert f"lr: {build.compose('train', [])['optim']['lr']}\n" in resolved
    assert las("score", "-c", "hydra", "-p", "hydra.run").out.startswith("# @package hydra.run\ndir: ")
    assert {"hydra", "reference"} <= set(OmegaConf.create(las("score", "--cfg=all").out))
    assert "reference: ???" in las("score", "--cfg", "job").out


def test_cfg_shows_what_verbs_add_themselves(las: Las) -> None:
    assert "name: ln_encoder_only" in las("demo", "--cfg", "job").out
    answer = las("reproduce", "recipe=bo18_table3", "corpus=an4", "--cfg", "job")
    assert "recipe: bo18_table3" in answer.out and answer.err.endswith(": corpus=an4\n")
    assert "suite: lstm" in las("benchmark", "suite=lstm", "--cfg", "job").out
    assert main.as_composed("decode", ["search=tuned"]) == ["search=beam"]


INFOS = {
    "all": "cell@model.listener.cell:",
    "defaults-tree": "cell@model.listener.cell:",
    "defaults": "model/las_small",
    "searchpath": "file://",
    "config": "seed: 1",
    "plugins": "BashCompletion",
}


@pytest.mark.parametrize("topic", rest_slow(INFOS))
def test_info_is_what_hydra_knows(topic: str, las: Las) -> None:
    answer = las("train", "--info", topic).succeeds(INFOS[topic])
    assert answer.err == ""


def test_own_options_are_chosen_and_that_is_said(own: Path, las: Las) -> None:
    given = ["+experiment=trial", "--cfg", "job", "-p", "model.listener.cell"]
    for folder in (["--config-dir", "own"], [f"+hydra.searchpath=[{own}]"]):
        answer = las("train", *folder, *given).succeeds("cell_norm: output")
        assert answer.err == f"own configs of {own}: cell/mine, experiment/trial\n"
    assert not any(folders.own())
    las("train", given[0]).fails(2, "configs/experiment/trial.yaml")


def test_configs_of_the_working_directory_are_found(own: Path, las: Las) -> None:
    shutil.copytree(own, "configs")
    found = Path("configs").absolute()
    assert "mine  " in las("list", "cell").out
    shown = las("show", "cell=mine")
    assert "cell_norm: output" in shown.out
    assert shown.err == f"own configs of {found}: cell/mine, experiment/trial\n"
    sources = las("score", "-cd", "own", "--info", "searchpath").out
    assert sources.index(str(own)) < sources.index(str(REPOSITORY / "configs")) < sources.index(str(found))


def test_the_configs_of_another_project_are_left_alone(own: Path, las: Las) -> None:
    shutil.copytree(own, "configs")
    Path("configs/train.yaml").write_text("x: 1\n")
    assert las("score", "--cfg", "job").err == ""
    las("train", "-cd", "configs", "--cfg", "job").fails(2, "train.yaml configs/experiment/mine.yaml,")
    Path("empty").mkdir()
    las("train", "-cd", "empty").fails(2, "empty: empty/cell/mine.yaml")


def test_an_own_experiment_needs_its_first_line(own: Path, las: Las) -> None:
    (own / "experiment/trial.yaml").write_text(TRIAL.partition("\n")[2])
    las("train", "-cd", "own", "+experiment=trial").fails(2, "trial.yaml: _global_")


def test_a_verb_runs_once_for_each_combination(las: Las, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("ref", "a b (x_1)"), ("one", "a c (x_1)"), ("two", "a b (x_1)")):
        Path(f"{name}.trn").write_text(f"{text}\n")
    answer = las("score", "-m", "reference=ref.trn", "hypothesis=one.trn,two.trn", "output=${hypothesis}.json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.index("WER 50.0 %") < answer.out.index("== 2 of 2: las score") < answer.out.index("WER 0.0 %")
    assert Path("one.trn.json").exists() and Path("two.trn.json").exists()
    failed = las("score", "--multirun", "reference=ref.trn", "hypothesis=none.trn,two.trn").fails(1, "none.trn 2 (1)")
    assert "WER 0.0 %" in failed.out
    same = las("score", "-m", "reference=ref.trn", "hypothesis=one.trn,two.trn", "output=x.json")
    same.fails(2, "'output=x_${hypothesis}'")
    assert "== 1" not in same.out
    apart = las("decode", "-m", "checkpoint=a,b", "split=dev,test").fails(1, "4")
    assert "== 2 of 4: las decode checkpoint='a' split=test" in apart.out


def test_the_shell_completes_verbs_and_overrides(las: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/bin/las"])
    assert "complete -o nospace -o default -F hydra_bash_completion las" in las("-sc", "install=bash").out
    assert las("train", "--shell-completion", "install=zsh").out == las("-sc", "install=bash").out
    assert "complete -c las -x -a '(hydra_fish_completion)'" in las("-sc", "install=fish").out
    for line, shell, expected in (
        ("las tr", "bash", "train transcribe train_lm\n"),
        ("las train optim=ad", "bash", "optim=adadelta optim=adam\n"),
        ("las train model.listener.hid", "fish", "model.listener.hidden_size=\n"),
        ("las decode seed=1 search=beam_l", "bash", "search=beam_lm\n"),
        ("las nothing x", "bash", ""),
    ):
        monkeypatch.setenv("COMP_LINE", line)
        assert las("-sc", f"query={shell}") == (0, expected, ""), line
    monkeypatch.setattr(sys, "argv", ["scripts/train.py"])
    assert las("-sc", "install=bash").code == 2


TYPED = {
    "fish": 'las -sc install=fish | source; for line in "las transc" "las train optim=adad"; complete -C $line; end',
    "zsh": """
        zmodload zsh/zpty; zpty shell zsh -f -i
        zpty -w shell 'autoload -U compinit bashcompinit; compinit -u; bashcompinit; eval "$(las -sc install=zsh)"'
        zpty -w shell 'echo "set" "up"'; zpty -r shell shown '*set up*'
        zpty -w -n shell $'las transc\t'; zpty -r shell shown '*transcribe*'; print -r -- "$shown"
        zpty -w -n shell $'\025las train optim=adad\t'; zpty -r shell shown '*adadelta*'; print -r -- "$shown"
        zpty -d shell
    """,
}
"""What a user types into a shell, with the tab key; the shells wait until the completion is there."""


@pytest.mark.slow
@pytest.mark.parametrize("shell", TYPED)
def test_zsh_and_fish_complete_what_is_typed(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "bin" / "las"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom las.cli.main import main\nraise SystemExit(main())\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    shown = subprocess.run([shell, "-c", TYPED[shell]], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert "transcribe" in shown.stdout and "optim=adadelta" in shown.stdout, shown
