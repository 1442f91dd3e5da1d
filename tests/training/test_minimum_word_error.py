"""Minimum word error rate training: the expected error and its gradient, and that training lowers it."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import jiwer
import pytest
import torch
from console import Las
from hypothesis import given
from hypothesis import strategies as st
from interrupted_trainings import require_same, stopped_after
from tiny import MODEL, overrides, tree
from torch import Tensor
from update_cases import STILL, UTTERANCE, batch

from las.cli import train
from las.config.build import build, compose
from las.data.loader import Batch
from las.data.tokenizers import Characters
from las.decoding.base import Hypothesis
from las.nn.losses import LabelSmoothedCrossEntropy, TrainingLoss
from las.nn.model import ListenAttendSpell, ModelOutput
from las.runtime.errors import ArgumentError, ConfigError
from las.training.minimum_word_error import MinimumWordErrorLoss, edit_distance, evaluating, score

LETTERS = Characters("abcdefgh ")
CORPUS = SimpleNamespace(tokens=LETTERS, normalise=str.split)
VOCAB = 3
"""Two tokens and the boundary, for a toy whose hypotheses can be enumerated."""
PARTS = ("listener", "speller")


def model(vocab: int = LETTERS.size, overrides: list[str] = STILL) -> ListenAttendSpell:
    torch.manual_seed(1)
    made: ListenAttendSpell = build(compose("train", [*overrides])["model"], where="model")(16000, vocab)
    return made.double()


def spoken(vocab: int) -> Batch:
    given = batch(slice(0, 3))
    return Batch(given.ids, given.waveforms.double(), given.num_samples, given.targets % vocab, given.num_tokens)


def forced(of: ListenAttendSpell, given: Batch) -> ModelOutput:
    return of.forward_batch(given, lambda features, num_frames, keys, orders: features)


def loss(nbest: int = 4, likelihood_weight: float = 0.0, unit: str = "scored") -> MinimumWordErrorLoss:
    made = MinimumWordErrorLoss(nbest, likelihood_weight=likelihood_weight, unit=unit)
    made.bind(CORPUS)
    return made


@given(st.text("ab", max_size=6), st.text("abc", max_size=6))
def test_edit_distances_are_those_of_jiwer(reference: str, hypothesis: str) -> None:
    if reference:
        counts = jiwer.process_characters(reference, hypothesis)
        expected = counts.substitutions + counts.deletions + counts.insertions
    else:
        expected = len(hypothesis)
    assert edit_distance(reference, hypothesis) == expected


def enumerated(of: ListenAttendSpell, given: Batch, limit: int) -> Tensor:
    """The expected errors in tokens over all hypotheses of at most `limit` tokens, each one fed by itself."""
    total = torch.zeros((), dtype=torch.float64)
    texts = [text for length in range(limit + 1) for text in itertools.product(range(1, VOCAB), repeat=length)]
    for row, count in enumerate(given.num_tokens.tolist()):
        one, own = slice(row, row + 1), int(given.num_samples[row])
        by_text, errors = [], []
        for text in texts:
            targets = torch.tensor([text], dtype=torch.long)
            output = of(given.waveforms[one, :own], given.num_samples[one], targets)
            fed = LabelSmoothedCrossEntropy()(output.logits, targets, torch.tensor([len(text)]))
            by_text.append(-fed.loss)
            errors.append(edit_distance(given.targets[row, :count].tolist(), text))
        weights, counted = torch.stack(by_text).softmax(0), torch.tensor(errors, dtype=torch.float64)
        total = total + (weights * counted).sum() - counted.mean()
    return total


def test_a_beam_of_all_hypotheses_gives_the_enumerated_value_and_gradient() -> None:
    of, given = model(VOCAB), spoken(VOCAB)
    over_all = loss(nbest=7, unit="token")
    over_all.search.limits.max_length = 2  # of which there are 1 + 2 + 4 hypotheses
    found, expected = over_all.objective(of, forced(of, given), given), enumerated(of, given, 2)
    torch.testing.assert_close(found, expected)
    parameters = [parameter for parameter in of.parameters() if parameter.requires_grad]
    for ours, right in zip(*(torch.autograd.grad(each, parameters) for each in (found, expected)), strict=True):
        torch.testing.assert_close(ours, right, rtol=1e-6, atol=1e-10)


def test_the_gradient_is_that_of_finite_differences_over_the_same_list(monkeypatch: pytest.MonkeyPatch) -> None:
    of, given, of_errors = model(), spoken(LETTERS.size), loss()
    decoder, num_states = forced(of, given).search_inputs
    with evaluating(of):
        fixed = of_errors.search(decoder, num_states)
    monkeypatch.setattr(of_errors, "search", lambda decoder, num_states: fixed)
    generator = torch.Generator().manual_seed(3)
    of_errors.objective(of, forced(of, given), given).backward()
    for parameter in [each for each in of.parameters() if each.grad is not None]:
        direction, values = torch.randn(parameter.shape, generator=generator).double(), []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * 1e-5 * direction
                values.append(of_errors.objective(of, forced(of, given), given))
                parameter -= sign * 1e-5 * direction
        slope = float(values[0] - values[1]) / 2e-5
        assert float((parameter.grad * direction).sum()) == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_hypotheses_have_the_probabilities_of_the_search_whatever_is_drawn_in_training() -> None:
    of = model(overrides=[*MODEL, UTTERANCE, "model.speller.dropout=0.5", "model.speller.scheduled_sampling=0.9"])
    of.train()
    decoder, num_states = forced(of, spoken(LETTERS.size)).search_inputs
    with evaluating(of):
        nbest_lists = loss().search(decoder, num_states)
        found = score(of, decoder, nbest_lists)
    assert of.training and [len(nbest) for nbest in nbest_lists] == [4] * 3
    expected = torch.tensor([each.score for nbest in nbest_lists for each in nbest])
    torch.testing.assert_close(found.detach(), expected, check_dtype=False, rtol=1e-5, atol=1e-5)


def heard(tokens: list[int]) -> Hypothesis:
    return Hypothesis(tokens, score=0.0, normalised_score=0.0, finished_by="eos")


def test_errors_are_counted_in_the_unit_that_is_asked_for() -> None:
    reference, hypothesis = LETTERS.encode("ab bad face"), heard(LETTERS.encode("ab bed ace"))
    counts = {unit: loss(unit=unit)._errors(reference, [hypothesis]).tolist() for unit in ("scored", "character")}
    assert counts == {"scored": [2], "character": [2]}
    assert loss(unit="token")._errors([1, 2], [heard([2]), heard([])]).tolist() == [1, 2]


def test_likelihood_is_mixed_in() -> None:
    of, given = model(), spoken(LETTERS.size)
    output = forced(of, given)
    alone, mixed = (loss(likelihood_weight=weight).objective(of, output, given) for weight in (0.0, 0.01))
    torch.testing.assert_close(mixed, alone + 0.01 * LabelSmoothedCrossEntropy().objective(of, output, given))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ArgumentError, match="nbest"):
        MinimumWordErrorLoss(nbest=1)
    with pytest.raises(ConfigError, match="unit"):
        MinimumWordErrorLoss(unit="sentence")
    of, given = model(), spoken(LETTERS.size)
    with pytest.raises(ConfigError, match="bind"):
        MinimumWordErrorLoss().objective(of, forced(of, given), given)


def test_a_model_of_ctc_alone_is_refused(tmp_path: Path, las: Las) -> None:
    given = [each for each in overrides(tree(tmp_path)) if "speller" not in each]
    las("train", *given, "model=ctc_small", "loss=mwer").fails(2, "loss=mwer")


def tones(count: int, generator: torch.Generator) -> Batch:
    """Sequences of one to four tokens, each a tone of its own in noise, at 4 kHz."""
    num_tokens = torch.randint(1, 5, (count,), generator=generator)
    targets = torch.randint(1, 5, (count, 4), generator=generator) * (torch.arange(4) < num_tokens.unsqueeze(1))
    turns = torch.tensor([0.0, 0.075, 0.105, 0.14, 0.18])[targets].unsqueeze(-1) * torch.arange(400)
    waveforms = torch.sin(2 * torch.pi * turns).flatten(1)
    waveforms = waveforms + torch.randn(waveforms.shape, generator=generator)
    waveforms = waveforms * (torch.arange(1600) < 400 * num_tokens.unsqueeze(1))
    ids = [str(index) for index in range(count)]
    return Batch(ids, waveforms, 400 * num_tokens, targets, num_tokens, tuple(range(count)))


def continued(of: ListenAttendSpell, by: TrainingLoss, updates: int, rate: float, generator: torch.Generator) -> None:
    optimiser = torch.optim.Adam(of.train().parameters(), lr=rate)
    for _ in range(updates):
        optimiser.zero_grad()
        given = tones(8, generator)
        (by.objective(of, forced(of, given), given) / of.num_targets(given)).backward()
        torch.nn.utils.clip_grad_norm_(of.parameters(), 1.0)
        optimiser.step()


@torch.no_grad()
def expected_error_rate(of: ListenAttendSpell, given: Batch) -> float:
    """Expected errors of the n-best lists, per token."""
    decoder, num_states = of.eval().search_inputs(given.waveforms, given.num_samples)
    of_tokens, nbest_lists, total = loss(unit="token"), loss().search(decoder, num_states), 0.0
    for row, nbest in enumerate(nbest_lists):
        weights = score(of, decoder.select_utterances(torch.tensor([row])), [nbest]).softmax(0)
        errors = of_tokens._errors(given.targets[row, : given.num_tokens[row]].tolist(), nbest)
        total += float((weights * errors).sum())
    return total / int(given.num_tokens.sum())


@pytest.mark.slow
def test_the_expected_error_of_held_out_speech_falls() -> None:
    torch.manual_seed(1)
    keys = [*MODEL, UTTERANCE, "model.features.num_mels=20", *(f"model.{part}.hidden_size=16" for part in PARTS)]
    of: ListenAttendSpell = build(compose("train", keys)["model"], where="model")(4000, 5)
    generator, held_out = torch.Generator().manual_seed(2), tones(128, torch.Generator().manual_seed(99))
    continued(of, LabelSmoothedCrossEntropy(), 120, 0.01, generator)
    before = expected_error_rate(of, held_out)
    continued(of, loss(unit="token"), 30, 0.004, generator)
    assert expected_error_rate(of, held_out) < 0.95 * before < 0.95


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of a few updates of likelihood."""
    root = tree(tmp_path_factory.mktemp("mwer"))
    train.train(overrides(root, "loss=joint_ctc", f"run_dir={root / 'first'}"))
    return root


def test_it_continues_a_trained_model_and_resumes_bit_for_bit(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(name: str) -> list[str]:
        return ["loss=mwer_joint_ctc", f"warm_start.from={trained / 'first'}", f"run_dir={trained / name}"]

    train.train(overrides(trained, *given("whole")))
    stopped_after(monkeypatch, trained, 3, *given("resumed"))
    train.train(overrides(trained, *given("resumed")))
    require_same(trained / "resumed", trained / "whole")
    lines = [json.loads(line) for line in (trained / "whole/metrics.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines].count("validation") == 2
