"""What the cells to compare with do while training, where they draw or look at their whole batch.

The properties that they share with all cells are in `test_cells.py` and `test_rnn.py`, in evaluation.
"""

import functools

import numpy as np
import pytest
import torch
from cell_cases import BATCH, FRAMES, HIDDEN, INPUT, equations_of, factory_of, make, material
from torch import Tensor, nn
from torch.func import functional_call

from las.nn.cells.base import LSTMCell, LSTMState
from las.nn.cells.bn_recurrent import BNRecurrentLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.cells.recurrent_dropout import RecurrentDropoutLSTMCell
from las.nn.cells.zoneout import ZoneoutLSTMCell
from las.nn.kernels.base import unroll
from las.nn.rnn import RecurrentLayer

COMPARED = ("bn_input", "bn_recurrent", "weight_norm", "zoneout", "recurrent_dropout", "noisy", "ba2016_swapped")
LENGTHS = torch.tensor([4, 2, 3])
MASK = torch.arange(FRAMES) < LENGTHS.unsqueeze(1)
every_batch_norm = pytest.mark.parametrize("name", ["bn_input", "bn_recurrent"])


def layer_of(name: str, **options: object) -> RecurrentLayer:
    """A layer of the cell in training mode, every parameter moved."""
    cell = make(name, **options).train()
    return RecurrentLayer(lambda _, __: cell, INPUT, HIDDEN).double()


