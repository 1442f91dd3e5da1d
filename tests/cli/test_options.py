"""`las list` and `las show`: groups, options, places, composed yaml and equations; and what to type instead."""

from pathlib import Path

import pytest
from console import Las
from tiers import rest_slow

from las.cli import options
from las.config.build import config_directory

CELLS = sorted((config_directory() / "cell").glob("*.yaml"))


def test_groups_are_listed_with_their_places(las: Las) -> None:
    lines = las("list").out.splitlines()
    groups = {line.split()[0]: line for line in lines if " option" in line and "`" not in line}
    assert groups.keys() == {path.name for path in config_directory().iterdir() if path.is_dir()}
    assert groups["cell"].split(None, 3)[1] == str(len(CELLS))
    assert groups["cell"].endswith("cell@model.listener.cell  cell@model.speller.cell")
    assert groups["experiment"].endswith("+experiment") and groups["corpus"].endswith("  corpus")


def test_options_are_listed_with_a_line_each(las: Las) -> None:
    first, second, *rest = las("list", "cell").out.splitlines()
    assert first.endswith(" cell@model.listener.cell=...") and second.endswith(" cell@model.speller.cell=...")
    lines = {line.split()[0]: line for line in rest}
    assert lines.keys() == {path.stem for path in CELLS}
    assert lines["ln_global"].endswith("W x and U h.") and lines["bn_recurrent"].endswith("at 0.1.")
    assert lines["zeineldeen2020_joined"].endswith("[eps=1e-12]")
    assert max(map(len, lines.values())) <= options.WIDTH + max(map(len, lines)) + 2


@pytest.mark.parametrize("path", rest_slow(CELLS, keep=4))
def test_every_cell_is_shown_with_its_class(path: Path, las: Las) -> None:
    answer = las("show", f"cell={path.stem}")
    target = options.target_of(path)
    answer.succeeds(f"{target} las/nn/cells/")
    assert ">>>" not in answer.out and answer.err == "" and f"_target_: {target}" in answer.out


def test_a_cell_is_shown_with_its_parameters_and_kernels(las: Las) -> None:
    said = las("show", "cell=slstm").out
    assert "  recurrent_weight [1024, 256]\n" in said and "normaliser [256]" in said
    assert "fastest first: plain (not " in said and "speed: frame by frame" in said
    assert "fastest first: torch, plain" in las("show", "cell=min_gru").out


def test_the_equation_is_shown(las: Las) -> None:
    for given in ("cell=ln_global", "cell@model.speller.cell=ln_global"):
        assert "gates = LN(W x; gain_x, bias_x) + LN(U h; gain_h, bias_h) + b" in las("show", given).out
    las("show", "optim=adam").succeeds("torch.optim.Adam:")
    las("show", "experiment=ln_both").succeeds("/cell@model.listener.cell:")
