"""Lists of words and dictionaries: formats, and errors that name the file."""

from pathlib import Path

import pytest

from las.data.tokenizers import Characters, train_sentence_pieces
from las.lm import lexicon
from las.runtime.errors import DataError


def test_the_first_column_counts_without_numbers_of_pronunciations(tmp_path: Path) -> None:
    path = tmp_path / "x.dic"
    path.write_text(";;; CMU\nA  AH\nA(2)  EY\n(2)  T UW\nAND AE N D\n\nB\n", "utf-8")
    assert lexicon.read(path) == ["A", "(2)", "AND", "B"]
    assert lexicon.read_phrases(path)[3:] == ["(2) T UW", "AND AE N D", "B"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "there are no words in it. It should have a word a line, or be a dictionary"),
        (b"\n ;;; only this\n", "there are no words in it"),
        (b"\\data\\\nngram 1=2\n", "a language model .ARPA., not a list of words: search.word_lm.path="),
        (b"a\nb\xff\n", ":2: not UTF-8 text"),
        (None, "cannot be read .No such file"),
    ],
)
def test_files_that_are_no_lists_are_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"^{path}:? ?.*{message}"):
        lexicon.read(path)
    if content == b"":
        with pytest.raises(DataError, match="a word or a phrase a line"):
            lexicon.read_phrases(path)


def test_spellings_are_those_of_the_tokens(tmp_path: Path) -> None:
    pieces = train_sentence_pieces(["new york", "york new"] * 3, tmp_path / "m.model", 9, "bpe")
    assert lexicon.spellings(["york", "new york"], pieces, "x") == {"new york": "new york", "york": "york"}
    assert lexicon.spellings(["b a", "b"], Characters("ab "), "x") == {"b": "b", "b a": "b a"}
    parts = lexicon.word_parts(pieces)
    assert [part.begins for part in parts] == [symbol.startswith("\u2581") for symbol in pieces.symbols]
