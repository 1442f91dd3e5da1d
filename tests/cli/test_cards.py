"""`las list` and `las show`: groups, cards, places, composed yaml and equations, without torch; and what to type."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Answer
from places import REPOSITORY
from tiers import rest_slow

from las.cli import cards
from las.config import options
from las.config.build import config_directory

CELLS = sorted((config_directory() / "cell").glob("*.yaml"))
Las = Callable[..., Answer]


def test_groups_are_listed_with_their_places(las: Las) -> None:
    lines = las("list").out.splitlines()
    groups = {line.split()[0]: line for line in lines if " card" in line and "`" not in line}
    assert groups.keys() == {path.name for path in config_directory().iterdir() if path.is_dir()}
    number = len(list((config_directory() / "cell").glob("*.yaml")))
    assert groups["cell"].split(None, 3)[1] == str(number)
    assert groups["cell"].endswith("cell@model.listener.cell  cell@model.speller.cell")
    assert groups["experiment"].endswith("+experiment") and groups["corpus"].endswith("  corpus")


def test_cards_are_listed_with_a_line_each(las: Las) -> None:
    answer = las("list", "cell")
    assert answer.out.startswith("choose one with cell@model.listener.cell=...\nor cell@model.speller.cell=...\n")
    lines = {line.split()[0]: line for line in answer.out.splitlines()[2:]}
    assert lines.keys() == {path.stem for path in (config_directory() / "cell").glob("*.yaml")}
    assert lines["ln_global"].endswith("An LSTM with layer norms on W x and U h.")
    assert lines["bn_recurrent"].endswith("Cooijmans et al. 2017. Gains start at 0.1.")
    assert lines["zeineldeen2020_joined"].endswith("[eps=1e-12]")
    assert max(map(len, lines.values())) <= cards.WIDTH + max(map(len, lines)) + 2


@pytest.mark.parametrize("path", rest_slow(CELLS, keep=4))
def test_every_cell_is_shown_with_its_class(path: Path, las: Las) -> None:
    answer = las("show", f"cell={path.stem}")
    assert (answer.code, answer.err) == (0, "")
    target = options.target(path)
    assert target is not None and f"_target_: {target}" in answer.out and f"\n{target}: las/nn/cells/" in answer.out
    assert ">>>" not in answer.out


def test_the_equation_is_shown(las: Las) -> None:
    for given in ("cell=ln_global", "cell@model.speller.cell=ln_global"):
        assert "gates = LN(W x; gain_x, bias_x) + LN(U h; gain_h, bias_h) + b" in las("show", given).out
    assert "torch.optim.Adam: see the documentation of torch" in las("show", "optim=adam").out
    assert "override /cell@model.listener.cell: ba2016" in las("show", "experiment=ln_both").out


def test_no_torch_is_imported() -> None:
    script = (
        "import sys; from las.cli.main import main; main(['list', 'cell']); main(['show', 'cell=zoneout'])\n"
        "print('torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True)
    assert answer.stdout.splitlines()[-1] == "False", answer.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["list", "sell"], "sell: there is no such group of configs. Did you mean cell, "),
        (["list", "cell", "loss"], "one group at a time: las list cell"),
        (["show"], "show takes one card, for example: las show cell=ln_global"),
        (["show", "ln_global"], "ln_global: say of which group: las show cell=ln_global"),
        (["show", "cell"], "cell: say which card: las show cell=ba2016 (las list cell)"),
        (["show", "cell=ln_glob"], "cell=ln_glob: there is no configs/cell/ln_glob.yaml. Did you mean ln_global, "),
        (
            ["train", "sell@model.listener.cell=lstm"],
            "sell@model.listener.cell=lstm: there is no group 'sell'. Did you mean cell or lm? "
            "Type cell@model.listener.cell=lstm. `las list` shows the groups",
        ),
        (
            ["train", "+experimnt=ln_both"],
            "experimnt: there is no such key in configs/train.yaml. Did you mean experiment, ",
        ),
        (["train", "cel=lstm"], "cel=lstm: there is no key 'cel' in configs/train.yaml. Did you mean cell, "),
        (["train", "~sell"], "~sell: there is no key 'sell' in configs/train.yaml. Did you mean seed, "),
    ],
)
def test_mistakes_come_with_what_works(command: list[str], says: str, las: Las) -> None:
    answer = las(*command)
    assert (answer.code, answer.out) == (2, "") and answer.err.startswith(f"las {command[0]}: {says}"), answer
