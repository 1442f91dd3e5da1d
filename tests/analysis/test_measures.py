"""What analyses measure, on functions whose answers can be written down, and on layers that are computed twice."""

import math
from collections.abc import Callable

import pytest
import torch
from tiers import rest_slow
from tiny import MODEL
from torch import Tensor, nn
from torch.nn import functional
from update_cases import UTTERANCE, updates

from las.analysis import (
    activations,
    covariate_shift,
    deep_linear,
    distributions,
    gradient_norms,
    moments,
    reach,
    smoothness,
)
from las.analysis.objective import Objective, groups_of
from las.analysis.probe import Probe
from las.analysis.smoothness import Grid
from las.data.loader import Batch
from las.nn.cells.base import LSTMCell
from las.nn.kernels import choice
from las.nn.losses import LabelSmoothedCrossEntropy
from las.nn.model import ListenAttendSpell
from las.nn.normalisation import mask_of


def parameter(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def subject(*more: str, draws: str = "frozen") -> Probe:
    """A tiny model before its first update, with two utterances of different length."""
    steps = updates(overrides=[*MODEL, UTTERANCE, *more], clip_norm=0.1)
    samples, tokens = torch.tensor([9000, 6500]), torch.tensor([3, 2])
    waveforms = torch.randn(2, 9000) * (torch.arange(9000) < samples.unsqueeze(1))
    batch = Batch(["a", "b"], waveforms, samples, torch.tensor([[1, 2, 3], [4, 5, 0]]), tokens)
    return Probe(steps, 1, [batch], batch, [str(i) for i in range(10)], draws)


def test_the_shift_of_two_layers_by_hand() -> None:
    """L = (v w - 1)² / 2 with w = 2, v = 3: G = ((v w - 1) v, (v w - 1) w); only the upper layer sees a shift."""
    below, above = parameter(2.0), parameter(3.0)
    of = Objective([("w.weight", below), ("v.bias", above)], lambda: ((above * below - 1) ** 2 / 2).sum())
    first, second = covariate_shift.shifts(of, {"w": [0], "v": [1]}, [torch.tensor([-1.0]), torch.tensor([99.0])])
    assert first["all"] == first["weights"] == {"l2": 0.0, "cosine": 1.0, "relative": 0.0}
    # G_v = (6 - 1) 2 = 10, with w' = -1: G'_v = (-3 - 1)(-1) = 4.
    assert second["all"] == pytest.approx({"l2": 6.0, "cosine": 1.0, "relative": 0.6})
    assert second["weights"] == {"l2": 0.0, "cosine": 1.0, "relative": 0.0}  # it has no matrix
    assert below.item() == 2.0 and above.item() == 3.0


def test_layers_come_from_the_bottom_up_and_the_lowest_sees_no_shift() -> None:
    of = subject("model.listener.num_layers=2", "model.listener.time_reduction=[2,2]", "loss=joint_ctc")
    names = list(groups_of(of.objective().names))
    assert names == ["listener 0", "listener 1", "embedding", "speller 0", "attention", "output", "ctc"]
    found = covariate_shift.measure(of)["groups"]
    assert [row["group"] for row in found] == names
    assert found[0]["all"] == {"l2": 0.0, "cosine": 1.0, "relative": 0.0}
    assert all(row["all"]["l2"] > 0 and -1 <= row["all"]["cosine"] < 1 for row in found[1:-1])


def quadratic(*curvatures: float) -> Objective:
    """L = sum_i a_i θ_i² / 2 at θ = (1, 1, ...)."""
    theta, a = parameter(*[1.0] * len(curvatures)), torch.tensor(curvatures, dtype=torch.float64)
    return Objective([("theta", theta)], lambda: (a * theta**2).sum() / 2)


def test_smoothness_of_a_quadratic_by_hand() -> None:
    """With d = (1, 3): ‖∇L(θ) - ∇L(θ - η d)‖ = η ‖(1, 9)‖, so β = √82 / √10 at every step."""
    of = quadratic(1.0, 3.0)
    start = of.gradient()
    ray = smoothness.along(of, start, start[1], [0.1, 0.2])
    found = smoothness.summary(ray, start[0])
    assert ray.distances == pytest.approx([0.1 * math.sqrt(10), 0.2 * math.sqrt(10)])
    assert found["differences"] == pytest.approx([0.1 * math.sqrt(82), 0.2 * math.sqrt(82)])
    assert found["beta"] == pytest.approx(math.sqrt(8.2))
    losses = [((1 - eta) ** 2 + 3 * (1 - 3 * eta) ** 2) / 2 for eta in (0.1, 0.2)]
    assert found["losses"] == pytest.approx(losses)
    assert found["lipschitz"] == pytest.approx((2 - losses[0]) / (0.1 * math.sqrt(10)))


UNITS = [("update", 0.3), ("learning_rate", 0.01), ("gradient", 0.5)]


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        *((Grid(unit=unit, low=0.5, high=8.0, points=5), [first * 2**j for j in range(5)]) for unit, first in UNITS),
        (Grid(unit="distance", low=3.0, high=3.0, points=1), [1.5]),
    ],
)
def test_grids(grid: Grid, expected: list[float]) -> None:
    """With ‖d‖ = 2, ‖Δθ‖ = 1.2 and learning rate 0.02; evenly spaced in their logarithm."""
    assert grid.steps(2.0, 1.2, 0.02) == pytest.approx(expected)


