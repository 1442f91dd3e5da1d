"""Acoustic models: chunks, focal loss, what padding does, sizes."""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_frames import batch, model

from las.config.build import build, compose
from las.data.augmentation.augmentation import Augmentation
from las.nn import acoustic_model
from las.nn.acoustic_model import AT_ONCE, NO_LABEL, chunks_of, stretched
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.listener import Listener
from las.nn.losses import FrameCrossEntropy


@given(st.lists(st.integers(0, 130), min_size=1, max_size=4), st.integers(1, 60), st.integers(1, 60))
def test_chunks_have_every_frame(lengths: list[int], size: int, step: int) -> None:
    step = min(size, step)
    chunks = chunks_of(torch.tensor(lengths), size, step)
    numbers = torch.arange(1, max(lengths, default=0) + 2).repeat(len(lengths), 1)
    cut = chunks.cut(numbers, size)
    for row, length in enumerate(lengths):
        found = cut[chunks.rows == row]
        expected = [list(range(start + 1, min(start + size, length) + 1)) for start in range(0, length, step)]
        assert [[number for number in chunk if number] for chunk in found.tolist()] == expected


@pytest.mark.parametrize("focus", [0.0, 1.0, 2.0])
def test_focal_loss_and_its_gradient(focus: float) -> None:
    torch.manual_seed(3)
    logits, labels = torch.randn(6, 5, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 2, 3, 4, 0])
    loss = FrameCrossEntropy(focus)
    p = torch.softmax(logits, -1)[torch.arange(6), labels]
    torch.testing.assert_close(loss(logits, labels), -((1 - p) ** focus * p.log()).sum())
    assert torch.autograd.gradcheck(lambda given: loss(given, labels), (logits,))


def test_focal_loss_of_a_certain_frame_is_finite() -> None:
    logits = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    FrameCrossEntropy(2.0)(logits, torch.tensor([0, 0])).backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()


REDUCING = functools.partial(
    Listener, cell=PlainLSTMCell, num_layers=2, hidden_size=6, time_reduction=(1, 2), input_reduction=3
)


@pytest.mark.parametrize("options", [{}, {"listener": REDUCING}, {"listener": REDUCING, "chunk_step": 20}])
def test_utterances_in_a_batch_are_as_they_are_alone(options: dict[str, object]) -> None:
    trained, both = model(**options), batch(1.1, 0.7)
    keep = Augmentation().features
    together = trained.forward_batch(both, keep)
    alone = [trained.forward_batch(part, keep) for part in both.split(1)]
    torch.testing.assert_close(together.log_probs, torch.cat([each.log_probs for each in alone]), atol=1e-5, rtol=0)
    assert together.labels.tolist() == [label for each in alone for label in each.labels.tolist()]
    assert len(together.labels) == trained.num_targets(both) == sum(map(trained.num_targets, both.split(1)))
    scores, num_frames = trained.search_inputs(both.waveforms, both.num_samples)
    assert num_frames.tolist() == both.num_tokens.tolist()
    one, _ = trained.search_inputs(both.waveforms[1:, : both.num_samples[1]], both.num_samples[1:])
    torch.testing.assert_close(scores.log_posteriors[1:, : num_frames[1]], one.log_posteriors, atol=1e-5, rtol=0)


def test_a_row_predicts_its_frames() -> None:
    trained, given = model(listener=REDUCING, chunk_size=200, chunk_step=200), batch(1.1, 0.7)
    features, num_frames = trained.features(given.waveforms, given.num_samples)
    encoded, _ = trained.listener(features, num_frames)
    weight, bias = trained.output.weight.view(6, 9, -1), trained.output.bias.view(6, 9)
    rows = [(row, frame) for row, count in enumerate(num_frames.tolist()) for frame in range(count)]
    expected = [weight[t % 6] @ encoded[row, t // 6] + bias[t % 6] for row, t in rows]
    output = trained.forward_batch(given, Augmentation().features)
    labels = output.labels.unsqueeze(1)
    log_probs = torch.stack(expected).log_softmax(-1).gather(1, labels).squeeze(1)
    torch.testing.assert_close(output.log_probs, log_probs, atol=1e-5, rtol=0)
    assert output.labels.tolist() == [int(given.targets[row, t]) for row, t in rows]
    whole, _ = trained(given.waveforms, given.num_samples)
    torch.testing.assert_close(
        torch.stack([whole[row, t] for row, t in rows]), torch.stack(expected), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("options", [{}, {"listener": REDUCING}])
def test_parts_of_the_rows_change_nothing(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    trained, given, loss = model(**options), batch(1.1, 0.7), FrameCrossEntropy(2.0)
    found = []
    for at_once in (AT_ONCE, 7 * trained.output.out_features):
        monkeypatch.setattr(acoustic_model, "AT_ONCE", at_once)
        trained.zero_grad()
        value = loss.objective(trained, trained.forward_batch(given, Augmentation().features), given)
        value.backward()
        found.append([value.detach(), *(parameter.grad for parameter in trained.parameters())])
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole)


def test_frames_without_a_label_are_not_trained_on() -> None:
    trained, given = model(), batch(0.9)
    before = trained.num_targets(given)
    given.targets[0, 30:40] = NO_LABEL
    output = trained.forward_batch(given, Augmentation().features)
    assert trained.num_targets(given) == len(output.labels) == before - 20


def test_labels_follow_a_change_of_the_speed() -> None:
    labels, counts = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 0]]), torch.tensor([4, 3])
    assert stretched(labels, counts, counts).tolist() == [[1, 2, 3, 4], [5, 6, 7, NO_LABEL]]
    slower = stretched(labels, counts, torch.tensor([8, 4]))
    assert slower.tolist() == [[1, 1, 2, 2, 3, 3, 4, 4], [5, 6, 6, 7, *[NO_LABEL] * 4]]
    assert stretched(labels, counts, torch.tensor([2, 1])).tolist() == [[2, 4], [6, NO_LABEL]]
    assert stretched(labels, torch.tensor([4, 0]), counts)[1].tolist() == [NO_LABEL] * 4


def test_states_are_empty_at_the_start_of_each_chunk() -> None:
    trained, given = model(), batch(1.3)
    output = trained.forward_batch(given, Augmentation().features)
    features, _ = trained.features(given.waveforms, given.num_samples)
    second, _ = trained.listener(features[:, 25:75], torch.tensor([50]))
    expected = trained.output(second[0]).log_softmax(-1).gather(1, output.labels[50:100].unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(output.log_probs[50:100], expected, atol=1e-5, rtol=0)


def test_priors_are_shares_of_frames() -> None:
    trained = model()
    trained.set_counts(torch.tensor([8.0, 0, 0, 0, 0, 0, 0, 0, 3]), torch.zeros(4, 4))
    assert trained.log_priors.exp().tolist() == pytest.approx([9 / 20, *[1 / 20] * 7, 4 / 20])
    assert model().load_state_dict(trained.state_dict()).missing_keys == []


@pytest.mark.parametrize(("card", "millions"), [("hybrid_6", 41.0), ("hybrid_8", 53.0)])
def test_the_papers_models_have_their_sizes(card: str, millions: float) -> None:
    config = compose("train", [f"model={card}"])
    with torch.device("meta"):
        made = build(config["model"]["listener"], where="listener")(40)
        output = torch.nn.Linear(made.output_size, 9001)
    count = sum(parameter.numel() for parameter in [*made.parameters(), *output.parameters()])
    assert count / 1e6 == pytest.approx(millions, rel=0.01)
    assert made.dropout_at == "inputs" and {each.p for each in made.dropouts} == {0.1}
