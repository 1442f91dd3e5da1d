"""Cells whose state is no h and c of one size: each against its equations in NumPy, and in all that carries states."""

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from cell_cases import BATCH, FRAMES, HIDDEN, INPUT, LSTMS, OPTIONS, factory_of, make, material, state_of
from parameters import moved
from tiers import rest_slow
from torch import Tensor, nn

import las
from las.lm.lstm import LSTMLanguageModel
from las.nn import export
from las.nn.cells.linear import linear_scan
from las.nn.kernels import choice
from las.nn.kernels.base import unroll
from las.nn.nested import mapped
from las.nn.rnn import BidirectionalLayer, RecurrentLayer
from las.runtime.errors import ConfigError

Array = np.ndarray
LENGTHS = torch.tensor([4, 2, 3])


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def gru(p: dict[str, Array], x: Array, h: Array) -> list[Array]:
    """Cho et al. 2014, in torch's form: the reset gate after the product."""
    wx, uh, n = x @ p["input_weight"].T + p["bias"], h @ p["recurrent_weight"].T, HIDDEN
    reset, update = sigmoid((wx + uh)[:, :n]), sigmoid((wx + uh)[:, n : 2 * n])
    candidate = np.tanh(wx[:, 2 * n :] + reset * (uh[:, 2 * n :] + p["candidate_bias"]))
    return [(1 - update) * candidate + update * h]


def layer_norm(z: Array) -> Array:
    return (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + 1e-5)


def ln_gru(p: dict[str, Array], x: Array, h: Array, norm: Callable[[Array], Array] = layer_norm) -> list[Array]:
    """Ba et al. 2016, supplementary material: norms of two gates together and of the candidate, for each projection."""
    rows, n = (x @ p["input_weight"].T, h @ p["recurrent_weight"].T), 2 * HIDDEN
    wx, uh = (np.concatenate([norm(row[:, :n]), norm(row[:, n:])], -1) for row in rows)
    wx, uh = p["input_gain"] * wx + p["bias"], p["recurrent_gain"] * uh
    reset, update = np.split(sigmoid((wx + uh)[:, :n]), 2, -1)
    candidate = np.tanh(wx[:, n:] + reset * (uh[:, n:] + p["candidate_bias"]))
    return [(1 - update) * candidate + update * h]


def li_gru(p: dict[str, Array], x: Array, h: Array) -> list[Array]:
    """Ravanelli et al. 2018, equations 8-10, a layer norm in place of the batch norm."""
    wx = p["gain"] * layer_norm(x @ p["input_weight"].T) + p["bias"]
    update, candidate = np.split(wx + h @ p["recurrent_weight"].T, 2, -1)
    return [sigmoid(update) * h + (1 - sigmoid(update)) * candidate.clip(0)]


def sli_gru(p: dict[str, Array], x: Array, h: Array) -> list[Array]:
    """Moumen and Parcollet 2023: U h normalised too."""
    wx = p["gain"] * layer_norm(x @ p["input_weight"].T) + p["bias"]
    uh = p["recurrent_gain"] * layer_norm(h @ p["recurrent_weight"].T)
    update, candidate = np.split(wx + uh, 2, -1)
    return [sigmoid(update) * h + (1 - sigmoid(update)) * candidate.clip(0)]


def min_gru(p: dict[str, Array], x: Array, h: Array) -> list[Array]:
    """Feng et al. 2024, section 3.1."""
    update, candidate = np.split(x @ p["input_weight"].T + p["bias"], 2, -1)
    return [(1 - sigmoid(update)) * h + sigmoid(update) * candidate]


def min_lstm(p: dict[str, Array], x: Array, h: Array) -> list[Array]:
    """Feng et al. 2024, section 3.2."""
    write, forget, candidate = np.split(x @ p["input_weight"].T + p["bias"], 3, -1)
    total = sigmoid(forget) + sigmoid(write)
    return [sigmoid(forget) / total * h + sigmoid(write) / total * candidate]


