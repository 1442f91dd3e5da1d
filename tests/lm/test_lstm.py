"""LSTM language models: the scorer is the pass over whole sentences, whatever the beams; other tokens are refused."""

import pytest
import torch

from las.data.tokenizers import Characters
from las.lm import lstm
from las.lm.lstm import LSTMLanguageModel
from las.lm.perplexity import log_probs
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels import choice

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
        assert not torch.equal(lm.train()(targets), lm.eval()(targets))  # dropout
    state = lm.start(3)
    for step in range(8):
        torch.testing.assert_close(lm.score(state)[:, 0], expected[:, step], atol=1e-5, rtol=0)
        if step < 7:
            state = lm.advance(state, targets[:, step : step + 1])


def test_tokens_in_another_order_are_the_same_tokens() -> None:
    other = Characters("CA B")
    expected = model()
    lm = lstm.of_tokens(model(), OWN, other, "lm")
    text = "AB CA"
    for own, new in ((OWN.encode(text), other.encode(text)),):
        assert float(log_probs(lm, [new])[0].sum()) == pytest.approx(float(log_probs(expected, [own])[0].sum()))
