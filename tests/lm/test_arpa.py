"""ARPA files: what is written is read again, what other programs write is read, and every bad line is named."""

import gzip
from pathlib import Path

import kenlm_cases
import numpy as np
import pytest
from kenlm_cases import SMALL

from las.lm import arpa, kneser_ney


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "lm.arpa"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def same(first: arpa.Model, second: arpa.Model) -> bool:
    pairs = zip(first.ngrams, second.ngrams, strict=True)
    return first.words == second.words and all(
        np.array_equal(a, b) for x, y in pairs for a, b in zip(x, y, strict=True)
    )


@pytest.mark.parametrize("name", ["lm.arpa", "lm.arpa.gz"])
def test_a_model_survives_writing_and_reading(name: str, tmp_path: Path) -> None:
    model = kneser_ney.estimate(kenlm_cases.text("words"), 4, ["ə", "▁a", "<space>", "\\end", "-1.5"]).model
    arpa.write(tmp_path / name, model)
    first = arpa.read(tmp_path / name)
    assert first.words == model.words
    for own, other in zip(model.ngrams, first.ngrams, strict=True):
        assert np.array_equal(own.contexts, other.contexts) and np.array_equal(own.words, other.words)
        assert np.allclose(own.log10_probs, other.log10_probs, rtol=1e-6)
        assert np.allclose(own.log10_backoffs, other.log10_backoffs, rtol=1e-6)
    arpa.write(tmp_path / f"again.{name}", first)
    assert (tmp_path / f"again.{name}").read_bytes() == (tmp_path / name).read_bytes()
    assert same(arpa.read(tmp_path / f"again.{name}"), first)


def test_a_file_as_it_may_be(tmp_path: Path) -> None:
    model = arpa.read(written(tmp_path, SMALL))
    assert model.words == ("</s>", "<s>", "a", "<unk>")
    assert model.order == 3 and model.log10_end == -1.5
    assert model.ngrams[0].log10_backoffs.tolist() == [0, -0.5, -0.25, 0]
    # Sorted by context and last word: <s> a, a </s>, a a.
    assert model.ngrams[1].contexts.tolist() == [1, 2, 2]
    assert model.ngrams[1].words.tolist() == [2, 0, 2]
    assert model.ngrams[1].log10_probs.tolist() == [-0.4, -0.6, -0.2]
    assert model.ngrams[2].contexts.tolist() == [0]


@pytest.mark.parametrize(
    "text",
    [
        SMALL.replace("\n", "\r\n"),
        "\n# made by somebody\n\n" + SMALL.replace("\t", "  ") + "\n\n",
        SMALL.replace("\n\n", "\n"),
        SMALL.replace("<unk>", "<UNK>"),
        SMALL.replace("ngram 2=3", "ngram 2 = 3"),
        SMALL.replace("<s> a a", "<s> a a\t0"),
        gzip.compress(SMALL.encode()),
    ],
    ids=[
        "crlf",
        "comments",
        "no blank lines",
        "UNK",
        "blanks in counts",
        "highest back-off 0",
        "gzip without its name",
    ],
)
def test_files_of_other_programs_are_read(text: str | bytes, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    assert same(arpa.read(written(tmp_path, text)), arpa.read(written(tmp_path / "small", SMALL)))


def test_unknown_words_get_what_kenlm_gives_them_where_a_file_does_not_say_it(tmp_path: Path) -> None:
    text = SMALL.replace("-0.7\t<unk>\n", "").replace("ngram 1=4", "ngram 1=3")
    model = arpa.read(written(tmp_path, text))
    assert model.words[-1] == "<unk>" and model.ngrams[0].log10_probs[-1] == -100