def projected_lstm(p: dict[str, Array], x: Array, h: Array, c: Array) -> list[Array]:
    """Sak et al. 2014, equations 7-12, without peepholes."""
    i, f, g, o = np.split(x @ p["input_weight"].T + h @ p["recurrent_weight"].T + p["bias"], 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return [(sigmoid(o) * np.tanh(c)) @ p["projection_weight"].T, c]


def slstm(p: dict[str, Array], x: Array, h: Array, c: Array, n: Array, m: Array) -> list[Array]:
    """Beck et al. 2024, equations 8-17: the exponentials themselves, which small numbers allow, times exp(-m)."""
    i, f, z, o = np.split(x @ p["input_weight"].T + h @ p["recurrent_weight"].T + p["bias"], 4, -1)
    m_new = np.where(n == 0, i, np.maximum(np.log(sigmoid(f)) + m, i))
    c, n = (np.exp(m - m_new) * sigmoid(f) * old + np.exp(i - m_new) * new for old, new in ((c, np.tanh(z)), (n, 1.0)))
    return [sigmoid(o) * c / n, c, n, m_new]


STEPS: dict[str, Callable[..., list[Array]]] = {
    "gru": gru,
    "ln_gru": ln_gru,
    "li_gru": li_gru,
    "sli_gru": sli_gru,
    "min_gru": min_gru,
    "min_lstm": min_lstm,
    "projected_lstm": projected_lstm,
    "slstm": slstm,
}
"""A step of each cell: its parameters, a frame [batch, input] and the parts of the state before to those after."""
every_state = pytest.mark.parametrize("name", STEPS)
unrolled = [name for name in OPTIONS if not factory_of(name)(INPUT, HIDDEN).not_unrolled(torch.zeros(1))]
every_unrolled = pytest.mark.parametrize("name", unrolled)


@every_state
def test_a_cell_equals_a_numpy_transcription(name: str) -> None:
    """In the plain loop, from a state and from none."""
    cell = make(name)
    p = {key: parameter.detach().numpy() for key, parameter in cell.named_parameters()}
    x = material()[0]
    for first in (state_of(cell, BATCH), None):
        outputs, last = unroll(cell, cell.input_gates(x), torch.full((BATCH,), FRAMES), first)
        state = [part.numpy() for part in (first or mapped(cell.initial_state(BATCH), torch.detach))]
        for frame in range(FRAMES):
            state = STEPS[name](p, x[:, frame].numpy(), *state)
            np.testing.assert_allclose(outputs[:, frame].detach().numpy(), state[0], rtol=1e-9, atol=1e-12)
        for part, expected in zip(last, state, strict=True):
            np.testing.assert_allclose(part.detach().numpy(), expected, rtol=1e-9, atol=1e-12)


NORMS: list[tuple[Any, Callable[[Array], Array]]] = [
    (las.RMSNorm, lambda z: z / np.sqrt(np.mean(z * z, -1, keepdims=True) + 1e-5)),
    (partial(las.DynamicTanh, 0.75), lambda z: np.tanh(0.75 * z)),
    (las.NoNorm, lambda z: z),
]


@pytest.mark.parametrize(("norm", "equation"), NORMS)
def test_a_gru_has_other_norms_too(norm: Any, equation: Callable[[Array], Array]) -> None:
    cell, (x, (h, _)) = las.LNGRUCell(INPUT, HIDDEN, norm=norm).double(), material()
    for name, parameter in cell.named_parameters():
        nn.init.normal_(parameter) if "alpha" not in name else None
    p = {key: parameter.detach().numpy() for key, parameter in cell.named_parameters()}
    found = cell.step(cell.input_gates(x[:, 0]), las.HiddenState(h)).hidden
    np.testing.assert_allclose(found.detach().numpy(), ln_gru(p, x[:, 0].numpy(), h.numpy(), equation)[0], rtol=1e-9)


def test_every_option_that_is_no_lstm_has_a_transcription() -> None:
    ours = {name for name in OPTIONS if type(factory_of(name)(INPUT, HIDDEN)).__module__.startswith("las.nn.cells.")}
    assert {name for name in ours if name not in LSTMS} <= STEPS.keys()


@every_unrolled
@pytest.mark.parametrize("lengths", [[4, 2, 3], [4, 4, 4], [0, 1, 4], [0, 0, 0]], ids=str)
def test_all_frames_at_once_equal_the_steps(name: str, lengths: list[int]) -> None:
    """Outputs, last states, gradients and second derivatives, in both directions, with padding of NaN."""
    layer = moved(BidirectionalLayer(factory_of(name), INPUT, HIDDEN).double(), 0.3)
    both = layer.forwards.cell, layer.backwards.cell
    states = [mapped(state_of(cell, BATCH), Tensor.requires_grad_) for cell in both]
    num_frames = torch.tensor(lengths)
    frames = material()[0].masked_fill(torch.arange(FRAMES).unsqueeze(1) >= num_frames.view(-1, 1, 1), float("nan"))
    frames.requires_grad_()
    wanted = [frames, *(part for state in states for part in state), *layer.parameters()]
    found = []
    for kernel in ("torch", "plain"):
        with choice.use_kernel(kernel):
            outputs, last = layer.with_states(frames, num_frames, states)
        results = [outputs, *(part for state in last for part in state)]
        total = torch.stack([part.sin().sum() for part in results]).sum()
        first = torch.autograd.grad(total, wanted, create_graph=True, materialize_grads=True)
        squares = torch.stack([part.square().sum() for part in first]).sum()
        second = torch.autograd.grad(squares, wanted, materialize_grads=True)
        found.append([*results, *first, *second])
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-11)
    assert all(part.isfinite().all() for part in found[0])


