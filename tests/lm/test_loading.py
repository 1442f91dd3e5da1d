"""Language models and lists of words from files, KenLM's binary ones where it is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from las.data.tokenizers import Characters, train_sentence_pieces
from las.lm import arpa, kneser_ney, lexicon, loading
from las.lm.loading import KenLM
from las.lm.ngram import NGram
from las.runtime.errors import DataError

TOKENS = Characters(" abc")
TEXT = [list(line.replace(" ", "_")) for line in ("ab ba", "abc", "c a", "bab aba", "", "ca ca ca")]
TEXT = [["<space>" if symbol == "_" else symbol for symbol in line] for line in TEXT]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    arpa.write(tmp_path / "lm.arpa.gz", kneser_ney.estimate(TEXT, 4).model)
    arpa.write(tmp_path / "lm.arpa", kneser_ney.estimate(TEXT, 4).model)
    return tmp_path / "lm.arpa"


def compare(own: NGram | KenLM, other: NGram | KenLM) -> None:
    draw = torch.Generator().manual_seed(1)
    first, second = (lm.start(4).repeat(1, 3) for lm in (own, other))
    for _ in range(8):
        assert torch.allclose(own.score(first), other.score(second), atol=1e-4)
        tokens = torch.randint(1, TOKENS.size, (4, 3), generator=draw)
        first, second = own.advance(first, tokens), other.advance(second, tokens)


def test_kenlm_gives_the_same_answers(path: Path) -> None:
    pytest.importorskip("kenlm")
    other = KenLM(path, ("</s>", "<space>", "a", "b", "c"))
    assert other.order == 4 and set(other.words) == set(other.symbols)
    assert other.log10_end == pytest.approx(arpa.read(path).log10_end, abs=1e-5)
    compare(loading.load(path, TOKENS), other)
    with pytest.raises(DataError, match="Cannot read model"):
        KenLM(path.parent / "none.arpa", ("</s>",))


@pytest.mark.skipif(shutil.which("build_binary") is None, reason="KenLM's build_binary is not installed")
def test_a_binary_file_is_that_of_its_arpa_file(path: Path) -> None:
    pytest.importorskip("kenlm")
    for kind in ("trie", "probing"):
        subprocess.run(
            ["build_binary", kind, str(path), str(path.with_suffix(".bin"))], capture_output=True, check=True
        )
        other = loading.load(path.with_suffix(".bin"), TOKENS)
        assert isinstance(other, KenLM)
        compare(loading.load(path, TOKENS), other)
    with pytest.raises(DataError, match=r"lm.bin: .* 1 of the 6 .* 'd'"):
        loading.load(path.with_suffix(".bin"), Characters(" abcd"))


def test_the_first_column_counts_without_numbers_of_pronunciations(tmp_path: Path) -> None:
    path = tmp_path / "x.dic"
    path.write_text(";;; CMU\nA  AH\nA(2)  EY\n(2)  T UW\nAND AE N D\n\nB\n", "utf-8")
    assert lexicon.read(path) == ["A", "(2)", "AND", "B"]
    assert lexicon.read_phrases(path)[3:] == ["(2) T UW", "AND AE N D", "B"]


def test_spellings_are_those_of_the_tokens(tmp_path: Path) -> None:
    pieces = train_sentence_pieces(["new york", "york new"] * 3, tmp_path / "m.model", 9, "bpe")
    assert lexicon.spellings(["york", "new york"], pieces, "x") == {"new york": "new york", "york": "york"}
    assert lexicon.spellings(["b a", "b"], Characters("ab "), "x") == {"b": "b", "b a": "b a"}
    parts = lexicon.word_parts(pieces)
    assert [part.begins for part in parts] == [symbol.startswith("\u2581") for symbol in pieces.symbols]
