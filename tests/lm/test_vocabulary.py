"""Language models and tokens that do not belong together are told apart by name."""

from dataclasses import dataclass

import pytest

from las.data.tokenizers import Characters, Phones
from las.lm import vocabulary
from las.runtime.errors import DataError


@dataclass(frozen=True)
class Words:
    """A language model as far as `check` looks."""

    words: tuple[str, ...]
    log10_end: float = -1.0
    name: str = "x.arpa"


def test_the_same_symbols_belong_together() -> None:
    vocabulary.check(Words(("<unk>", "<s>", "</s>", "b", "a", "<space>")), Characters(" ab"))
    vocabulary.check(Words(("</s>", "aa", "iy")), Phones(symbols=["iy", "aa"]))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("</s>", "a"), "x.arpa: the language model lacks 2 of the 4 symbols of the tokens: '<space>', 'b'. Estimate"),
        (("</s>", "a", "b", "c", "<space>"), "x.arpa: the language model has 1 words that the tokens lack: 'c'. "),
        (("</s>", "A", "b", "<space>"), "lacks 1 of the 4 .* tokens: 'a', and has 1 words that the tokens lack: 'A'"),
        (("a", "b", "<space>", "<eos>"), "lacks 1 of .* '</s>', and has 1 words that the tokens lack: '<eos>'"),
        (("</s>", "a", "b", "<space>", *map(str, range(10, 30))), "has 20 words .*'10', .*, '19' and 10 more"),
    ],
)
def test_mismatches_name_the_symbols(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(DataError, match=says):
        vocabulary.check(Words(words), Characters(" ab"))


def test_a_model_without_ends_of_sentences_is_refused() -> None:
    with pytest.raises(DataError, match=r"x.arpa: the language model never ends a sentence \(.* </s>: -99\)"):
        vocabulary.check(Words(("</s>", "a"), log10_end=-99.0), Characters("a"))


@pytest.mark.parametrize("symbols", [["a", "<s>"], ["<unk>", "a"], [" ", "<space>"]])
def test_tokens_whose_names_are_taken_are_refused(symbols: list[str]) -> None:
    with pytest.raises(DataError, match="mean something else in a language model"):
        vocabulary.words_of(Phones(symbols=symbols))


def test_a_space_is_written_where_blanks_stand_between_words() -> None:
    assert vocabulary.words_of(Characters("a b")) == ("</s>", "a", "<space>", "b")
