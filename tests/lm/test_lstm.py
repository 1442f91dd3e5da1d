"""LSTM language models: the scorer is the pass over whole sentences, whatever the beams; other tokens are refused."""

import functools
import math
from pathlib import Path

import pytest
import torch
from cell_cases import factory_of

from las.data.augmentation.augmentation import Augmentation
from las.data.loader import Batch
from las.data.tokenizers import Characters
from las.decoding.scorers import base
from las.lm import loading, lstm
from las.lm.lstm import LSTMLanguageModel
from las.lm.perplexity import log_probs, perplexity
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels import choice
from las.runtime.errors import DataError, StorageError

OWN = Characters(" ABC")


def model(cell: type = PlainLSTMCell, num_layers: int = 2, vocab_size: int = 5, seed: int = 1) -> LSTMLanguageModel:
    torch.manual_seed(seed)
    made = LSTMLanguageModel(vocab_size, cell=cell, num_layers=num_layers, hidden_size=6, embedding_size=3, dropout=0.5)
    return made.eval()


@pytest.mark.parametrize("cell", [PlainLSTMCell, LNGlobalLSTMCell])
@pytest.mark.parametrize("kernel", ["auto", "plain"])
def test_the_scorer_is_the_pass_over_sentences(cell: type, kernel: str) -> None:
    lm, targets = model(cell), torch.randint(1, 5, (3, 7))
    with choice.use_kernel(kernel), torch.no_grad():
        expected = torch.log_softmax(lm(targets), dim=-1)
    state = lm.start(3)
    for step in range(8):
        torch.testing.assert_close(lm.score(state)[:, 0], expected[:, step], atol=1e-5, rtol=0)
        if step < 7:
            state = lm.advance(state, targets[:, step : step + 1])


def test_what_follows_a_sentence_changes_nothing_before_it() -> None:
    lm = model()
    one, other = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[1, 2, 0, 0]])
    with torch.no_grad():
        assert torch.equal(lm(one)[:, :3], lm(other)[:, :3])
        batch = Batch(["u0"], torch.zeros(1, 0), torch.zeros(1, dtype=torch.long), one, torch.tensor([4]))
        assert torch.equal(lm.forward_batch(batch, Augmentation().features).logits, lm(one))


def test_probabilities_sum_to_one_after_any_history() -> None:
    lm = model()
    state = lm.start(1000)
    for _ in range(5):
        sums = lm.score(state).double().exp().sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-6, rtol=0)
        state = lm.advance(state, torch.randint(0, 5, (1000, 1)))


def test_beams_are_reordered_as_values() -> None:
    lm = model()
    state = base.reorder(lm.start(2), torch.tensor([[0, 0, 0], [0, 0, 0]]))
    tokens = torch.tensor([[1, 2, 3], [3, 3, 4]])
    after = lm.advance(state, tokens)
    swapped = base.reorder(after, torch.tensor([[2, 0, 1], [0, 2, 2]]))
    scores = lm.score(after)
    torch.testing.assert_close(lm.score(swapped)[0], scores[0, [2, 0, 1]])
    torch.testing.assert_close(lm.score(swapped)[1], scores[1, [0, 2, 2]])
    found, same = lm.follow(after, tokens)
    torch.testing.assert_close(found, scores.gather(-1, tokens.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(lm.score(same), lm.score(lm.advance(after, tokens)))


def test_perplexity_counts_every_token_and_every_end() -> None:
    lm, sentences = model(), [[1, 2, 3], [4], [2, 2, 2, 2, 1]]
    with torch.no_grad():
        rows = [torch.log_softmax(lm(torch.tensor([each])), -1)[0] for each in sentences]
    by_hand = [
        sum(float(row[step, token]) for step, token in enumerate([*each, 0]))
        for each, row in zip(sentences, rows, strict=True)
    ]
    assert [float(row.sum()) for row in log_probs(lm, sentences)] == pytest.approx(by_hand, abs=1e-5)
    found = perplexity(lm, sentences)
    assert (found.num_sentences, found.num_symbols) == (3, 12)
    assert found.of_all == pytest.approx(math.exp(-sum(by_hand) / 12))


def test_tokens_in_another_order_are_the_same_tokens() -> None:
    other = Characters("CA B")
    expected = model()
    lm = lstm.of_tokens(model(), OWN, other, "lm")
    text = "AB CA"
    for own, new in ((OWN.encode(text), other.encode(text)),):
        assert float(log_probs(lm, [new])[0].sum()) == pytest.approx(float(log_probs(expected, [own])[0].sum()))


def test_other_tokens_are_named() -> None:
    with pytest.raises(DataError, match=r"runs/lm: the language model lacks 1 of the 6 symbols .*'D'"):
        lstm.of_tokens(model(), OWN, Characters(" ABCD"), "runs/lm")
    with pytest.raises(DataError, match=r"has 1 words that the tokens lack: '<space>'"):
        lstm.of_tokens(model(), OWN, Characters("ABC"), "runs/lm")
    never = model()
    with torch.no_grad():
        never.output.bias[0] = -1000.0
    with pytest.raises(DataError, match="the language model never ends a sentence"):
        lstm.of_tokens(never, OWN, OWN, "runs/lm")


def test_dropout_acts_while_training_only() -> None:
    lm, targets = model(), torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert torch.equal(lm(targets), lm(targets))
        lm.train()
        assert not torch.equal(lm(targets), lm(targets))


def test_a_cell_of_any_card_will_do() -> None:
    cell = functools.partial(factory_of("ln_joined"))
    made = LSTMLanguageModel(5, cell=cell, hidden_size=4, embedding_size=2)
    made(torch.tensor([[1, 2]])).sum().backward()
    assert all(parameter.grad is not None for parameter in made.parameters())
    assert "recurrences" in made.explain()


def test_a_recogniser_is_no_language_model(trained: Path) -> None:
    with pytest.raises(DataError, match="this is a recogniser, not a language model: las train_lm makes one"):
        loading.load(trained / "run", OWN)
    with pytest.raises(StorageError, match="neither a run folder nor a checkpoint"):
        loading.load(trained, OWN)
