"""A model of words over tokens: the sum over tokens is the model's own probability of the words, token by token the
probability of what may still come."""

import itertools
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

from las.data.tokenizers import Characters, Phones, SentencePieces, Tokenizer, train_sentence_pieces
from las.decoding.scorers.lazy_table import LazyTable
from las.lm import arpa, kneser_ney, word_ngram
from las.lm.ngram import of_words
from las.lm.word_ngram import WordNGram
from las.runtime.errors import ConfigError, DataError

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


def word_log_prob(model: arpa.Model, text: str, oov_penalty: float | None) -> float:
    """log p of the words of a text and of its end."""
    lm, total = of_words(model), 0.0
    state = lm.start(1)
    for word in [*text.split(), arpa.END]:
        is_known = word in lm.symbols
        log_prob, state = lm.follow(state, torch.tensor([[lm.symbols.index(word if is_known else arpa.UNKNOWN)]]))
        spelling = 0.0 if is_known else -math.inf if oov_penalty is None else -oov_penalty * len(word)
        total += float(log_prob) + spelling
    return total


def path_scores(table: LazyTable, tokens: Iterable[int]) -> list[float]:
    """The score of each token."""
    rows, scores = table.start(1), []
    for token in tokens:
        scores.append(float(table.score(rows)[0, 0, token]))
        rows = table.advance(rows, torch.tensor([[token]]))
    return scores


@pytest.mark.parametrize("oov_penalty", [None, 1.5])
@pytest.mark.parametrize("model", MODELS)
def test_the_tokens_of_any_text_add_up_to_the_probability_of_its_words(
    model: arpa.Model, oov_penalty: float | None
) -> None:
    """All texts of up to four characters: words, other words, spaces at the ends and in a row."""
    table = LazyTable(WordNGram(model, LETTERS, oov_penalty), CPU)
    for length in range(5):
        for tokens in itertools.product(range(1, LETTERS.size), repeat=length):
            scores = path_scores(table, [*tokens, LETTERS.eos])
            expected = word_log_prob(model, LETTERS.decode(tokens), oov_penalty)
            assert sum(scores) == pytest.approx(expected, abs=1e-5)
            assert max(scores) < 1e-12  # nothing is gained later, so that a search may stop early


@pytest.mark.parametrize("model", MODELS)
def test_a_prefix_scores_the_probability_of_the_words_that_begin_with_it(model: arpa.Model) -> None:
    closed, opened = (LazyTable(WordNGram(model, LETTERS, penalty), CPU) for penalty in (None, 2.0))
    words = [word for word in model.words if word not in (arpa.START, arpa.END, arpa.UNKNOWN)]
    for history in ("", "a ", "b ab "):
        if not set(history.split()) <= set(words):
            continue
        start = sum(path_scores(opened, LETTERS.encode(history)))
        end = word_log_prob(model, history, None)
        before = end - word_log_prob(model, history, None) + start
        for prefix in ("a", "ab", "abb", "b"):
            probs = [_conditional(model, history, word) for word in words if word.startswith(prefix)]
            unknown = _conditional(model, history, arpa.UNKNOWN) * math.exp(-2.0 * len(prefix))
            tokens = LETTERS.encode(history + prefix)
            assert sum(path_scores(opened, tokens)) - before == pytest.approx(math.log(sum(probs) + unknown), abs=1e-5)
            alone = sum(path_scores(closed, tokens)) - sum(path_scores(closed, LETTERS.encode(history)))
            assert alone == pytest.approx(math.log(sum(probs)), abs=1e-5)


def _conditional(model: arpa.Model, history: str, word: str) -> float:
    lm = of_words(model)
    state = lm.start(1)
    for each in history.split():
        state = lm.advance(state, torch.tensor([[lm.symbols.index(each)]]))
    return float(lm.score(state)[0, 0, lm.symbols.index(word)].exp())


