"""Norms of cells against their equations in NumPy, in the cells that have them, and in training."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from cell_cases import HIDDEN, INPUT, material, run
from console import Las
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import compiles
from numpy.typing import NDArray
from options import attention, part
from parameters import moved
from speller_cases import VALUE, VOCAB, plain, results
from speller_cases import material as encoded
from tiers import rest_slow

import las
from las.nn.cells.base import CELL_NORMS
from las.nn.cells.norms import CellNorm, DynamicTanh, LayerNorm, NoNorm, RMSNorm
from las.runtime.errors import ConfigError

ALPHA = 0.75
Array = NDArray[np.float64]


def layer(z: Array, eps: float) -> Array:
    return (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + eps)


def rms(z: Array, eps: float) -> Array:
    return z / np.sqrt(np.mean(z * z, -1, keepdims=True) + eps)


def dynamic_tanh(z: Array, eps: float) -> Array:
    return np.tanh(ALPHA * z)


EQUATIONS = {
    "layer": (LayerNorm, layer),
    "rms": (RMSNorm, rms),
    "dynamic_tanh": (partial(DynamicTanh, ALPHA), dynamic_tanh),
    "none": (NoNorm, lambda z, eps: z),
}
every_norm = pytest.mark.parametrize("name", EQUATIONS)
CELLS = [las.LNGlobalLSTMCell, las.LNJoinedLSTMCell, las.LNPerGateLSTMCell]
CELLS += [partial(las.LNOneProjectionLSTMCell, normalised="recurrent"), las.LNSelectedGatesLSTMCell]


@every_norm
@given(st.integers(1, 9), st.integers(0, 99), st.booleans(), st.sampled_from([1e-12, 1e-5, 1e-2]))
def test_equals_its_equation(name: str, size: int, seed: int, has_bias: bool, eps: float) -> None:
    make, expected = EQUATIONS[name]
    numbers = np.random.default_rng(seed)
    z, gain, bias = numbers.normal(1.0, 2.0, (3, 4, size)), numbers.normal(size=(4, size)), numbers.normal(size=size)
    found = make().double()(*map(torch.from_numpy, (z, gain)), torch.from_numpy(bias) if has_bias else None, eps)
    assert found.detach().numpy() == pytest.approx(expected(z, eps) * gain + (bias if has_bias else 0.0), abs=1e-9)


@every_norm
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    norm, z, gain = EQUATIONS[name][0]().double(), *torch.randn(2, 3, 5, dtype=torch.float64)
    given = [part.requires_grad_() for part in (z, gain[0], gain[1], *norm.parameters())]
    assert torch.autograd.gradcheck(lambda z, gain, bias, *alpha: norm(z, gain, bias, 1e-5), given)


@pytest.mark.parametrize(
    ("name", "scale", "shift"), [("layer", 1, 1), ("rms", 1, 0), ("dynamic_tanh", 0, 0), ("none", 0, 0)]
)
def test_invariances(name: str, scale: int, shift: int) -> None:
    norm, z, one = EQUATIONS[name][0]().double(), torch.randn(4, 8, dtype=torch.float64), torch.ones(8).double()
    for change, kept in ((7.0 * z, scale), (z + 3.0, shift)):
        assert torch.allclose(norm(change, one, None, 1e-12), norm(z, one, None, 1e-12)) == bool(kept)


@pytest.mark.parametrize("make", CELLS)
@pytest.mark.parametrize("cell_norm", CELL_NORMS)
def test_a_cell_with_a_norm_is_the_cell_with_its_equation_in_the_place_of_layer_norms(
    make: Any, cell_norm: str
) -> None:
    class Renamed(CellNorm):
        def forward(self, values: torch.Tensor, gain: torch.Tensor, bias: Any, eps: float) -> torch.Tensor:
            return las.CellNorm.affine(torch.nn.functional.layer_norm(values, values.shape[-1:], eps=eps), gain, bias)

    x, state = material()
    cells = [moved(make(INPUT, HIDDEN, cell_norm=cell_norm, norm=norm).double(), 0.5) for norm in (LayerNorm, Renamed)]
    cells[1].load_state_dict(cells[0].state_dict())
    torch.testing.assert_close(run(cells[0], x, state), run(cells[1], x, state))
    others = [make(INPUT, HIDDEN, cell_norm=cell_norm, norm=norm).double() for norm in (RMSNorm, DynamicTanh)]
    for other in others:
        assert set(cells[0].state_dict()) == {name for name in other.state_dict() if "alpha" not in name}
        other.load_state_dict(cells[0].state_dict(), strict=False)
        assert not torch.allclose(run(other, x, state), run(cells[0], x, state))


def test_dynamic_tanh_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"alpha=0: .* 0\.5"):
        las.LSTM(INPUT, HIDDEN, cell="ln_joined", norm=partial(DynamicTanh, 0.0))


@compiles
@pytest.mark.parametrize("norm", [RMSNorm, DynamicTanh, NoNorm])
@pytest.mark.parametrize("make", CELLS[:3])
def test_spellers_have_them_compiled(make: Any, norm: type[CellNorm]) -> None:
    """Passes here; steps of a search are compared in `test_cpu_search.py`."""
    cell_norm = "none" if norm is DynamicTanh else "output"
    torch.manual_seed(1)
    cell = partial(make, norm=norm, cell_norm=cell_norm, forget_bias=1.0)
    speller = las.Speller(
        VOCAB, VALUE, cell=cell, attention=attention("location"), num_layers=2, hidden_size=7, embedding_size=3
    )
    speller = moved(speller, 0.3).double().eval()
    assert speller.explain(encoded()) == "speller: cpu"
    torch.testing.assert_close(results(speller, encoded()), plain(speller, encoded()), rtol=1e-9, atol=1e-11)


@pytest.mark.unchecked
@pytest.mark.parametrize("norm", rest_slow([RMSNorm, DynamicTanh, NoNorm]))
def test_a_layer_is_compiled_by_torch(norm: type[CellNorm]) -> None:
    torch.manual_seed(1)
    lstm, frames = las.LSTM(INPUT, HIDDEN, cell=partial(las.LNJoinedLSTMCell, norm=norm)), torch.randn(7, 2, INPUT)
    compiled = torch.compile(lstm, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(frames)[0], lstm(frames)[0])


@pytest.mark.parametrize("name", ["rms", "dynamic_tanh"])
def test_a_training_has_the_norm_of_its_option_and_decodes(name: str, corpus: Path, las: Las) -> None:
    chosen = [
        "cell@model.listener.cell=ln_global",
        f"+norm@model.listener.cell.norm={name}",
        "+model.listener.cell.cell_norm=output",
    ]
    las("train", *tiny.overrides(corpus, *chosen)).succeeds("cpu" if name == "rms" else "plain")
    las("decode", f"checkpoint={corpus / 'run'}", "split=dev", f"output={corpus / 'dev.jsonl'}").succeeds("dev")


@every_norm
def test_options_are_their_classes(name: str) -> None:
    assert type(part("norm", name)()) is type(EQUATIONS[name][0]())
