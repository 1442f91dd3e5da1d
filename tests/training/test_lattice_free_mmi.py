"""Lattice-free MMI: what it computes from an acoustic model, and trainings with it."""

from pathlib import Path

import pytest
import tiny
import torch
from console import Las
from gpu_stand_in import stand_in
from interrupted_trainings import require_same, stopped
from tiny import steps
from tiny_frames import batch, model, overrides

from las.cli import dry_run
from las.config.build import build, compose
from las.data.corpora.base import Corpus
from las.hmm.occupancies import log_totals
from las.hmm.phone_graph import phone_graph
from las.hmm.topology import Topology
from las.nn.acoustic_model import NO_LABEL, AcousticModel, FramePredictions, FrameSequences
from las.runtime.errors import ConfigError
from las.training import setup
from las.training.lattice_free_mmi import LatticeFreeMMI, near

STATES = Topology("abc")
PHONES = [["a", "b", "c"], ["b", "a"]]
LABELS = torch.tensor([[0, 1, 2, 3, 4, 5], [3, 3, 4, 5, 0, NO_LABEL], [4, 5, 0, 1, NO_LABEL, NO_LABEL]])
NUM_FRAMES = torch.tensor([6, 6, 4])


BATCH = batch(0.1)
"""The loss asks its batch for nothing."""


def acoustic_model() -> AcousticModel:
    made = model()
    made.log_priors.copy_(torch.linspace(-3, -1, 9))
    return made


def predictions(logits: torch.Tensor) -> FramePredictions:
    known = LABELS != NO_LABEL
    log_probs = logits.log_softmax(-1)[known].gather(-1, LABELS[known].unsqueeze(-1)).squeeze(-1)
    return FramePredictions(log_probs, LABELS[known], lambda: FrameSequences(logits, LABELS, NUM_FRAMES))


def loss(**options: float) -> LatticeFreeMMI:
    made = LatticeFreeMMI(**options)  # type: ignore[arg-type]
    made.bind_phones(iter(PHONES), STATES)
    return made


@pytest.mark.parametrize("tolerance", [0, 2])
def test_the_loss_is_the_share_of_the_labels(tolerance: int) -> None:
    logits = torch.randn(3, 6, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    graph = phone_graph(PHONES, STATES, 12.0)
    emissions = 2 / 12 * (logits - 0.6 * acoustic_model().log_priors)
    # The second chunk has a frame without a label and is left out.
    whole, allowed = torch.tensor([6, 0, 4]), torch.zeros(3, 6, 9, dtype=torch.bool)
    allowed[0], allowed[2, :4] = near(LABELS[0], 9, tolerance), near(LABELS[2, :4], 9, tolerance)
    expected = (log_totals(emissions, whole, graph) - log_totals(emissions, whole, graph, allowed)).sum()
    assert expected > 0
    given = {"acoustic_scale": 2.0, "prior_scale": 0.6, "lm_scale": 12.0, "tolerance": tolerance}
    found = loss(**given, frame_weight=0.0).objective(acoustic_model(), predictions(logits), BATCH)
    torch.testing.assert_close(found, expected, check_dtype=False, rtol=1e-5, atol=1e-5)
    output = predictions(logits)
    both = loss(**given, frame_weight=0.25).objective(acoustic_model(), output, BATCH)
    torch.testing.assert_close(both, expected - 0.25 * output.log_probs.sum(), check_dtype=False, rtol=1e-5, atol=1e-5)


def test_the_gradient_is_the_occupancy_less_the_label() -> None:
    logits = torch.zeros(3, 6, 9, requires_grad=True)
    given = loss(frame_weight=0.0, tolerance=0)
    given.objective(acoustic_model(), predictions(logits), BATCH).backward()
    gradient = logits.grad
    assert gradient is not None and not gradient[1].any() and not gradient[2, 4:].any()
    torch.testing.assert_close(gradient.sum(-1), torch.zeros(3, 6), rtol=0, atol=1e-5)
    right = gradient[0].gather(-1, LABELS[0].unsqueeze(-1))
    assert (right < 0).all() and (gradient[0] >= 0).sum() == 6 * 8


def test_labels_that_are_no_path_count_in_the_cross_entropy_alone() -> None:
    logits, backwards = torch.zeros(3, 6, 9, requires_grad=True), LABELS.flip(1)
    sequences = FrameSequences(logits, backwards, torch.tensor([6, 0, 0]))
    output = FramePredictions(logits.sum().view(1), torch.tensor([0]), lambda: sequences)
    found = loss(frame_weight=0.5, tolerance=0).objective(acoustic_model(), output, BATCH)
    found.backward()
    assert found.item() == 0.0 and logits.grad is not None and (logits.grad == -0.5).all()


def test_a_loss_without_phones_is_refused() -> None:
    with pytest.raises(ConfigError, match="bind_phones"):
        LatticeFreeMMI().objective(acoustic_model(), predictions(torch.zeros(3, 6, 9)), BATCH)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_training_lowers_it_and_goes_on_to_the_bit(
    corpus: Path, las: Las, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    more = ["loss=lattice_free_mmi", "optim.lr=0.03", "trainer.max_steps=8", "trainer.batch_size=8"]
    more.append(f"++model.listener.input_reduction={rows}")
    las("train", *overrides(corpus, *more)).succeeds()
    losses = [line["loss"] for line in steps(corpus / "run") if line["event"] == "train"]
    assert losses[-1] < losses[0]
    parts = overrides(corpus, *more, f"run_dir={corpus / 'parts'}")
    stopped(monkeypatch, 3, parts)
    las("train", *parts).succeeds()
    require_same(corpus / "run", corpus / "parts", 8)


def test_a_schedule_may_follow_it(corpus: Path, las: Las) -> None:
    las(
        "train",
        *overrides(corpus, "loss=lattice_free_mmi", "schedule=newbob_multi_epoch", "schedule.follows=objective"),
    ).succeeds()


def test_a_model_of_tokens_is_refused(corpus: Path, las: Las) -> None:
    las("train", *tiny.overrides(corpus, "loss=lattice_free_mmi")).fails(2, "choose loss=cross_entropy")


def test_devices_are_not_mixed() -> None:
    logits = torch.randn(3, 6, 9, generator=torch.Generator().manual_seed(2))
    expected = loss().objective(acoustic_model(), predictions(logits), BATCH)
    with stand_in():
        moved = acoustic_model().to("cuda")
        there = predictions(logits)
        labels, shown = there.labels.to("cuda"), FrameSequences(logits.to("cuda"), LABELS.to("cuda"), NUM_FRAMES)
        output = FramePredictions(there.log_probs.to("cuda"), labels, lambda: shown)
        found = loss().objective(moved, output, BATCH)
        assert found.is_cuda and float(found) == pytest.approx(float(expected), rel=1e-5)


def test_rates_and_sizes_of_batches_are_tried_with_it(corpus: Path, las: Las) -> None:
    given = overrides(corpus, "loss=lattice_free_mmi")
    swept = ["updates=12", "low=0.001", "high=3.0", "smoothing=0.5", f"output={corpus / 'rates.json'}"]
    las("tune_lr", *(each for each in given if not each.startswith("run_dir=")), *swept).succeeds()
    config = compose("train", given)
    made: Corpus = build(config["corpus"], where="corpus")
    parts, train = setup.build_parts(config, made), made.prepare(corpus / "manifests")["train"]
    assert dry_run.forecast(parts, train, made).trials