def numpy_of(cell: LSTMCell) -> dict[str, np.ndarray]:
    return {key: parameter.detach().numpy() for key, parameter in equations_of(cell).named_parameters()}


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def update(z: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The memory after, and the open part of the output."""
    i, f, g, o = np.split(z, 4, -1)
    return sigmoid(f) * c + sigmoid(i) * np.tanh(g), sigmoid(o)


def bn(z: np.ndarray, gain: np.ndarray, bias: np.ndarray | float, rows: np.ndarray) -> np.ndarray:
    """Batch norm of z with the statistics of `rows`."""
    return gain * (z - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5) + bias


def test_batch_norm_of_the_input_equals_its_equation_on_the_true_frames() -> None:
    layer = layer_of("bn_input")
    p = numpy_of(layer.cell)
    x, _ = material()
    outputs, _ = layer(x, LENGTHS)
    projected = x.numpy() @ p["input_weight"].T
    normalised = bn(projected, p["gain"], p["bias"], projected[MASK.numpy()])
    for row, length in enumerate(LENGTHS.tolist()):
        h, c = np.zeros(HIDDEN), np.zeros(HIDDEN)
        for frame in range(length):
            c, o = update(normalised[row, frame] + p["recurrent_weight"] @ h, c)
            h = o * np.tanh(c)
            np.testing.assert_allclose(outputs[row, frame].detach().numpy(), h, rtol=1e-9, atol=1e-12)


def test_recurrent_batch_norm_equals_its_equations_step_by_step() -> None:
    """Each step with the statistics of the utterances that last so long, hidden state and memory among them."""
    layer = layer_of("bn_recurrent")
    p = numpy_of(layer.cell)
    x, state = material()
    outputs, last = layer(x, LENGTHS, state)
    h, c = state.hidden.numpy().copy(), state.cell.numpy().copy()
    for frame in range(FRAMES):
        there = MASK[:, frame].numpy()
        wx, uh = x[there, frame].numpy() @ p["input_weight"].T, h[there] @ p["recurrent_weight"].T
        z = bn(wx, p["input_gain"], 0.0, wx) + bn(uh, p["recurrent_gain"], p["bias"], uh)
        c[there], o = update(z, c[there])
        h[there] = o * np.tanh(bn(c[there], p["cell_gain"], p["cell_bias"], c[there]))
        np.testing.assert_allclose(outputs[there, frame].detach().numpy(), h[there], rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(last.cell.detach().numpy(), c, rtol=1e-8, atol=1e-11)


def test_each_step_has_running_statistics_of_its_own_and_the_late_ones_share() -> None:
    cell: BNRecurrentLSTMCell = make("bn_recurrent", num_steps=3).train()
    x, _ = material()
    unroll(cell, cell.input_gates(x), torch.tensor([4, 4, 4]))
    projected = x @ cell.input_weight.T
    after_one = 0.1 * projected.mean(0)
    torch.testing.assert_close(cell.input_moments.mean[:2], after_one[:2])
    torch.testing.assert_close(cell.input_moments.mean[2], 0.9 * after_one[2] + after_one[3])
    cell.eval()
    state = cell.initial_state(BATCH)
    unaware, late = (cell.input_gates(x[:, 0]), state), (cell.input_gates(x[:, 0]), state, 7, torch.ones(3) > 0)
    torch.testing.assert_close(cell.step(*unaware), cell.padded_step(*late))
    assert (cell.step(*unaware).cell - cell.padded_step(*late[:2], 0, late[3]).cell).abs().max() > 1e-6


@every_batch_norm
@pytest.mark.parametrize("poison", [float("nan"), 1e30])
def test_padding_reaches_no_statistics(name: str, poison: float) -> None:
    results = []
    for value in (0.0, poison):
        layer = layer_of(name)
        frames = material()[0].masked_fill(~MASK.unsqueeze(-1), value).requires_grad_()
        outputs, last = layer(frames, LENGTHS)
        loss = outputs.square().sum() + last.cell.sum()
        gradients = torch.autograd.grad(loss, [frames, *layer.parameters()])
        results.append([outputs, *last, *gradients, *layer.buffers()])
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    assert all(tensor.isfinite().all() for tensor in results[1])
    padded = layer_of(name)
    padded(nn.functional.pad(material()[0], (0, 0, 0, 5)), LENGTHS)
    torch.testing.assert_close([*padded.buffers()], results[0][-len([*padded.buffers()]) :])


@pytest.mark.parametrize("name", COMPARED)
def test_gradients_of_training_equal_finite_differences(name: str) -> None:
    """With what is drawn held still, and through the statistics of the batch; towards frames and every parameter."""
    layer = layer_of(name)
    parameters = {key: parameter.detach().requires_grad_() for key, parameter in layer.named_parameters()}

    def function(x: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        torch.manual_seed(5)
        given = dict(zip(parameters, values, strict=True))
        outputs, last = functional_call(layer, given, (x, LENGTHS, material()[1]))
        return outputs, *last

    x = material()[0].requires_grad_()
    assert torch.autograd.gradcheck(function, (x, *parameters.values()), fast_mode=True)


def test_weight_norm_is_that_of_torch() -> None:
    """Against `torch.nn.utils.parametrizations.weight_norm` of dim 0, before and after the gains have moved."""
    start = factory_of("weight_norm")(INPUT, HIDDEN).double()
    plain = PlainLSTMCell(INPUT, HIDDEN).double()
    plain.load_state_dict({key: start.state_dict()[key] for key in plain.state_dict()})
    x, state = material()
    torch.testing.assert_close(
        start.step(start.input_gates(x[:, 0]), state), plain.step(plain.input_gates(x[:, 0]), state)
    )
    cell = make("weight_norm")
    for direction, gain, size in (
        (cell.input_weight, cell.input_gain, INPUT),
        (cell.recurrent_weight, cell.recurrent_gain, HIDDEN),
    ):
        oracle = nn.utils.parametrizations.weight_norm(nn.Linear(size, 4 * HIDDEN, bias=False).double(), dim=0)
        with torch.no_grad():
            oracle.parametrizations.weight.original0.copy_(gain.unsqueeze(1))
            oracle.parametrizations.weight.original1.copy_(direction)
        rows = torch.eye(size, dtype=torch.float64)
        bias = cell.bias if size == INPUT else 0.0
        ours = cell.input_gates(rows) - bias if size == INPUT else cell.gates(rows.new_zeros(size, 4 * HIDDEN), rows)
        torch.testing.assert_close(ours, oracle(rows))


def around(
    wrapper: type[LSTMCell], inside: type[LSTMCell] = PlainLSTMCell, **options: float
) -> tuple[LSTMCell, LSTMCell]:
    """A cell inside a wrapper, and the same cell alone."""
    torch.manual_seed(3)
    wrapped = wrapper(INPUT, HIDDEN, cell=functools.partial(inside), **options).double()
    return wrapped, equations_of(wrapped)


@pytest.mark.parametrize("inside", [PlainLSTMCell, LNJoinedLSTMCell])
def test_zoneout_keeps_or_takes_each_unit_and_evaluation_is_the_mean(inside: type[LSTMCell]) -> None:
    wrapped, alone = around(ZoneoutLSTMCell, inside, zoneout_hidden=0.2, zoneout_cell=0.6)
    x, old = material()
    x, old = x[:1, 0].expand(20000, -1), LSTMState(*(part[:1].expand(20000, -1) for part in old))
    gates = alone.input_gates(x)
    new, drawn = alone.step(gates, old), wrapped.train().step(gates, old)
    expected = wrapped.eval().step(gates, old)
    for part, probability in (("hidden", 0.2), ("cell", 0.6)):
        taken, kept, made = (getattr(state, part) for state in (new, old, drawn))
        is_old = made == kept
        assert torch.equal(made, torch.where(is_old, kept, taken))
        assert abs(float(is_old.double().mean()) - probability) < 0.01
        torch.testing.assert_close(getattr(expected, part), probability * kept + (1 - probability) * taken)
        torch.testing.assert_close(made.mean(0), getattr(expected, part)[0], rtol=0, atol=0.02)


def test_recurrent_dropout_drops_what_would_be_written_and_never_what_is_remembered() -> None:
    wrapped, alone = around(RecurrentDropoutLSTMCell, dropout=0.25)
    x, old = material()
    x, old = x[:1, 0].expand(20000, -1), LSTMState(*(part[:1].expand(20000, -1) for part in old))
    gates = alone.input_gates(x)
    i, f, g, o = alone.gates(gates, old.hidden).chunk(4, -1)
    remembered, written = torch.sigmoid(f) * old.cell, torch.sigmoid(i) * torch.tanh(g) / 0.75
    drawn = wrapped.train().step(gates, old)
    dropped = torch.isclose(drawn.cell, remembered, rtol=1e-12, atol=0)
    torch.testing.assert_close(drawn.cell, torch.where(dropped, remembered, remembered + written))
    torch.testing.assert_close(drawn.hidden, torch.sigmoid(o) * torch.tanh(drawn.cell))
    assert abs(float(dropped.double().mean()) - 0.25) < 0.01
    torch.testing.assert_close(wrapped.eval().step(gates, old), alone.step(gates, old))


def test_the_swapped_cell_remembers_its_output() -> None:
    """c_t = sigmoid(f + 1) h_{t-1} + sigmoid(i) tanh(g), gates of c_{t-1}, with layer norm as in ba2016, eps 1e-3."""
    cell = make("ba2016_swapped")
    p = numpy_of(cell)
    x, state = material()

    def ln(z: np.ndarray, key: str) -> np.ndarray:
        centred = z - z.mean(-1, keepdims=True)
        return p[f"{key}_gain"] * centred / np.sqrt(z.var(-1, keepdims=True) + 1e-3) + p[f"{key}_bias"]

    h, c = state.hidden.numpy(), state.cell.numpy()
    outputs, _ = unroll(cell, cell.input_gates(x), torch.full((BATCH,), FRAMES), state)
    for frame in range(FRAMES):
        wx, uc = x[:, frame].numpy() @ p["input_weight"].T, c @ p["recurrent_weight"].T
        i, f, g, o = np.split(ln(wx, "input") + ln(uc, "recurrent") + p["bias"], 4, -1)
        c = sigmoid(f + 1) * h + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(ln(c, "cell"))
        np.testing.assert_allclose(outputs[:, frame].detach().numpy(), h, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["zoneout", "recurrent_dropout", "noisy"])
def test_draws_are_those_of_the_seed_and_new_at_every_step(name: str) -> None:
    layer = layer_of(name)
    x, _ = material()
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(layer(x, LENGTHS)[0])
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])
    assert not torch.equal(layer(x, LENGTHS)[0], layer(x, LENGTHS)[0])


def test_wrapped_cells_wrap_each_other_where_that_means_something() -> None:
    inside = functools.partial(RecurrentDropoutLSTMCell, cell=functools.partial(LNJoinedLSTMCell), dropout=0.5)
    cell = ZoneoutLSTMCell(INPUT, HIDDEN, cell=inside, zoneout_hidden=0.0, zoneout_cell=0.0, eps=1e-3)
    assert type(equations_of(cell)) is LNJoinedLSTMCell and cell.eps == equations_of(cell).eps == 1e-3
    outputs, _ = unroll(cell, cell.input_gates(material()[0].float()), LENGTHS)
    assert outputs.isfinite().all()