def test_there_is_nothing_to_see_without_a_gradient() -> None:
    assert Grid().steps(0.0, 1.2, 0.02) == [0.0]
    flat = Objective(
        [("theta.weight", parameter(1.0))], lambda: torch.ones((), dtype=torch.float64, requires_grad=True)
    )
    start = flat.gradient()
    ray = smoothness.along(flat, start, start[1], [0.0])
    assert smoothness.summary(ray, 1.0) == {"losses": [1.0], "differences": [0.0], "beta": 0.0, "lipschitz": 0.0}


def of_direction(scale: float) -> dict[str, float]:
    """Smoothness of a loss that only the direction of W decides, with W so many times as long."""
    torch.manual_seed(3)
    weight = nn.Parameter(scale * torch.randn(4, 5, dtype=torch.float64))
    target, gain = torch.randn(4, 5, dtype=torch.float64), parameter(0.7)

    def value() -> Tensor:
        return (gain * weight / weight.norm() - target).square().sum()

    of = Objective([("gain", gain), ("weight", weight)], value)
    start = of.gradient()
    small = [1e-5 * scale**2]
    ray = smoothness.along(of, start, [torch.zeros_like(gain), start[1][1]], small)
    found = smoothness.scale_corrected(of, start[1], ray, small)
    assert found["weights"]["weight"]["radial"] == pytest.approx(0.0, abs=1e-12)
    return found["weights"]["weight"] | {"scale_free_beta": found["scale_free_beta"]}


def test_the_length_of_a_normalised_weight_fakes_smoothness_and_the_corrected_numbers_do_not_see_it() -> None:
    short, long = of_direction(1.0), of_direction(3.0)
    assert long["norm"] == pytest.approx(3 * short["norm"])
    assert long["beta"] == pytest.approx(short["beta"] / 9, rel=1e-6)
    for name in ("beta_norm2", "scale_free_beta"):
        assert long[name] == pytest.approx(short[name], rel=1e-6)
    assert short["scale_free_beta"] == pytest.approx(short["beta_norm2"])


def test_layer_norm_makes_the_listener_free_of_the_scale_of_its_weights_and_an_lstm_is_not() -> None:
    """cos(W, ∇_W L), which a norm makes zero but for its eps."""
    radial = {}
    for card in ("ln_global", "lstm"):
        found = smoothness.measure(subject(f"cell@model.listener.cell={card}", draws="off"), Grid(points=1))
        weights = found["gradient"]["weights"]
        radial[card] = max(
            abs(of["radial"]) for name, of in weights.items() if name.startswith("listener.") and "cell." in name
        )
        assert found["weight_norm"] > 0 and found["random"]["beta"] < found["gradient"]["beta"]
    assert radial["ln_global"] < 1e-3 < 1e-2 < radial["lstm"]


def test_equal_distances_are_equal_and_updates_are_those_of_the_optimiser() -> None:
    """Plain SGD whose gradient is clipped to 0.1 makes an update of length 0.1 * 0.1."""
    of = subject(draws="off")
    found = smoothness.measure(of, Grid(unit="distance", low=1e-3, high=1e-2, points=3))
    assert found["distances"] == pytest.approx([1e-3, 10**-2.5, 1e-2])
    assert found["update_norm"] == pytest.approx(0.01, rel=1e-4) and found["learning_rate"] == 0.1
    # So short a way down the gradient the loss falls by its length.
    fall = found["loss"] - found["gradient"]["losses"][0]
    assert fall == pytest.approx(1e-3 * found["gradient_norm"], rel=0.05)


