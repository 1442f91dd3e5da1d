"""Every card of configs/cell/ as a factory, and which of the common properties a cell lacks by its nature."""

import functools
from collections.abc import Iterable

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from las.config.build import build, config_directory
from las.nn.cells.base import LSTMCell
from las.nn.cells.wrapper import WrapperLSTMCell
from las.nn.rnn import CellFactory

CARDS = {path.stem: path for path in sorted((config_directory() / "cell").glob("*.yaml"))}
every_cell = pytest.mark.parametrize("name", CARDS)

LACKING = {
    "gains start at one": {
        "bn_recurrent": "its gains start at 0.1",
        "weight_norm": "its gains start as the lengths of the rows",
    },
    "is an LSTM but for its norms": {
        "zoneout": "a part of the state always stays as it was",
        "ba2016_swapped": "reads the memory where an LSTM reads the hidden state",
    },
    "normalises its memory by layer norm": {
        "bn_recurrent": "does so by batch norm",
        "zoneout": "a part of the state stays unnormalised",
    },
    "remembers sigmoid(f + forget_bias) of its memory": {
        "zoneout": "remembers a part of it whatever f is",
        "ba2016_swapped": "remembers the hidden state",
    },
}
"""Property, card, reason. In evaluation all other properties hold for every card; what training
changes is in `tests/nn/cells/test_cells_compared.py`: batch norm looks at a whole batch, zoneout and dropout draw."""


def cells_whose(*properties: str) -> pytest.MarkDecorator:
    """Parametrises `name` with the cards that lack none of these properties."""
    lacking = {card for each in properties for card in LACKING[each]}
    assert lacking < CARDS.keys()
    return pytest.mark.parametrize("name", [card for card in CARDS if card not in lacking])


@functools.cache
def factory_of(name: str) -> CellFactory:
    """What a card builds, with the cell inside that its defaults choose."""
    with initialize_config_dir(str(config_directory().resolve()), version_base="1.3"):
        config = OmegaConf.to_container(compose(f"cell/{name}").cell)
    factory: CellFactory = build(config)
    return factory


def equations_of(cell: LSTMCell) -> LSTMCell:
    """The cell whose equations a wrapped one has, itself for all others."""
    return equations_of(cell.cell) if isinstance(cell, WrapperLSTMCell) else cell


def modules_of(cell: LSTMCell) -> Iterable[str]:
    """Modules of the package in which the cell's equations are written."""
    return {cls.__module__ for cls in type(equations_of(cell)).__mro__ if cls.__module__.startswith("las.")}
