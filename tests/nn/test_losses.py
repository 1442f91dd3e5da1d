import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from las.data.loader import Batch
from las.lm.lstm import LSTMLanguageModel, Prediction
from las.nn import ctc
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.ctc import CTCOutput
from las.nn.losses import JointCTCLoss, LabelSmoothedCrossEntropy
from las.runtime.errors import ConfigError

VOCAB, END = 7, 0
NUM_TOKENS = torch.tensor([4, 2, 0])
TARGETS = torch.tensor([[3, 1, 6, 2], [5, 5, 0, 0], [0, 0, 0, 0]])
BATCH = Batch(["u0", "u1", "u2"], torch.zeros(3, 1), torch.ones(3, dtype=torch.long), TARGETS, NUM_TOKENS)
MODEL = LSTMLanguageModel(VOCAB, cell=PlainLSTMCell, hidden_size=2, embedding_size=2)
WANTED = torch.tensor([[3, 1, 6, 2, END], [5, 5, END, -100, -100], [END, -100, -100, -100, -100]])


def random_logits() -> Tensor:
    return torch.randn(3, 5, VOCAB, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_equals_the_cross_entropy_of_torch(smoothing: float) -> None:
    logits = random_logits().requires_grad_()
    ours = LabelSmoothedCrossEntropy(smoothing)(logits, TARGETS, NUM_TOKENS)
    flat = (logits.flatten(0, 1), WANTED.flatten())
    expected = functional.cross_entropy(*flat, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(ours.loss, expected)
    torch.testing.assert_close(ours.cross_entropy, functional.cross_entropy(*flat, reduction="sum").detach())
    gradients = [torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (ours.loss, expected)]
    torch.testing.assert_close(*gradients)
    assert not ours.cross_entropy.requires_grad


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_the_others_may_share_the_smoothing(smoothing: float) -> None:
    """RETURNN's: 1 - smoothing on the true token, smoothing / (V - 1) on each other one."""
    logits, is_true = random_logits(), functional.one_hot(WANTED.clamp(min=0), VOCAB).bool()
    wanted = torch.where(is_true, 1 - smoothing, smoothing / (VOCAB - 1))
    expected = -(wanted * logits.log_softmax(-1)).sum(-1)[WANTED != -100].sum()
    loss = LabelSmoothedCrossEntropy(smoothing, smoothed="others")
    torch.testing.assert_close(loss(logits, TARGETS, NUM_TOKENS).loss, expected)


@given(st.integers(0, 1000), st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_sums_over_a_batch_are_the_sums_of_its_utterances(seed: int, lengths: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    num_tokens = torch.tensor(lengths)
    targets = torch.randint(1, VOCAB, (len(lengths), 5), generator=generator)
    logits = torch.randn(len(lengths), 6, VOCAB, generator=generator, dtype=torch.float64)
    loss = LabelSmoothedCrossEntropy(0.1)
    together = loss(logits, targets, num_tokens)
    rows = [slice(row, row + 1) for row in range(len(lengths))]
    alone = [loss(logits[r, : n + 1], targets[r, :n], num_tokens[r]) for r, n in zip(rows, lengths, strict=True)]
    for part, total in zip(zip(*alone, strict=True), together, strict=True):
        torch.testing.assert_close(sum(part), total)
    assert together.tokens == sum(lengths) + len(lengths)


def test_correct_counts_tokens_and_ends() -> None:
    wanted = WANTED.clamp(min=0)
    perfect = 10.0 * functional.one_hot(wanted, VOCAB).double()
    loss = LabelSmoothedCrossEntropy()
    assert (loss(perfect, TARGETS, NUM_TOKENS).correct, loss(perfect, TARGETS, NUM_TOKENS).tokens) == (9, 9)
    assert loss(perfect.roll(1, -1), TARGETS, NUM_TOKENS).correct == 0
    perfect[0, 1] = perfect[0, 1].roll(1)  # a token
    perfect[1, 2] = perfect[1, 2].roll(1)  # an end
    assert loss(perfect, TARGETS, NUM_TOKENS).correct == 7


def test_joint_with_ctc_is_the_weighted_sum_of_both() -> None:
    logits = random_logits()
    heard = CTCOutput(torch.log_softmax(torch.randn(3, 9, VOCAB, dtype=torch.float64), -1), torch.tensor([9, 8, 5]))
    spelled = LabelSmoothedCrossEntropy(0.1).objective(MODEL, Prediction(logits, heard), BATCH)
    torch.testing.assert_close(spelled, LabelSmoothedCrossEntropy(0.1)(logits, TARGETS, NUM_TOKENS).loss)
    by_states = ctc.loss(heard, TARGETS, NUM_TOKENS)
    for weight in (0.0, 0.3, 1.0):
        joint = JointCTCLoss(0.1, ctc_weight=weight).objective(MODEL, Prediction(logits, heard), BATCH)
        torch.testing.assert_close(joint, (1 - weight) * spelled + weight * by_states)


def test_joint_needs_a_model_with_ctc() -> None:
    with pytest.raises(ConfigError, match="loss=joint_ctc"):
        JointCTCLoss().objective(MODEL, Prediction(random_logits(), None), BATCH)
