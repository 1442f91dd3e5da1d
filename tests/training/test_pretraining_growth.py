"""What a model takes over from a smaller one in pretraining."""

import copy

import pytest
import torch
from tiers import rest_slow

from las.config import build
from las.nn.model import ListenAttendSpell
from las.training import pretraining

SYMBOLS = 12
SIZES = [
    *("model.features.num_mels=6", "model.listener.num_layers=2", "model.listener.time_reduction=[2,1]"),
    *("model.speller.hidden_size=10", "model.speller.embedding_size=3", "model.speller.attention.key_size=5"),
    *("model.listener.dropout=0.0", "model.speller.dropout=0.0", "model.listener.input_noise=0.0"),
]


def model(*more: str) -> ListenAttendSpell:
    made: ListenAttendSpell = build.build(build.compose("train", [*SIZES, *more])["model"], where="model")(
        16000, SYMBOLS
    )
    with torch.no_grad():
        for name, tensor in made.state_dict().items():
            if name.startswith(("listener", "speller", "ctc")):
                tensor.normal_()  # biases and gains too, else copies could not be told from what was there
    return made


def layered(num_layers: int, *more: str) -> ListenAttendSpell:
    factors = f"[{','.join(['2'] + ['1'] * (num_layers - 1))}]"
    sizes = [f"model.listener.num_layers={num_layers}", f"model.listener.time_reduction={factors}"]
    return model(*sizes, "model.listener.reduction=max_pool", "model.listener.hidden_size=4", *more)


def of_layer(tensors: dict[str, torch.Tensor], index: int) -> list[torch.Tensor]:
    return [tensor for name, tensor in sorted(tensors.items()) if name.startswith(f"listener.layers.{index}.")]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(map(torch.equal, one, other))


@pytest.mark.parametrize(
    ("place", "came_from"),
    [("below_top", [0, 1, None, 2]), ("on_top", [0, 1, 2, None]), ("below_top", [0, None])],
)
def test_new_layers_go_where_the_config_says(place: str, came_from: list[int | None]) -> None:
    small, large = layered(len(came_from) - 1), layered(len(came_from))
    before, drawn = copy.deepcopy(small.state_dict()), copy.deepcopy(large.state_dict())
    transfer = pretraining.transfer_parameters(small.state_dict(), large, 4, place)
    after = large.state_dict()
    for index, source in enumerate(came_from):
        assert same(of_layer(after, index), of_layer(drawn, index) if source is None else of_layer(before, source))
    others = [name for name in after if not name.startswith("listener.layers.")]
    assert same([after[name] for name in others], [before[name] for name in others])
    new = came_from.index(None)
    assert str(transfer) == f"{len(before)} tensors; new: listener.layers.{new}"
    assert all(map(torch.equal, small.state_dict().values(), before.values()))


GROWN = {
    "pyramid, location": [],
    "additive, CTC": ["attention@model.speller.attention=additive", "loss=joint_ctc"],
    "fertility, maximum": ["attention@model.speller.attention=weight_feedback", "model.listener.reduction=max_pool"],
    "maxout of everything": ["+model.speller.readout=maxout", "+model.speller.readout_reads=state_and_token"],
    "residual": ["model.listener.reduction=mean", "+model.listener.residual_from=1"],
    "frames side by side": ["model.listener.input_reduction=3", "model.listener.time_reduction=[3,1]"],
}


@pytest.mark.parametrize("options", rest_slow(GROWN.values(), keep=2), ids=GROWN)
def test_a_wider_model_whose_new_units_are_silent_is_the_smaller_one(options: list[str]) -> None:
    """So every part of every tensor went to its own place: gates, directions, frames side by side, other inputs."""
    small, large = (model(f"model.listener.hidden_size={size}", *options).eval() for size in (4, 7))
    with torch.no_grad():
        for parameter in large.parameters():
            parameter.zero_()
    transfer = pretraining.transfer_parameters(small.state_dict(), large, 4, "below_top")
    assert transfer.enlarged and not transfer.new and not transfer.dropped
    given = torch.randn(2, 6000), torch.tensor([6000, 4000]), torch.tensor([[3, 1, 2], [4, 5, 0]])
    one, other = small(*given), large(*given)
    torch.testing.assert_close(other.logits, one.logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(other.weights, one.weights, atol=1e-4, rtol=1e-4)
    if one.ctc_output is not None:
        torch.testing.assert_close(other.ctc_output.log_probs, one.ctc_output.log_probs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "cell", rest_slow(["ln_global", "ln_per_gate", "zeineldeen2020_joined_cell", "weight_norm", "bn_input"], keep=2)
)
def test_what_was_there_is_in_the_grown_tensors_and_the_rest_is_as_drawn(cell: str) -> None:
    """Parts of four units each, e.g. the gates: they are the first four of seven."""
    card = f"cell@model.listener.cell={cell}"
    small, large = (model(f"model.listener.hidden_size={size}", card) for size in (4, 7))
    drawn = copy.deepcopy(large.state_dict())
    transfer = pretraining.transfer_parameters(small.state_dict(), large, 4, "below_top")
    assert not transfer.new and not transfer.dropped
    assert len(transfer.enlarged) >= 2 * 2 * 3
    for name in transfer.enlarged:
        old, new, first = small.state_dict()[name], large.state_dict()[name], drawn[name]
        kept = new == first
        assert int(kept.sum()) == new.numel() - old.numel()
        assert torch.equal(new[~kept], old.flatten())
        if name.startswith("listener.layers.") and name.endswith(("bias", "gain")):
            assert not kept.view(-1, 7)[:, :4].any() and kept.view(-1, 7)[:, 4:].all()


def test_what_changed_in_another_way_begins_anew() -> None:
    """A layer of a pyramid reads fewer rows side by side: nobody knows which of its weights are meant."""
    small, large = (
        model("model.listener.hidden_size=4", f"model.listener.time_reduction={f}") for f in ("[4,1]", "[2,1]")
    )
    drawn = copy.deepcopy(large.state_dict())
    transfer = pretraining.transfer_parameters(small.state_dict(), large, 4, "below_top")
    assert transfer.new == [f"listener.layers.1.{way}.cell.input_weight" for way in ("forwards", "backwards")]
    assert str(transfer).endswith(f"; new: {', '.join(transfer.new)}")
    assert all(torch.equal(large.state_dict()[name], drawn[name]) for name in transfer.new)
