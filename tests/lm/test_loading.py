"""Language models from files, KenLM's binary ones where it is installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from las.data.tokenizers import Characters
from las.lm import arpa, kneser_ney, loading
from las.lm.kenlm import MAGIC, KenLM
from las.lm.ngram import NGram
from las.runtime.errors import ConfigError, DataError

TOKENS = Characters(" abc")
TEXT = [list(line.replace(" ", "_")) for line in ("ab ba", "abc", "c a", "bab aba", "", "ca ca ca")]
TEXT = [["<space>" if symbol == "_" else symbol for symbol in line] for line in TEXT]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    arpa.write(tmp_path / "lm.arpa.gz", kneser_ney.estimate(TEXT, 4).model)
    arpa.write(tmp_path / "lm.arpa", kneser_ney.estimate(TEXT, 4).model)
    return tmp_path / "lm.arpa"


def test_an_arpa_file_makes_the_own_scorer(path: Path) -> None:
    for each in (path, path.with_suffix(".arpa.gz")):
        lm = loading.load(each, TOKENS)
        assert isinstance(lm, NGram) and lm.order == 4
        assert lm.score(lm.start(2)).shape == (2, 1, TOKENS.size)


def test_what_does_not_fit_or_cannot_be_read_is_named(path: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^{path}: the language model has 1 words that the tokens lack: 'c'"):
        loading.load(path, Characters(" ab"))
    with pytest.raises(DataError, match=r"none.arpa: the language model cannot be read \(No such file"):
        loading.load(tmp_path / "none.arpa", TOKENS)


def test_binary_files_need_kenlm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)
    (tmp_path / "lm.bin").write_bytes(MAGIC + b"http://kheafield.com/code format version 5\n")
    with pytest.raises(ConfigError, match=r"lm.bin: KenLM is not installed.*pip install kenlm.*Or give the ARPA file"):
        loading.load(tmp_path / "lm.bin", TOKENS)


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
    with pytest.raises(DataError, match=r"lm.bin: the language model lacks 1 of the 6 symbols of the tokens: 'd'"):
        loading.load(path.with_suffix(".bin"), Characters(" abcd"))
