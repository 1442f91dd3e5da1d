"""Each preset against its equations in NumPy, from which its invariances follow."""

import numpy as np
import pytest
import torch
from cell_cases import BATCH, FRAMES, HIDDEN, make, material

from las.nn.cells.base import CELL_NORMS, LSTMState
from las.nn.kernels.base import unroll

# name: family, offsets besides W and U in units of H, cell norm, forget bias, eps. Written out here a second time, from
# the papers and programs the presets are named after, not from the options.
PRESETS: dict[str, tuple[str, int, str, float, float]] = {
    "lstm": ("lstm", 4, "none", 0, 1e-5),
    "ln_global": ("ln_global", 20, "none", 0, 1e-5),
    "ln_joined": ("ln_joined", 8, "none", 0, 1e-5),
    "ln_per_gate": ("ln_per_gate", 8, "none", 0, 1e-5),
    "ba2016": ("ln_global", 20, "output", 0, 1e-5),
    "haste": ("ln_global", 12, "output", 1, 1e-5),
    "tf_addons": ("ln_global", 20, "both", 1, 1e-3),
    "tf_contrib": ("ln_per_gate", 8, "both", 1, 1e-12),
    "lingvo_simple": ("capped", 8, "none", 0, 1e-8),
    "lingvo_lean": ("capped", 8, "output", 0, 1e-8),
    "zeineldeen2020_global": ("ln_global", 12, "none", 0, 1e-12),
    "zeineldeen2020_joined": ("ln_joined", 8, "none", 0, 1e-12),
    "zeineldeen2020_per_gate": ("ln_per_gate", 8, "none", 0, 1e-12),
    "zeineldeen2020_global_cell": ("ln_global", 12, "both", 0, 1e-12),
    "zeineldeen2020_joined_cell": ("ln_joined", 8, "both", 0, 1e-12),
    "zeineldeen2020_per_gate_cell": ("ln_per_gate", 8, "both", 0, 1e-12),
}
every_preset = pytest.mark.parametrize("name", PRESETS)


@every_preset
def test_parameters_besides_w_and_u(name: str) -> None:
    _, offsets, cell_norm, _, _ = PRESETS[name]
    beside = {key: p.numel() for key, p in make(name).named_parameters() if not key.endswith("_weight")}
    assert make(name).cell_norm == cell_norm
    assert sum(beside.values()) == (offsets + (2 if cell_norm != "none" else 0)) * HIDDEN


def transcription(
    name: str, cell_norm: str, p: dict[str, np.ndarray], x: np.ndarray, h: np.ndarray, c: np.ndarray
) -> list[np.ndarray]:
    """The preset in NumPy, from the equations: hidden and cell after one frame x [batch, input]."""
    family, offsets, _, forget_bias, eps = PRESETS[name]

    def ln(z: np.ndarray, key: str) -> np.ndarray:
        centred = z - z.mean(-1, keepdims=True)
        return p[f"{key}gain"] * centred / np.sqrt(z.var(-1, keepdims=True) + eps) + p.get(f"{key}bias", 0.0)

    def sigmoid(z: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-z))

    wx, uh, n = x @ p["input_weight"].T, h @ p["recurrent_weight"].T, HIDDEN
    if family == "lstm":
        z = wx + uh + p["bias"]
    elif family == "ln_global":
        z = ln(wx, "input_") + ln(uh, "recurrent_") + (p["bias"] if offsets == 20 else 0)
    elif family == "ln_joined":
        z = ln(wx + uh, "")
    else:
        z = ln((wx + uh).reshape(-1, 4, n), "").reshape(-1, 4 * n)
    i, f, g, o = z[:, :n], z[:, n : 2 * n], z[:, 2 * n : 3 * n], z[:, 3 * n :]
    c = sigmoid(f + forget_bias) * c + sigmoid(i) * np.tanh(g)
    c = c.clip(-10, 10) if family == "capped" else c
    normalised = c if cell_norm == "none" else ln(c, "cell_")
    seen = normalised if cell_norm in ("output", "both") else c
    return [sigmoid(o) * np.tanh(seen), normalised if cell_norm in ("state", "both") else c]


@every_preset
@pytest.mark.parametrize("cell_norm", CELL_NORMS)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6])  # of the inputs: small variances show which eps is inside
def test_preset_equals_a_numpy_transcription(name: str, cell_norm: str, scale: float) -> None:
    cell = make(name, cell_norm=cell_norm)
    x, state = material()
    x, h, c = x * scale, state.hidden * scale, state.cell * scale
    outputs, state = unroll(cell, cell.input_gates(x), torch.full((BATCH,), FRAMES), LSTMState(h, c))
    p = {key: parameter.detach().numpy() for key, parameter in cell.named_parameters()}
    for frame in range(FRAMES):
        h, c = transcription(name, cell_norm, p, x[:, frame].numpy(), np.asarray(h), np.asarray(c))
        np.testing.assert_allclose(outputs[:, frame].detach().numpy(), h, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(state.cell.detach().numpy(), c, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["lingvo_simple", "lingvo_lean"])
def test_the_memory_of_lingvos_cells_is_capped(name: str) -> None:
    """From memories of up to 40, whose first frame takes them beyond 10; no gradient passes there."""
    cell = make(name)
    x, state = material(frames=1)
    start = (20 * state.cell).requires_grad_()
    _, after = unroll(cell, cell.input_gates(x), torch.ones(BATCH, dtype=torch.long), LSTMState(state.hidden, start))
    p = {key: parameter.detach().numpy() for key, parameter in cell.named_parameters()}
    h, c = transcription(name, cell.cell_norm, p, x[:, 0].numpy(), state.hidden.numpy(), start.detach().numpy())
    np.testing.assert_allclose(after.hidden.detach().numpy(), h, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(after.cell.detach().numpy(), c, rtol=1e-9, atol=1e-12)
    (gradient,) = torch.autograd.grad(after.cell.sum(), start)
    capped = np.abs(c) == 10
    assert capped.any() and not capped.all()
    assert np.array_equal(gradient.numpy() == 0, capped)
