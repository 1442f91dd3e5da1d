"""First values of gains: what a cell is given, in every cell that names one, and in the options that set one."""

import inspect

import pytest
import torch
from cell_cases import OPTIONS, factory_of

from las.nn.cells.base import LSTMCell
from las.nn.cells.wrapper import WrapperLSTMCell

GAINS = ("gain", "input_gain", "recurrent_gain", "cell_gain")


def taken(cell: LSTMCell) -> set[str]:
    """The gains that the constructors of a cell take a first value of."""
    constructors = (inspect.signature(kind.__init__).parameters for kind in type(cell).__mro__)
    return {name for parameters in constructors for name in parameters if name in GAINS}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_gain_begins_at_the_value_given_and_no_other_does(option: str) -> None:
    cell = factory_of(option)(6, 4)
    has = {name for name, _ in cell.named_parameters() if name in GAINS}
    if isinstance(cell, WrapperLSTMCell) or option == "weight_norm":  # whose gains are the lengths of rows
        return
    assert "cell_gain" in taken(cell)
    for name in has & taken(cell):  # all of them in this package; a cell of one's own may leave them at one
        given = dict(factory_of(option)(6, 4, **{name: 0.25}).named_parameters())
        assert (given[name] == 0.25).all()
        assert all(torch.equal(given[other], cell.get_parameter(other)) for other in has - {name})