@every_unrolled
def test_the_log_names_the_kernel(name: str) -> None:
    cell = factory_of(name)(INPUT, HIDDEN)
    assert choice.explain(cell, torch.zeros(1)).startswith("recurrences: torch (")
    assert choice.available(cell).startswith("torch, plain")
    for kernel in ("cpu", "triton"):
        with choice.use_kernel(kernel), pytest.raises(ConfigError, match="not among those compiled"):
            choice.select_kernel(cell, torch.zeros(1))


@every_state
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_finite_and_near(name: str, dtype: torch.dtype) -> None:
    layer = RecurrentLayer(lambda *_: make(name), INPUT, HIDDEN)
    expected = layer(material()[0], LENGTHS)[0]
    layer.to(dtype)
    outputs, last = layer(material()[0].to(dtype), LENGTHS)
    assert outputs.dtype == dtype and all(part.dtype == dtype for part in last)
    torch.testing.assert_close(outputs.double(), expected, rtol=0.1, atol=0.1)
    outputs.float().square().sum().backward()
    assert all(part.grad is not None and part.grad.isfinite().all() for part in layer.parameters())


@pytest.mark.unchecked
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # torch itself uses it
@pytest.mark.parametrize("name", rest_slow(STEPS, keep=0))
def test_it_is_compiled_and_exported(name: str) -> None:
    """Frame by frame by torch.compile; for any length by the kernel of the programs of a bundle."""
    torch.compiler.reset()
    lstm, frames = las.LSTM(INPUT, HIDDEN, batch_first=True, cell=name).eval(), material()[0].float()
    fast = torch.compile(lstm, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(fast(frames), lstm(frames))
    with choice.use_kernel(export.ScanKernel()), torch.no_grad():
        size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
        program = torch.export.export(lstm, (frames,), dynamic_shapes=(size,))
    longer, file = torch.cat([frames, frames], 1)[:2], io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    torch.testing.assert_close(torch.export.load(file).module()(longer)[0], lstm(longer)[0])


@every_state
def test_a_speller_steps_as_it_was_taught(name: str) -> None:
    """Two layers; a search's steps, reordered and repeated, equal teacher forcing."""
    torch.manual_seed(1)
    parts = {"cell": factory_of(name), "attention": partial(las.DotAttention, key_size=4)}
    speller = las.Speller(7, 5, **parts, num_layers=2, hidden_size=6, embedding_size=3)
    speller = moved(speller.double(), 0.3).eval()
    memory = speller.attention.prepare(torch.randn(3, 4, 5).double(), torch.tensor([4, 2, 3]))
    targets = torch.tensor([[1, 2, 3], [4, 5, 6], [2, 2, 1]])
    expected = torch.log_softmax(speller(memory, targets).logits, -1)
    state = mapped(speller.start(memory), lambda part: part.expand(-1, 2, *part.shape[2:]))
    fed = torch.cat([torch.zeros(3, 1, dtype=torch.long), targets], 1)
    for step, tokens in enumerate(fed.unbind(1)):
        both = torch.stack([tokens, tokens.roll(1)], 1)
        log_probs, state = speller.step(both, memory, state)
        torch.testing.assert_close(log_probs[:, 0], expected[:, step])
        state = mapped(state, lambda part: part.flip(1).flip(1))
    assert not torch.allclose(log_probs[:, 1], log_probs[:, 0])


@every_state
def test_a_language_model_steps_as_it_was_taught(name: str) -> None:
    torch.manual_seed(1)
    model = LSTMLanguageModel(6, cell=factory_of(name), num_layers=2, hidden_size=6, embedding_size=3).double().eval()
    targets = torch.tensor([[1, 2, 5]])
    expected = torch.log_softmax(model(targets), -1)
    state = model.start(1)
    for step, token in enumerate(targets[0]):
        torch.testing.assert_close(model.score(state)[0, 0], expected[0, step])
        state = model.advance(state, token.view(1, 1))
    torch.testing.assert_close(model.score(state)[0, 0], expected[0, 3])


@every_state
def test_a_stack_of_two_directions_gives_and_takes_its_states(name: str) -> None:
    """Packed in, packed out; the states after the halves are those after the whole."""
    lstm = las.LSTM(INPUT, HIDDEN, 2, batch_first=True, bidirectional=True, cell=name).double()
    packed = nn.utils.rnn.pack_padded_sequence(material()[0], LENGTHS, batch_first=True, enforce_sorted=False)
    outputs, last = lstm(packed)
    padded, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
    hidden = last if isinstance(last, Tensor) else last[0]
    for row, length in enumerate(LENGTHS.tolist()):
        ahead, back = padded[row].chunk(2, -1)
        assert torch.equal(ahead[length - 1], hidden[2, row]) and torch.equal(back[0], hidden[3, row])
    one_way = las.LSTM(INPUT, HIDDEN, 2, batch_first=True, cell=name).double()
    whole, end = one_way(material()[0])
    first, state = one_way(material()[0][:, :1])
    second, state = one_way(material()[0][:, 1:], state)
    torch.testing.assert_close((torch.cat([first, second], 1), state), (whole, end))


STACKS = [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}]