def test_pieces_score_alike_however_they_divide_a_word(pieces: SentencePieces) -> None:
    assert "\u2581ab" in pieces.symbols and "\u2581" in pieces.symbols
    for model, oov_penalty in itertools.product((MODELS[2], MODELS[5]), (None, 1.5)):
        table = LazyTable(WordNGram(model, pieces, oov_penalty), CPU)
        for length in range(4):
            for tokens in itertools.product(range(1, pieces.size), repeat=length):
                found = sum(path_scores(table, [*tokens, pieces.eos]))
                expected = word_log_prob(model, pieces.decode(tokens), oov_penalty)
                assert found == pytest.approx(expected, abs=1e-5), pieces.decode(tokens)


def test_each_phone_is_a_word() -> None:
    phones = Phones(symbols=["aa", "b"])
    model = word_ngram.uniform(["aa", "b", "zz"], "list")
    table = LazyTable(WordNGram(model, Phones(symbols=["aa", "b", "zz"])), CPU)
    assert sum(path_scores(table, [*phones.encode("aa b b"), 0])) == pytest.approx(-4 * math.log(5))


def test_all_words_and_the_end_are_equally_probable_in_a_list() -> None:
    model = word_ngram.uniform(["a", "b", "c"], "list")
    assert 10 ** model.ngrams[0].log10_probs[1:] == pytest.approx([1 / 5] * 5)
    assert word_log_prob(model, "a c", None) == pytest.approx(3 * math.log(1 / 5))


def test_a_batch_of_beams_scores_as_its_hypotheses_alone() -> None:
    lm = WordNGram(MODELS[2], LETTERS, 1.5)
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, LETTERS.size, (8, 3, 2), generator=draw)
    table = LazyTable(lm, CPU)
    rows, scores = table.start(3).expand(3, 2), torch.zeros(3, 2, dtype=torch.float64)
    for column in tokens:
        scores += table.score(rows).gather(2, column.unsqueeze(-1)).squeeze(-1)
        rows = table.advance(rows, column)
    for row, beam in itertools.product(range(3), range(2)):
        alone = sum(path_scores(LazyTable(lm, CPU), tokens[:, row, beam].tolist()))
        assert float(scores[row, beam]) == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (Characters("AB "), r"the tokens can spell none of its 3 words: 'ab' has 'a', 'b', .* in the other case"),
        (Characters("xyz"), r"none of its 3 words: 'ab' has 'a', 'b', 'b' has 'b', 'abb' has 'a', 'b'\."),
    ],
)
def test_words_that_no_token_spells_are_an_error(tokens: Tokenizer, message: str) -> None:
    with pytest.raises(DataError, match=f"list: {message}"):
        WordNGram(MODELS[5], tokens)


def test_words_that_cannot_be_spelt_are_counted_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    lm = WordNGram(word_ngram.uniform(["ab", "b1", "x"], "words.txt"), LETTERS)
    assert lm.lm.symbols[2:] == ("ab",)
    said = " ".join(capsys.readouterr().out.split())
    assert said == (
        "words.txt: 2 of 3 words are left out, which the tokens cannot spell: 'b1' has '1', 'x' has 'x'"
    )


def test_pieces_of_several_words_are_refused() -> None:
    with pytest.raises(ConfigError, match="go from one word into the next"):
        WordNGram(MODELS[5], Phones(symbols=["\u2581a\u2581b", "ab"]))


def test_a_model_is_read_from_a_file_or_a_list(tmp_path: Path) -> None:
    arpa.write(tmp_path / "w.arpa", MODELS[1])
    (tmp_path / "w.dic").write_text(";;; a comment\nab  AH B\nab(2)  AE B\n\nb  B\n")
    of_file = word_ngram.read(tmp_path / "w.arpa", None, LETTERS, None)
    of_list = word_ngram.read(None, tmp_path / "w.dic", LETTERS, None)
    assert sum(path_scores(LazyTable(of_file, CPU), [*LETTERS.encode("ab a"), 0])) == pytest.approx(
        word_log_prob(MODELS[1], "ab a", None), abs=1e-4
    )
    assert of_list.lm.symbols[2:] == ("ab", "b")
