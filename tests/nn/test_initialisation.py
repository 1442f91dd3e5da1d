"""Initial values: standard deviation and bound of every role under every option, at the papers' sizes."""

import itertools
import math
from functools import partial
from typing import Any

import pytest
import torch
from cell_cases import LSTMS, equations_of, factory_of
from tiers import rest_slow
from torch import Tensor, nn

from las.config.build import build, compose, option
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.cells.norms import NoNorm
from las.nn.cells.wrapper import WrapperLSTMCell
from las.nn.initialisation import LSTMInitialisation
from las.nn.listener import Listener
from las.runtime import devices
from las.runtime.errors import ConfigError
from las.training import setup

SYMBOLS = 1030  # Zeineldeen et al.'s pieces
INITS = ["glorot", "las", "returnn", "tensorflow", "torch"]  # returnn_unit_variance is below


def glorot(inputs: int, outputs: int) -> float:
    return math.sqrt(6 / (inputs + outputs))


MATRICES = {
    "embedding.weight": (1030, 621),
    "attention.key.weight": (2048, 1024),
    "attention.query.weight": (1000, 1024),
    "attention.feedback.weight": (1, 1024),
    "attention.score.weight": (1024, 1),
    "attention.inverse_fertility.weight": (2048, 1),
    "readout.weight": (3669, 1000),
    "output.weight": (500, 1030),
}
"""Inputs and outputs of the matrices of Zeineldeen et al.'s speller."""


def limit(init: str, name: str) -> float | None:
    """Of uniform values, from the formulas of each code base written out once more; None: N(0, 1)."""
    inputs, outputs = MATRICES[name]
    if init in ("las", "torch"):
        return None if name == "embedding.weight" else inputs**-0.5
    return (
        math.sqrt(3 / inputs) if (init, name) == ("tensorflow", "attention.score.weight") else glorot(inputs, outputs)
    )


def limits(
    init: str, part: str, plain: bool, inputs: int, hidden: int, outputs: int | None = None
) -> tuple[float, float]:
    """Of W and U of a cell with `inputs`, `hidden` units and as many `outputs`, or fewer with a projection."""
    outputs = outputs or hidden
    if init in ("las", "glorot"):
        return glorot(inputs, hidden), glorot(outputs, hidden)
    if init == "torch":
        return hidden**-0.5, hidden**-0.5
    if init == "tensorflow" or (plain and part == "speller"):
        return glorot(inputs + outputs, 4 * hidden), glorot(inputs + outputs, 4 * hidden)
    return glorot(inputs, 4 * hidden), glorot(outputs, 4 * hidden)


def require_uniform(values: Tensor, limit: float | None) -> None:
    """The standard deviation within five of its standard errors, the bound hardly missed and never passed."""
    values = values.detach()
    if limit == 0.0:
        assert not values.any()
        return
    std = 1.0 if limit is None else limit / math.sqrt(3)
    assert float(values.std()) == pytest.approx(std, rel=5 / math.sqrt(2 * values.numel()))
    if limit is not None:
        assert float(values.abs().max()) <= limit * (1 + 1e-6)
        assert float(values.abs().max()) >= limit * (1 - 12 / values.numel())


@pytest.mark.parametrize("init", rest_slow(INITS, keep=1))
def test_speller_and_attention_of_zeineldeen_2020(init: str) -> None:
    """At its full size."""
    torch.manual_seed(1)
    section = compose("train", ["model=las_switchboard"])["model"]["speller"]
    with torch.device("cpu" if init == "las" else "meta"):  # the others draw every value themselves
        speller = build(section, where="speller")(SYMBOLS, 2048)
    speller = speller if init == "las" else speller.to_empty(device="cpu")
    build(option("init", init))(nn.ModuleDict({"speller": speller}))
    for name in MATRICES:
        require_uniform(speller.get_parameter(name), limit(init, name))
    require_uniform(speller.output.bias, 500**-0.5 if init in ("las", "torch") else 0.0)
    (cell,) = speller.cells
    assert init == "torch" or float(cell.bias.detach()[1000]) == 0.0 == float(cell.bias.detach()[0])  # 1 is constant
    for weight, expected in zip(
        (cell.input_weight, cell.recurrent_weight), limits(init, "speller", True, 2669, 1000), strict=True
    ):
        require_uniform(weight, expected)


def test_the_default_is_what_models_had_before_there_was_a_choice() -> None:
    """Parameters to the bit, and the random numbers that come after them."""
    chosen = compose("train", [])
    corpus = build(chosen["corpus"], where="corpus")
    model = setup.build_parts(chosen, corpus).model
    after = torch.rand(3)
    devices.seed(chosen["seed"])
    before = build(chosen["model"], where="model")(corpus.sample_rate, corpus.tokens.size)
    assert torch.equal(torch.rand(3), after)
    for name, parameter in before.named_parameters():
        assert torch.equal(model.get_parameter(name), parameter), name


def test_a_training_begins_with_the_values_of_its_option() -> None:
    chosen = compose("train", ["init=returnn"])
    corpus = build(chosen["corpus"], where="corpus")
    model = setup.build_parts(chosen, corpus).model
    require_uniform(model.speller.embedding.weight, glorot(corpus.tokens.size, 64))
    require_uniform(model.listener.layers[0].forwards.cell.input_weight, glorot(80, 4 * 128))