@pytest.mark.parametrize(
    "card", rest_slow(["ln_global", "lstm", "ln_joined", "ln_per_gate", "bn_input", "weight_norm", "zoneout"], keep=2)
)
def test_gates_are_those_that_the_recurrence_computes(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of every cell, against what the plain loop calls `gates` with."""
    of = subject(*(f"cell@model.{part}.cell={card}" for part in ("listener", "speller")))
    model, batch, recorded = of.model.eval(), of.examples, {}
    cells = [activations.equations_of(each) for each in model.modules() if isinstance(each, LSTMCell)]
    for cell in set(cells):
        calls = recorded.setdefault(id(cell), [])
        monkeypatch.setattr(cell, "gates", _recorder(cell, calls))
    with torch.no_grad(), choice.use_kernel("plain"):
        model(batch.waveforms, batch.num_samples, batch.targets)
    monkeypatch.undo()
    layers = activations.layers(model, batch)
    for layer, found in zip(layers, activations.of_model(model, batch), strict=True):
        calls = [
            call.squeeze(1) if call.dim() == 3 else call for call in recorded[id(activations.equations_of(layer.cell))]
        ]
        lengths = batch.num_tokens + 1
        if layer.name.startswith("listener"):
            lengths = _rows(model, batch, int(layer.name.split()[1]))
        mask = mask_of(lengths, len(calls))
        expected = torch.stack(calls, dim=1)[mask]
        torch.testing.assert_close(found.after, expected, rtol=1e-4, atol=1e-5)
        cell = activations.equations_of(layer.cell)
        before = functional.linear(layer.inputs, cell.input_weight) + functional.linear(
            layer.hidden, cell.recurrent_weight
        )
        torch.testing.assert_close(found.before, before)


def _recorder(cell: LSTMCell, calls: list[Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    own = cell.gates

    def gates_of(input_gates: Tensor, hidden: Tensor) -> Tensor:
        calls.append(own(input_gates, hidden))
        return calls[-1]

    return gates_of


def _rows(model: ListenAttendSpell, batch: Batch, layer: int) -> Tensor:
    """How many rows of each utterance a layer of the listener reads."""
    rows = model.features.num_frames(batch.num_samples)
    for factor in model.listener.reductions[: layer + 1]:
        rows = -(-rows // factor)
    return rows


@pytest.mark.parametrize(("card", "why"), [("bn_recurrent", "position"), ("ba2016_swapped", "hidden state")])
def test_cells_whose_gates_cannot_be_told_say_why(card: str, why: str) -> None:
    of = subject(f"cell@model.listener.cell={card}")
    refused = [found.refused for found in activations.of_model(of.model, of.examples)]
    assert all(why in reason for reason in refused[:-1]) and refused[-1] == ""
    found = distributions.measure(of)
    assert why in found["gates"]["listener 0 forwards"]["refused"] and why in str(moments.measure(of)["layers"][0])
    assert distributions.table(found).row_count and moments.table(moments.measure(of)).row_count


def test_a_summary_by_hand() -> None:
    values = torch.arange(101.0)
    found = distributions.summary(values)
    assert found["mean"] == 50 and found["std"] == pytest.approx(math.sqrt(850))
    assert found["quantiles"] == pytest.approx([0, 1, 5, 25, 50, 75, 95, 99, 100])
    widths = torch.tensor(found["edges"]).diff()
    assert float((widths * torch.tensor(found["density"])).sum()) == pytest.approx(1.0)
    alike = distributions.summary(torch.full((7,), 2.0))
    assert alike["std"] == 0 and alike["edges"][0] == 1.5 and alike["edges"][-1] == 2.5


def test_of_very_many_values_evenly_spaced_ones_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "MAX_VALUES", 10)
    found = distributions.summary(torch.arange(100.0))
    assert found["quantiles"][0] == 0 and found["quantiles"][-1] == 90
    assert found["norm"] == pytest.approx(float(torch.arange(100.0).norm()))


def test_moments_change_where_parameters_do() -> None:
    of = subject(draws="off")
    changes = [row["mean_change"] for row in moments.measure(of)["layers"]]
    assert all(change > 0 for change in changes)
    for group in of.updates.optimiser.param_groups:
        group["lr"] = 0.0
    for row in moments.measure(of)["layers"]:
        assert row["mean_change"] == row["variance_change"] == 0.0


def test_gradients_along_time_are_those_of_the_features() -> None:
    """The rows that the lowest layer reads, against autograd through the whole model; nothing beyond the true ones."""
    of = subject("model.listener.input_reduction=1", draws="off")
    model, batch = of.model.eval(), of.examples
    features, num_frames = model.features(batch.waveforms, batch.num_samples)
    features.requires_grad_()
    encoded, num_states = model.listener(features, num_frames)
    logits = model.speller(model.speller.attention.prepare(encoded, num_states), batch.targets).logits
    sums = LabelSmoothedCrossEntropy()(logits, batch.targets, batch.num_tokens)
    (gradient,) = torch.autograd.grad(sums.loss / sums.tokens, [features])
    found = gradient_norms.by_time(of)
    assert [*found][:: len(found) - 1] == ["listener 0 reads", "speller 0 writes"]
    row, total = torch.arange(features.shape[1]), []
    for part in range(gradient_norms.PARTS):
        there = (row * gradient_norms.PARTS // num_frames.unsqueeze(1) == part) & (row < num_frames.unsqueeze(1))
        total.append(float(gradient[there].square().sum(-1).mean().sqrt()))
    assert found["listener 0 reads"] == pytest.approx(total, rel=1e-3)
    assert all(len(values) == gradient_norms.PARTS and min(values) >= 0 for values in found.values())


def test_the_reach_of_a_state_is_where_its_gradient_lies() -> None:
    gradient = torch.zeros(2, 101, 3)
    gradient[0, [50, 60, 61, 81]] = torch.tensor([[3.0, 4.0, 0.0]])  # of 100 rows, the middle one is 50
    gradient[1, [30, 100]] = 1.0  # of 60 rows; what lies beyond them does not count
    near, far = reach.shares(gradient, torch.tensor([100, 60]))
    assert (near, far) == (pytest.approx((2 / 4 + 1) / 2), pytest.approx((1 / 4 + 0) / 2))


def test_the_reach_of_a_listener_is_measured_by_autograd() -> None:
    of = subject("model.listener.input_reduction=1", draws="off")
    found = reach.measure(of)
    assert found["sensitivity"] > 0 and 0 < found["near"] < 1 and found["near"] + found["far"] <= 1 + 1e-9
    with torch.no_grad():
        listened = activations.listen(of.model.eval(), of.examples)
    assert [row["layer"] for row in found["layers"]][-1] == "listener writes"
    states = [each[:length] for each, length in zip(listened.encoded, listened.num_states, strict=True)]
    assert found["layers"][-1]["rms"] == pytest.approx(float(torch.cat(states).square().mean().sqrt()), rel=1e-4)


def test_gradients_by_layer_add_up_to_the_whole() -> None:
    of = subject()
    found = gradient_norms.measure(of)["layers"]
    _, gradient = of.objective().gradient()
    whole = math.sqrt(sum(float(part.double().square().sum()) for part in gradient))
    assert math.sqrt(sum(row["norm"] ** 2 for row in found)) == pytest.approx(whole)


def test_the_loss_of_a_probe_is_the_mean_over_tokens_of_all_batches() -> None:
    of = subject(draws="off")
    (batch,) = of.batches
    loss, gradient = of.objective().gradient()
    loss_in_parts, gradient_in_parts = of._replace(batches=batch.split(1)).objective().gradient()
    assert loss_in_parts == pytest.approx(loss)
    for one, other in zip(gradient, gradient_in_parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_deep_linear_networks_shift_as_the_paper_says() -> None:
    """The noted numbers, of one draw of each network, lie between the 5 % and the 95 % quantile of 10 draws; and the
    medians are at least 0.3 apart: without a norm G and G' point the same way, with batch norm hardly."""
    found = deep_linear.measure(10)
    for name, reference in deep_linear.REFERENCE.items():
        for cosines, noted in zip(found["cosines"][name], reference, strict=True):
            low, _, high = deep_linear.quantiles(cosines)
            assert low < noted < high, name
    for plain, normalised in zip(*found["cosines"].values(), strict=True):
        assert deep_linear.quantiles(plain)[1] > deep_linear.quantiles(normalised)[1] + 0.3


def test_the_loss_of_the_examples_is_measured_before_and_after_an_update() -> None:
    moved = subject(draws="off")
    found = smoothness.measure(moved, Grid(points=1))
    assert found["fixed"]["before"] != found["fixed"]["after"]
    assert found["fixed"]["before"] == pytest.approx(found["loss"]), "its examples are the utterances of the update"
    for group in moved.updates.optimiser.param_groups:
        group["lr"] = 0.0
    still = smoothness.measure(moved, Grid(points=1))["fixed"]
    assert smoothness.measure(moved, smoothness.COMMON_GRID)["common"] and not found["common"]
    assert still["before"] == still["after"]
