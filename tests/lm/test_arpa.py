"""ARPA files: what is written is read again, what other programs write is read, and every bad line is named."""

import gzip
from pathlib import Path

import kenlm_cases
import numpy as np
import pytest

from las.lm import arpa, kneser_ney
from las.runtime.errors import DataError

SMALL = """\\data\\
ngram 1=4
ngram 2=3
ngram 3=1

\\1-grams:
-1.5\t</s>
-99\t<s>\t-0.5
-0.3\ta\t-0.25
-0.7\t<unk>

\\2-grams:
-0.4\t<s> a\t-0.125
-0.2\ta a
-0.6\ta </s>

\\3-grams:
-0.1\t<s> a a

\\end\\
"""


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


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("\\data\\", "\\daat\\", r":1: an ARPA file begins with \\data\\, and this one with '\\\\daat"),
        ("ngram 2=3", "ngram 3=3", ":3: expected `ngram 2=` and a number, found 'ngram 3=3'"),
        ("ngram 1=4", "ngram 1=x", ":2: expected `ngram 1=` and a number"),
        ("ngram 1=4\nngram 2=3\nngram 3=1\n", "", ":3: expected `ngram 1=` and a number"),
        ("ngram 2=3", "ngram 2=4", ":12: the head announces 4 2-grams, but here are 3"),
        ("\\2-grams:", "\\3-grams:", r":12: expected \\2-grams:, found '\\\\3-grams:'"),
        ("\\end\\", "\\ende\\", r":20: expected \\end\\, found '\\\\ende"),
        ("\\end\\", "", ":20: the file ends early"),
        ("-0.2\ta a", "-0.2", ":14: expected a log10 probability, 2 words and perhaps .*, found '-0.2'"),
        ("-0.2\ta a", "-0.2\ta a a a", ":14: expected a log10 probability, 2 words"),
        ("-0.3\ta\t-0.25", "-0.3 a b -0.25", ":9: expected a log10 probability, a word and perhaps"),
        ("-0.2\ta a", "-0.2x\ta a", ":14: expected numbers before and after the words, found '-0.2x"),
        ("-0.2\ta a", "-0.2\ta a\tx", ":14: expected numbers"),
        ("-0.2\ta a", "-0.2\ta b", ":14: the word 'b' is not among the 1-grams"),
        ("-0.2\ta a", "0.2\ta a", ":14: the log10 probability 0.2 must be finite and not above 0"),
        ("-0.2\ta a", "nan\ta a", ":14: the log10 probability nan must be finite"),
        ("-0.2\ta a", "-inf\ta a", ":14: the log10 probability -inf must be finite"),
        ("-0.2\ta a", "-0.2\ta a\tinf", ":14: .* the log10 back-off inf finite"),
        ("<s> a a", "<s> a a\t-0.5", ":18: .* 0 at the highest order"),
        ("-0.2\ta a", "-0.2\ta </s>", ":15: this 2-gram is already on line 14"),
        ("-0.7\t<unk>", "-0.7\ta", ":10: the word 'a' is there twice"),
        ("<s> a a", "a <unk> a", ":18: its context 'a <unk>' is not among the 2-grams"),
        ("</s>", "<eos>", ":6: there is no </s> among the 1-grams: no sentence can be scored. Did you mean <eos>"),
        ("<s>", "<bos>", ":6: there is no <s> among the 1-grams"),
    ],
)
def test_every_bad_line_is_named(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert old in SMALL
    path = written(tmp_path, SMALL.replace(old, new))
    with pytest.raises(DataError, match=f"^{path}{says}"):
        arpa.read(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        arpa.read(tmp_path / "missing.arpa")
    with pytest.raises(DataError, match=":0: the file ends early"):
        arpa.read(written(tmp_path, ""))
    with pytest.raises(DataError, match=":9: not UTF-8 text"):
        arpa.read(
            written(
                tmp_path,
                SMALL.replace("a", "ä").encode("latin1").replace(b"d\xe4t\xe4", b"data").replace(b"gr\xe4m", b"gram"),
            )
        )
    packed = gzip.compress(SMALL.encode())
    with pytest.raises(DataError, match="gzip file is damaged"):
        arpa.read(written(tmp_path, packed[:-20]))
    with pytest.raises(DataError, match="gzip file is damaged"):
        arpa.read(written(tmp_path, packed[:30] + bytes([packed[30] ^ 255]) + packed[31:]))
