"""Words in a search: a lexicon, hot words and a model of words find what enumeration finds, with CTC as well."""

import itertools
import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from toy_search import EOS, ToyDecoder

from las.data.tokenizers import Characters, SentencePieces, Tokenizer, train_sentence_pieces
from las.decoding.base import Hypothesis
from las.decoding.scorers.base import SearchStep
from las.decoding.scorers.constraints import MinLength
from las.decoding.scorers.ctc_prefix import CTCPrefixScorer
from las.decoding.scorers.language_model import WordNGramScorer
from las.decoding.scorers.word_lists import HotWordBonus, LexiconConstraint
from las.decoding.search import BeamSearch
from las.lm import arpa, kneser_ney
from las.lm.ngram import of_words

LETTERS = Characters("ab ")
WORDS = ["ab", "a", "bba"]
LIMIT = 4
NUM_STATES = torch.tensor([8])
WIDE = sum(3**length for length in range(LIMIT + 1))


@pytest.fixture
def lexicon(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_text("\n".join(WORDS))
    return path


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> SentencePieces:
    return train_sentence_pieces(["ab a", "bba ab a"] * 4, tmp_path_factory.mktemp("pieces") / "m.model", 5, "bpe")


def bound(search: BeamSearch, tokens: Tokenizer = LETTERS) -> BeamSearch:
    search.bind(tokens, has_ctc=True)
    return search


def everything(decoder: ToyDecoder, **options: CTCPrefixScorer) -> dict[str, Hypothesis]:
    """All texts of up to LIMIT characters, by a search without words whose beam holds all of them."""
    (found,) = BeamSearch(WIDE, 0.0, WIDE, max_length=LIMIT, **options)(decoder, NUM_STATES)
    return {LETTERS.decode(each.tokens): each for each in found}


def is_text_of(words: list[str], text: str) -> bool:
    return text == " ".join(text.split()) and set(text.split()) <= set(words)


@pytest.mark.parametrize("options", [{}, {"ctc": CTCPrefixScorer(0.4)}], ids=["alone", "ctc"])
def test_a_lexicon_leaves_its_texts_with_their_scores(options: dict, lexicon: Path) -> None:
    decoder = ToyDecoder.random(1, [8], LETTERS.size)
    expected = {text: each for text, each in everything(decoder, **options).items() if is_text_of(WORDS, text)}
    assert len(expected) == 7 and "" in expected and "ab a" in expected
    search = bound(BeamSearch(WIDE, 0.0, WIDE, max_length=LIMIT, **options, lexicon=LexiconConstraint(str(lexicon))))
    (found,) = search(decoder, NUM_STATES)
    assert [LETTERS.decode(each.tokens) for each in found] == list(expected)
    assert [each.score for each in found] == pytest.approx([each.score for each in expected.values()], rel=1e-9)


def test_no_beam_and_no_limit_writes_another_word(lexicon: Path) -> None:
    """Narrow beams, other constraints, few states for CTC: another text is a dead end, and says so."""
    outcomes = Counter()
    for seed, size, states in itertools.product(range(6), (1, 3), (2, 9)):
        decoder = ToyDecoder.random(seed, [states, 9], LETTERS.size)
        parts = dict(lexicon=LexiconConstraint(str(lexicon)), min_length=MinLength(0.5))
        search = bound(BeamSearch(size, 1.0, max_length=None if seed % 2 else 4, ctc=CTCPrefixScorer(0.3), **parts))
        for (best,) in search(decoder, torch.tensor([states, 9])):
            outcomes[best.finished_by] += 1
            assert best.finished_by == "dead_end" or is_text_of(WORDS, LETTERS.decode(best.tokens))
            assert (best.score == -math.inf) == (best.finished_by == "dead_end")
    assert outcomes["eos"] + outcomes["max_length"] > outcomes["dead_end"]


def test_pieces_write_the_same_texts_in_every_way(pieces: SentencePieces, lexicon: Path) -> None:
    limit = 3
    decoder = ToyDecoder.random(2, [8], pieces.size)
    size = (pieces.size - 1) ** limit * 2
    (all_of_them,) = BeamSearch(size, 0.0, size, max_length=limit)(decoder, NUM_STATES)
    search = bound(BeamSearch(size, 0.0, size, max_length=limit, lexicon=LexiconConstraint(str(lexicon))), pieces)
    (found,) = search(decoder, NUM_STATES)
    expected = []
    for tokens in (each.tokens for each in all_of_them):
        # Decoding drops the spaces that a lexicon refuses: in front of each other, and at the end.
        spaces = "".join(pieces.symbols[token] for token in tokens).replace("\u2581", " ")
        if "  " not in spaces and not spaces.endswith(" ") and is_text_of(WORDS, pieces.decode(tokens)):
            expected.append(tokens)
    assert [each.tokens for each in found] == expected
    texts = Counter(pieces.decode(tokens) for tokens in expected)
    assert texts["ab"] > 1 and texts["a ab a"] > 1  # by several divisions into pieces


@pytest.mark.parametrize("hot", [["ab"], ["ab", "a", "a b"], ["a a", "a b", "b a b"]])
def test_hot_words_are_counted_wherever_they_stand(hot: list[str]) -> None:
    decoder = ToyDecoder.random(3, [8], LETTERS.size)
    plain = everything(decoder)
    search = bound(BeamSearch(WIDE, 0.0, WIDE, max_length=LIMIT, hot_words=HotWordBonus(hot, 1.5)))
    (found,) = search(decoder, NUM_STATES)
    assert len(found) == len(plain)
    for each in found:
        text = LETTERS.decode(each.tokens)
        padded = f" {' '.join(text.split(' '))} "
        count = sum(padded.startswith(f" {word} ", place) for word in hot for place in range(len(padded)))
        assert each.scores["hot_words"] == pytest.approx(count, abs=1e-12), text
        assert each.score == pytest.approx(plain[text].score + 1.5 * count)


def test_the_bonus_is_paid_in_advance_and_taken_back() -> None:
    scorer = HotWordBonus(["abba"], 1.0)
    scorer.bind(LETTERS, has_ctc=False)
    batch = scorer.on(None, torch.tensor([3]))
    state, paid = batch.start(), []
    for token in [*LETTERS.encode("abbb"), EOS]:
        scores, state = batch.score(state, SearchStep(torch.zeros(1, 1, LETTERS.size), None))
        paid.append(float(scores[0, 0, token]))
        state = batch.advance(state, torch.tensor([[token]]))
    assert paid == pytest.approx([0.25, 0.25, 0.25, -0.75, 0.0])


@pytest.mark.parametrize("nbest", [1, 3])
def test_stopping_early_does_not_change_the_list(nbest: int, lexicon: Path) -> None:
    num_states = torch.tensor([1, 3, 9, 12] * 3)
    decoder = ToyDecoder.random(4, num_states.tolist(), LETTERS.size)
    for parts in (
        {"hot_words": HotWordBonus(["ab", "b"], 20.0)},
        {"word_lm": WordNGramScorer(words=str(lexicon), weight=0.5), "lexicon": LexiconConstraint(str(lexicon))},
    ):
        whole = bound(BeamSearch(5, 0.0, 5, **parts))(decoder, num_states)
        first = bound(BeamSearch(5, 0.0, nbest, **parts))(decoder, num_states)
        for some, others in zip(first, whole, strict=True):
            assert [each.tokens for each in some] == [each.tokens for each in others[:nbest]]


@pytest.mark.parametrize("oov_penalty", [None, 2.0])
def test_a_model_of_words_adds_the_log_probability_of_the_words(oov_penalty: float | None, tmp_path: Path) -> None:
    model = kneser_ney.estimate([["ab", "a"], ["a"], ["bba", "ab"]], 2).model
    arpa.write(tmp_path / "w.arpa", model)
    decoder, ctc = ToyDecoder.random(5, [8], LETTERS.size), CTCPrefixScorer(0.3)
    scorer = WordNGramScorer(str(tmp_path / "w.arpa"), weight=0.7, oov_penalty=oov_penalty)
    search = bound(BeamSearch(WIDE, 0.0, WIDE, max_length=LIMIT, ctc=ctc, word_lm=scorer))
    (found,) = search(decoder, NUM_STATES)
    plain = everything(decoder, ctc=ctc)
    if oov_penalty is None:
        plain = {text: each for text, each in plain.items() if set(text.split()) <= set(WORDS)}
    assert {LETTERS.decode(each.tokens) for each in found} == plain.keys()
    alone = of_words(arpa.read(tmp_path / "w.arpa"))
    for each in found:
        text = LETTERS.decode(each.tokens)
        expected, state = 0.0, alone.start(1)
        for word in [*text.split(), arpa.END]:
            is_known = word in alone.symbols
            symbol = alone.symbols.index(word if is_known else arpa.UNKNOWN)
            log_prob, state = alone.follow(state, torch.tensor([[symbol]]))
            expected += float(log_prob) - (0.0 if is_known else (oov_penalty or 0.0) * len(word))
        assert each.scores["word_lm"] == pytest.approx(expected, abs=1e-5)
        assert each.score == pytest.approx(plain[text].score + 0.7 * each.scores["word_lm"], rel=1e-9)
