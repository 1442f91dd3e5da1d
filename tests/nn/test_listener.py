import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parameters import moved

from las.nn.cells.lstm import PlainLSTMCell
from las.nn.listener import REDUCTIONS, Listener, reduce_time
from las.nn.normalisation import OutputNorm
from las.nn.rnn import UnidirectionalLayer

FEATURES, HIDDEN = 3, 4
every_reduction = pytest.mark.parametrize("how", REDUCTIONS)


def make(**options: Any) -> Listener:
    torch.manual_seed(1)
    cell = options.pop("cell", PlainLSTMCell)
    return Listener(FEATURES, cell=functools.partial(cell), hidden_size=HIDDEN, **options).double().eval()


def frames_of(batch: int, frames: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(batch, frames, FEATURES, generator=generator, dtype=torch.float64)


POOLED = {"max_pool", "mean"}
"""Reductions that read true rows alone; the others take padding that is zero."""


@every_reduction
@given(length=st.integers(0, 9), padding=st.integers(0, 5), factor=st.integers(1, 4))
@settings(max_examples=60)
def test_reduction_equals_groups_taken_by_hand(how: str, length: int, padding: int, factor: int) -> None:
    rows = frames_of(1, length + padding)
    true = rows[0, :length].numpy()
    if factor == 1 or how not in POOLED:
        rows = rows.masked_fill(torch.arange(length + padding).view(1, -1, 1) >= length, 0.0)
    reduced, lengths = reduce_time(rows, torch.tensor([length]), factor, how)
    groups = [true[start : start + factor] for start in range(0, length, factor)]
    by_hand = {
        "concat": lambda group: np.concatenate([*group, *np.zeros((factor - len(group), FEATURES))]),
        "max_pool": lambda group: group.max(0),
        "stride": lambda group: group[0],
        "mean": lambda group: group.mean(0),
    }
    assert lengths.tolist() == [len(groups)]
    for state, group in zip(reduced[0], groups, strict=False):
        np.testing.assert_allclose(state.numpy(), by_hand[how](group))
    assert not reduced[0, len(groups) :].any()


def test_input_noise_has_the_deviation_it_says_and_only_while_training() -> None:
    """Seen through a listener that passes its input on."""
    listener, frames = make(num_layers=0, time_reduction=(), input_noise=0.6).train(), frames_of(10, 1000)
    noise = listener(frames, torch.full((10,), 1000))[0] - frames
    assert abs(float(noise.std()) - 0.6) < 0.01 and abs(float(noise.mean())) < 0.02
    assert torch.equal(listener.eval()(frames, torch.full((10,), 1000))[0], frames)
    noisy = make(input_noise=0.6).train()
    encoded, num_states = noisy(frames_of(2, 6), torch.tensor([6, 3]))
    assert not encoded[1, num_states[1] :].any()  # noise does not wake the padding


def layer_by_layer(listener: Listener, frames: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The stack in evaluation, one utterance at a time, with sums and norms where the options say."""
    rows = []
    for row, length in enumerate(lengths.tolist()):
        states, num = frames[row : row + 1, :length], lengths[row : row + 1]
        for index, layer in enumerate(listener.layers):
            outputs = layer(states, num)
            if index >= listener.residual_from:
                outputs = outputs + states
            states, num = reduce_time(outputs, num, listener.time_reduction[index], listener.reduction)
            if isinstance(norm := listener.norms[index], OutputNorm):
                states = norm(states, num)
        rows.append(states[0])
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


@pytest.mark.parametrize(
    ("how", "residual_from", "norm"),
    [
        *itertools.product(["max_pool"], [1, 2, None], ["none", "layer", "instance", "batch"]),
        *((how, None, "none") for how in REDUCTIONS),
    ],
)
def test_each_utterance_is_reduced_summed_and_normalised_alone(how: str, residual_from: int | None, norm: str) -> None:
    options = {"num_layers": 4, "time_reduction": (2, 1, 2, 1), "reduction": how}
    listener = make(**options, residual_from=residual_from, output_norm=norm)
    moved(listener.norms, 1.0)
    lengths = torch.tensor([9, 4, 2])
    poisoned = frames_of(3, 9).masked_fill((torch.arange(9) >= lengths.unsqueeze(1)).unsqueeze(-1), float("nan"))
    encoded, num_states = listener(poisoned, lengths)
    assert num_states.tolist() == listener.num_states(lengths).tolist() == [3, 1, 1]
    assert encoded.shape == (3, 3, listener.output_size)
    gradients = torch.autograd.grad(encoded.square().sum(), [*listener.parameters()], retain_graph=True)
    assert all(gradient.isfinite().all() for gradient in gradients)
    torch.testing.assert_close(encoded, layer_by_layer(listener, frames_of(3, 9), lengths), rtol=1e-9, atol=1e-12)
    if residual_from or norm != "none":
        assert (encoded - make(**options)(poisoned, lengths)[0]).abs().max() > 1e-2


def test_one_name_is_for_the_rows_between_layers_and_a_list_for_each_layer() -> None:
    between = [type(norm).__name__ for norm in make(output_norm="layer").norms]
    assert between == ["LayerOutputNorm", "LayerOutputNorm", "Identity"]
    mixed = make(output_norm=["none", "batch", "instance_padded"])
    assert [type(norm).__name__ for norm in mixed.norms] == ["Identity", "BatchOutputNorm", "PaddedInstanceOutputNorm"]
    assert [name for name, _ in make().named_parameters() if not name.startswith("layers.")] == []


@pytest.mark.parametrize(("place", "dropped"), [("inputs", [0, 1, 2]), ("between", [1, 2]), ("outputs", [])])
def test_dropout_is_where_its_name_says(place: str, dropped: list[int]) -> None:
    """Seen by what each layer reads: only dropout makes exact zeros; the last rows show the outputs' own."""
    listener = make(reduction="max_pool", dropout=0.5, dropout_at=place).train()
    read: dict[int, torch.Tensor] = {}
    for index, layer in enumerate(listener.layers):
        layer.register_forward_hook(lambda _, inputs, __, index=index: read.update({index: inputs[0]}))
    frames, lengths = frames_of(1, 64), torch.tensor([64])
    encoded, _ = listener(frames, lengths)
    for index, rows in read.items():
        share = float((rows == 0).double().mean())
        if place == "outputs" and index:
            assert share > 0.1  # the largest of two outputs, each dropped half of the time
        else:
            assert share > 0.3 if index in dropped else share == 0
    assert bool((encoded == 0).any()) == (place == "outputs")
    assert torch.equal(listener.eval()(frames, lengths)[0], make(reduction="max_pool")(frames, lengths)[0])


def test_a_unidirectional_listener_never_looks_ahead_and_has_half_the_parameters() -> None:
    both, ahead = make(reduction="max_pool"), make(reduction="max_pool", layer=UnidirectionalLayer)
    assert ahead.output_size == HIDDEN and both.output_size == 2 * HIDDEN
    names = [name for name in both.state_dict() if ".backwards." not in name]
    assert list(ahead.state_dict()) == names
    frames, lengths = frames_of(2, 16), torch.tensor([16, 9])
    changed = frames.clone()
    changed[:, 8:] += 1
    for listener, sees in ((ahead, False), (both, True)):
        before, after = (listener(rows, lengths)[0] for rows in (frames, changed))
        assert torch.equal(before[:, :2], after[:, :2]) != sees  # four frames a state
        assert not torch.equal(before[0, 2:], after[0, 2:])
        assert not before[1, 3:].any()