@pytest.mark.parametrize("options", STACKS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.GRU, partial(nn.LSTM, proj_size=2)], ids=["gru", "projected_lstm"])
def test_cells_of_torch_are_equal_and_come_back(kind: Any, options: dict[str, Any], bias: bool) -> None:
    """Packed, from a state, with its gradients."""
    torch.manual_seed(1)
    theirs = kind(INPUT, HIDDEN, bias=bias, dtype=torch.float64, **options)
    ours = las.LSTM.from_torch(theirs)
    frames, count = material()[0].requires_grad_(), theirs.num_layers * (2 if theirs.bidirectional else 1)
    sizes = [2, HIDDEN] if theirs.proj_size else [HIDDEN]
    parts = [torch.randn(count, BATCH, size, dtype=torch.float64) for size in sizes]
    state, found = tuple(parts) if len(parts) > 1 else parts[0], []
    for module in (theirs, ours, ours.to_torch()):
        packed = nn.utils.rnn.pack_padded_sequence(frames, LENGTHS, batch_first=True, enforce_sorted=False)
        outputs, last = module(packed, state)
        ends = [outputs.data, *([last] if isinstance(last, Tensor) else last)]
        total = torch.stack([part.square().sum() for part in ends]).sum()
        found.append([*ends, *torch.autograd.grad(total, frames)])
    for one in found[1:]:
        torch.testing.assert_close(one, found[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("blocks", [1, 2, 3, 7])
def test_a_scan_in_blocks_is_the_loop(blocks: int) -> None:
    torch.manual_seed(1)
    decay, update = torch.rand(2, 2, 7, 3, dtype=torch.float64, requires_grad=True)
    first = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    state, expected = first, []
    for frame in range(7):
        state = decay[:, frame] * state + update[:, frame]
        expected.append(state)
    torch.testing.assert_close(linear_scan(decay, update, first, blocks), torch.stack(expected, 1))
    scanned = partial(linear_scan, blocks=blocks)
    assert torch.autograd.gradcheck(scanned, (decay, update, first))
    assert torch.autograd.gradgradcheck(scanned, (decay, update, first))


def test_an_slstm_is_stable_where_exponentials_overflow() -> None:
    """Input gates of -1000 to 1000; and the very first frame counts fully however small its exponent is."""
    cell = make("slstm")
    gates = cell.input_gates(material()[0])
    gates[..., :HIDDEN] = torch.linspace(-1000, 1000, FRAMES, dtype=torch.float64).view(-1, 1)
    outputs, last = unroll(cell, gates, torch.full((BATCH,), FRAMES))
    assert outputs.isfinite().all() and all(part.isfinite().all() for part in last)
    z, o = gates[:, 0].chunk(4, -1)[2:]
    torch.testing.assert_close(outputs[:, 0], torch.sigmoid(o) * torch.tanh(z))


def test_states_of_another_number_are_refused() -> None:
    lstm, part = las.LSTM(INPUT, HIDDEN, cell="gru"), torch.zeros(1, 2, HIDDEN)
    with pytest.raises(ConfigError, match="1: h_0"):
        lstm(torch.zeros(FRAMES, 2, INPUT), (part, part))
    with pytest.raises(ConfigError, match=r"h_0 .*expected \[1, 2, 6\]"):
        lstm(torch.zeros(FRAMES, 2, INPUT), part[:, :1])
    with pytest.raises(ConfigError, match="takes LSTM cells"):
        las.ZoneoutLSTMCell(INPUT, HIDDEN, cell=las.GRUCell)