@pytest.mark.parametrize(("init", "name"), rest_slow(itertools.product(INITS, LSTMS), keep=6))
@pytest.mark.parametrize("part", ["listener", "speller"])
def test_every_cell(init: str, name: str, part: str) -> None:
    """At the sizes of nabu's TIMIT model: 512 inputs of a listener's layer, 128 units."""
    torch.manual_seed(1)
    model = nn.ModuleDict({part: factory_of(name)(512, 128)})
    cell = equations_of(model[part])
    before = {key: value.clone() for key, value in model.state_dict().items()}
    if part == "listener":
        model = nn.ModuleDict({"listener": nn.ModuleList([model[part]])})
    build(option("init", init))(model)
    plain = isinstance(cell, PlainLSTMCell)
    of_input, of_hidden = limits(init, part, plain, 512, 128, cell.output_size)
    require_uniform(cell.input_weight, of_input)
    require_uniform(cell.recurrent_weight, of_hidden)
    for gate in cell.input_weight.chunk(4):
        require_uniform(gate, of_input)
    bias = cell.gate_bias().detach().flatten().view(4, 128)
    forget = bias[1] + cell.forget_bias
    others = bias[[0, 2, 3]]
    if plain and init == "torch":
        assert float(bias.std()) == pytest.approx(math.sqrt(2 / 3) * 128**-0.5, rel=0.12)
    elif plain and (init, part) == ("tensorflow", "listener"):
        require_uniform(others, math.sqrt(3 / 512))
        require_uniform(forget - 1.0, math.sqrt(3 / 512))
    else:
        assert not others.any()
        assert (forget == (1.0 if init == "tensorflow" else cell.forget_bias)).all()
    drawn = {id(cell.input_weight), id(cell.recurrent_weight), id(cell.gate_bias())}
    kept = [(key, value) for key, value in cell.named_parameters() if id(value) not in drawn]
    if name != "weight_norm":
        prefix = f"{part}.cell." if isinstance(factory_of(name)(2, 2), WrapperLSTMCell) else f"{part}."
        assert all(torch.equal(value, before[prefix + key]) for key, value in kept)


@pytest.mark.parametrize("layers", [1, 4])
@pytest.mark.parametrize("cell", [PlainLSTMCell, partial(LNJoinedLSTMCell, norm=NoNorm), LNJoinedLSTMCell])
def test_cells_of_the_listener_begin_with_inputs_of_unit_variance(cell: Any, layers: int) -> None:
    """Measured on random features, layer by layer; with RETURNN's Glorot the states of cells without a norm shrink."""
    found = {}
    for init in ("returnn", "returnn_unit_variance"):
        torch.manual_seed(1)
        listener = Listener(60, cell=cell, num_layers=layers, hidden_size=128, time_reduction=[1] * layers)
        build(option("init", init))(nn.ModuleDict({"listener": listener}))
        rows, lengths = torch.randn(4, 40, 60), torch.full((4,), 40)
        for layer in listener.layers:
            projected = rows @ layer.forwards.cell.input_weight.T
            rows = layer(rows, lengths).detach()
        found[init] = float(projected.detach().std())
    assert 0.6 < found["returnn_unit_variance"] < 1.25
    assert found["returnn"] < (0.6 if layers == 1 or cell is LNJoinedLSTMCell else 0.05)


def test_gates_of_the_listener_begin_with_unit_variance_in_the_proportion_of_w_and_u() -> None:
    """Measured frame by frame on random features; W and U are those of `returnn` times one factor."""
    made = {}
    for init in ("returnn", "returnn_unit_gates"):
        torch.manual_seed(1)
        made[init] = Listener(60, cell=PlainLSTMCell, num_layers=4, hidden_size=128, time_reduction=[1] * 4)
        build(option("init", init))(nn.ModuleDict({"listener": made[init]}))
    rows, lengths = torch.randn(4, 40, 60), torch.full((4,), 40)
    for layer, before in zip(made["returnn_unit_gates"].layers, made["returnn"].layers, strict=True):
        cell, own = layer.forwards.cell, before.forwards.cell
        outputs = layer(rows, lengths).detach()
        gates = rows[:, 1:] @ cell.input_weight.T + outputs[:, :-1, :128] @ cell.recurrent_weight.T
        assert 0.6 < float(gates.detach().std()) < 1.25
        factors = [cell.input_weight / own.input_weight, cell.recurrent_weight / own.recurrent_weight]
        assert all(torch.allclose(part, factors[0].flatten()[0], rtol=1e-3) for part in factors)
        rows = outputs


@pytest.mark.parametrize("cell", [PlainLSTMCell, LNJoinedLSTMCell])
def test_the_speller_is_not_drawn_in_another_scale(cell: Any) -> None:
    values = {}
    for init in ("returnn", "returnn_unit_variance", "returnn_unit_gates"):
        torch.manual_seed(1)
        model = nn.ModuleDict({"speller": cell(8, 4)})
        build(option("init", init))(model)
        values[init] = [*model.parameters()]
    assert all(torch.equal(*each) for pair in values.values() for each in zip(values["returnn"], pair, strict=True))


@pytest.mark.parametrize("name", ["input_std", "gate_std"])
def test_a_scale_of_zero_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=0"):
        LSTMInitialisation(weights="per_gate", **{name: 0.0})
