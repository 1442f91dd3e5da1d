"""A model of words over tokens: the sum over tokens is the model's own probability of the words, token by token the
probability of what may still come."""

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from las.data.tokenizers import Characters, Phones, SentencePieces, train_sentence_pieces
from las.decoding.scorers.lazy_table import LazyTable
from las.lm import arpa, kneser_ney, word_ngram
from las.lm.ngram import of_words
from las.lm.word_ngram import WordNGram

SENTENCES = [["ab", "a"], ["b", "ab", "ab"], ["abb"], ["a", "a", "b"]]
LETTERS = Characters("ab c")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> SentencePieces:
    texts = ["ab a", "b ab ab", "abb", "a a b"] * 4
    return train_sentence_pieces(texts, tmp_path_factory.mktemp("pieces") / "m.model", 6, "bpe")


def pruned(model: arpa.Model) -> arpa.Model:
    """Without every third n-gram of the highest order, so that sums over words back off unevenly."""
    *lower, highest = model.ngrams
    kept = np.arange(len(highest.words)) % 3 != 0
    return arpa.Model(model.words, (*lower, arpa.NGrams(*(column[kept] for column in highest))), "pruned")


MODELS = [kneser_ney.estimate(SENTENCES, order).model for order in (1, 2, 3)]
MODELS += [pruned(MODELS[1]), pruned(MODELS[2]), word_ngram.uniform(["ab", "b", "abb"], "list")]


class Words:
    """Log-probabilities of words by the model itself; each question is asked once."""

    def __init__(self, model: arpa.Model) -> None:
        self.lm = of_words(model)
        self.follow = functools.cache(self._follow)

    def _follow(self, state: int, word: str) -> tuple[float, int]:
        symbol = self.lm.symbols.index(word if word in self.lm.symbols else arpa.UNKNOWN)
        log_prob, state_after = self.lm.follow(torch.tensor([state]), torch.tensor([symbol]))
        return float(log_prob), int(state_after)

    def history(self, text: str) -> int:
        """The state after some words."""
        return functools.reduce(lambda state, word: self.follow(state, word)[1], text.split(), self.lm.start_state)

    def log_prob(self, text: str, oov_penalty: float | None) -> float:
        """log p of the words of a text and of its end."""
        state, total = self.lm.start_state, 0.0
        for word in [*text.split(), arpa.END]:
            log_prob, state = self.follow(state, word)
            spelling = -math.inf if oov_penalty is None else -oov_penalty * len(word)
            total += log_prob + (0.0 if word in self.lm.symbols else spelling)
        return total


def path_scores(table: LazyTable, texts: Sequence[Sequence[int]]) -> list[list[float]]:
    """The score of each token of each text, all texts as one batch."""
    tokens = pad_sequence([torch.tensor(text, dtype=torch.long) for text in texts], batch_first=True)
    rows, columns = table.start(len(texts)), []
    for column in tokens.split(1, dim=1):
        columns.append(table.score(rows).gather(2, column.unsqueeze(-1)).squeeze(-1))
        rows = table.advance(rows, column)
    scores = torch.cat(columns, dim=1).tolist()
    return [row[: len(text)] for row, text in zip(scores, texts, strict=True)]


def every_text(num_tokens: int, longest: int) -> list[tuple[int, ...]]:
    """All sequences of tokens, the end behind each."""
    every = (itertools.product(range(1, num_tokens), repeat=length) for length in range(longest + 1))
    return [(*tokens, 0) for tokens in itertools.chain.from_iterable(every)]


@pytest.mark.parametrize("oov_penalty", [None, 1.5])
@pytest.mark.parametrize("model", MODELS)
def test_the_tokens_of_any_text_add_up_to_the_probability_of_its_words(
    model: arpa.Model, oov_penalty: float | None
) -> None:
    """All texts of up to four characters: words, other words, spaces at the ends and in a row."""
    table, words = LazyTable(WordNGram(model, LETTERS, oov_penalty), CPU), Words(model)
    every = every_text(LETTERS.size, 4)
    for tokens, scores in zip(every, path_scores(table, every), strict=True):
        assert sum(scores) == pytest.approx(words.log_prob(LETTERS.decode(tokens), oov_penalty), abs=1e-5)
        assert max(scores) < 1e-12  # nothing is gained later, so that a search may stop early


@pytest.mark.parametrize("model", MODELS)
def test_a_prefix_scores_the_probability_of_the_words_that_begin_with_it(model: arpa.Model) -> None:
    words = Words(model)
    known = [word for word in words.lm.symbols if word not in (arpa.END, arpa.UNKNOWN)]
    for history in ("", "b ", "b ab "):
        for oov_penalty in (None, 2.0):
            table = LazyTable(WordNGram(model, LETTERS, oov_penalty), CPU)
            before = len(LETTERS.encode(history))
            for prefix in ("a", "ab", "abb", "b"):
                (scores,) = path_scores(table, [LETTERS.encode(history + prefix)])
                state = words.history(history)
                mass = sum(math.exp(words.follow(state, word)[0]) for word in known if word.startswith(prefix))
                if oov_penalty is not None:
                    mass += math.exp(words.follow(state, arpa.UNKNOWN)[0] - oov_penalty * len(prefix))
                assert sum(scores[before:]) == pytest.approx(math.log(mass), abs=1e-5)


def test_pieces_score_alike_however_they_divide_a_word(pieces: SentencePieces) -> None:
    assert {"\u2581ab", "\u2581"} <= set(pieces.symbols)
    every = every_text(pieces.size, 3)
    for model, oov_penalty in ((MODELS[2], None), (MODELS[2], 1.5), (MODELS[5], 1.5)):
        table, words = LazyTable(WordNGram(model, pieces, oov_penalty), CPU), Words(model)
        for tokens, scores in zip(every, path_scores(table, every), strict=True):
            text = pieces.decode(tokens)
            assert sum(scores) == pytest.approx(words.log_prob(text, oov_penalty), abs=1e-5), text


def test_each_phone_is_a_word() -> None:
    phones = Phones(symbols=["aa", "b"])
    model = word_ngram.uniform(["aa", "b", "zz"], "list")
    table = LazyTable(WordNGram(model, Phones(symbols=["aa", "b", "zz"])), CPU)
    (scores,) = path_scores(table, [[*phones.encode("aa b b"), 0]])
    assert scores == pytest.approx([-math.log(5)] * 4)


def test_words_that_cannot_be_spelt_are_counted_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    lm = WordNGram(word_ngram.uniform(["ab", "b1", "x"], "words.txt"), LETTERS)
    assert lm.lm.symbols[2:] == ("ab",)
    said = capsys.readouterr().out
    assert all(word in said for word in ("words.txt", "2 of 3", "'b1' has '1'", "'x' has 'x'"))
