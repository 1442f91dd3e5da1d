"""Language models, words and tokens that do not fit or cannot be read are named: what is wrong, and where."""

import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from kenlm_cases import SMALL
from refusals import refused

from las.data.tokenizers import Characters, Phones, Tokenizer
from las.lm import arpa, kneser_ney, lexicon, loading, lstm, ngram, vocabulary, word_ngram
from las.lm.loading import MAGIC
from las.nn.cells.lstm import PlainLSTMCell
from las.runtime.errors import ConfigError, DataError, LasError, StorageError

PACKED = gzip.compress(SMALL.encode())
LATIN = SMALL.replace("\ta\t", "\tä\t").encode("latin-1")
CHANGES = [
    ("\\data\\", "\\daat\\", ":1: \\data\\ daat"),
    ("ngram 2=3", "ngram 3=3", ":3: 2= 3=3"),
    ("ngram 1=4", "ngram 1=x", ":2: 1= number"),
    ("ngram 1=4\nngram 2=3\nngram 3=1\n", "", ":3: 1= number"),
    ("ngram 2=3", "ngram 2=4", ":12: 4 2-grams 3"),
    ("\\2-grams:", "\\3-grams:", ":12: \\2-grams: 3-grams:"),
    ("\\end\\", "\\ende\\", ":20: \\end\\ ende"),
    ("\\end\\", "", ":20: early"),
    ("-0.2\ta a", "-0.2", ":14: log10 2 words '-0.2'"),
    ("-0.2\ta a", "-0.2\ta a a a", ":14: log10 2 words"),
    ("-0.3\ta\t-0.25", "-0.3 a b -0.25", ":9: log10 word"),
    ("-0.2\ta a", "-0.2x\ta a", ":14: numbers '-0.2x"),
    ("-0.2\ta a", "-0.2\ta a\tx", ":14: numbers"),
    ("-0.2\ta a", "-0.2\ta b", ":14: 'b' 1-grams"),
    ("-0.2\ta a", "0.2\ta a", ":14: 0.2 above 0"),
    ("-0.2\ta a", "nan\ta a", ":14: nan finite"),
    ("-0.2\ta a", "-inf\ta a", ":14: -inf finite"),
    ("-0.2\ta a", "-0.2\ta a\tinf", ":14: back-off inf"),
    ("<s> a a", "<s> a a\t-0.5", ":18: highest order"),
    ("-0.2\ta a", "-0.2\ta </s>", ":15: 2-gram 14"),
    ("-0.7\t<unk>", "-0.7\ta", ":10: 'a' twice"),
    ("<s> a a", "a <unk> a", ":18: 'a <unk>' 2-grams"),
    ("</s>", "<eos>", ":6: </s> mean <eos>"),
    ("<s>", "<bos>", ":6: <s> 1-grams"),
]


def file(folder: Path, content: str | bytes, name: str = "x.arpa") -> Path:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


def check(words: str, symbols: str, log10_end: float = -1.0) -> None:
    vocabulary.check(words.split(), log10_end, "x.arpa", Characters(symbols))


def neural(tokens: Tokenizer, bias: float = 0.0) -> None:
    model = lstm.LSTMLanguageModel(5, cell=PlainLSTMCell, hidden_size=4, embedding_size=2)
    with torch.no_grad():
        model.output.bias[0] += bias
    lstm.of_tokens(model, Characters(" ABC"), tokens, "runs/lm")


def estimate(sentences: list[list[str]], order: int = 1) -> arpa.Model:
    return kneser_ney.estimate(sentences, order).model


def words(tokens: Tokenizer) -> None:
    word_ngram.WordNGram(word_ngram.uniform(["ab", "b", "abb"], "list"), tokens)


AB = [["a", "b"], ["a"]]
CASES: list[tuple[Callable[[Path], object], type[LasError], str]] = [
    (lambda at: arpa.read(at / "missing.arpa"), DataError, "missing.arpa read"),
    (lambda at: arpa.read(file(at, "")), DataError, ":0: early"),
    (lambda at: arpa.read(file(at, LATIN)), DataError, ":9: UTF-8"),
    (lambda at: arpa.read(file(at, PACKED[:-20])), DataError, "x.arpa gzip damaged"),
    (lambda at: arpa.read(file(at, PACKED[:30] + b"\xff" + PACKED[31:])), DataError, "x.arpa gzip damaged"),
    (lambda at: estimate(AB, 0), ConfigError, "order=0 1"),
    (lambda at: estimate([], 2), DataError, "sentence"),
    (lambda at: estimate(AB, 5), DataError, "2 words 4"),
    (lambda at: estimate([["a"], ["b", "<s>"]]), DataError, "sentence 2 <s>"),
    (lambda at: estimate([["</s>"]]), DataError, "sentence 1 </s>"),
    (lambda at: estimate([["a", "<unk>"]]), DataError, "sentence 1 <unk>"),
    (lambda at: estimate([["a b"]]), DataError, "'a b' blank"),
    (lambda at: estimate([["a", ""]]), DataError, "'' empty"),
    (lambda at: check("</s> a", " ab"), DataError, "x.arpa 2 4 '<space>', 'b'"),
    (lambda at: check("</s> a b c <space>", " ab"), DataError, "x.arpa 1 'c'"),
    (lambda at: check("</s> A b <space>", " ab"), DataError, "1 4 'a' 'A'"),
    (lambda at: check("a b <space> <eos>", " ab"), DataError, "'</s>' '<eos>'"),
    (lambda at: check(" ".join(map(str, range(10, 30))), "a"), DataError, "20 '10' '19' 10 more"),
    (lambda at: check("</s> a", "a", -99.0), DataError, "x.arpa </s>: -99"),
    (lambda at: vocabulary.words_of(Phones(symbols=["a", "<s>"])), DataError, "'<s>' else"),
    (lambda at: vocabulary.words_of(Phones(symbols=["<unk>", "a"])), DataError, "'<unk>' else"),
    (lambda at: vocabulary.words_of(Phones(symbols=[" ", "<space>"])), DataError, "'<space>' else"),
    (lambda at: ngram.of_tokens(estimate(AB), Characters("abd")), DataError, "the text 1 4 'd'"),
    (lambda at: ngram.NGram(estimate(AB), ["</s>", "no", "a", "none"]), DataError, "the text 'no', 'none'"),
    (lambda at: neural(Characters(" ABCD")), DataError, "runs/lm 1 6 'D'"),
    (lambda at: neural(Characters("ABC")), DataError, "runs/lm 1 '<space>'"),
    (lambda at: neural(Characters(" ABC"), bias=-1000.0), DataError, "runs/lm ends"),
    (lambda at: loading.load(file(at, SMALL), Characters("b")), DataError, "x.arpa 1 'a' 'b'"),
    (lambda at: loading.load(at / "none.arpa", Characters("a")), DataError, "none.arpa read No such file"),
    (lambda at: words(Characters("AB ")), DataError, "list 3 'ab' 'a', 'b' other case"),
    (lambda at: words(Characters("xyz")), DataError, "list 3 'ab' 'b' 'abb'"),
    (lambda at: words(Phones(symbols=["\u2581a\u2581b", "ab"])), ConfigError, "\u2581a\u2581b into"),
    (lambda at: lexicon.read(file(at, "")), DataError, "x.arpa words dictionary"),
    (lambda at: lexicon.read(file(at, "\n ;;; only this\n")), DataError, "x.arpa words"),
    (lambda at: lexicon.read(file(at, SMALL)), DataError, "x.arpa ARPA search.word_lm.path="),
    (lambda at: lexicon.read(file(at, b"a\nb\xff\n")), DataError, "x.arpa:2: UTF-8"),
    (lambda at: lexicon.read(at / "none"), DataError, "none read No such file"),
    (lambda at: lexicon.read_phrases(file(at, "")), DataError, "x.arpa phrase"),
]


@pytest.mark.parametrize(("call", "error", "says"), CASES, ids=[case[2] for case in CASES])
def test_what_does_not_fit_is_named(
    call: Callable[[Path], object], error: type[LasError], says: str, tmp_path: Path
) -> None:
    refused("|".join(says.split()), call, tmp_path, kind=error)


@pytest.mark.parametrize(("old", "new", "says"), CHANGES)
def test_every_bad_line_of_an_arpa_file_is_named(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert old in SMALL
    refused("|".join(says.split()), arpa.read, file(tmp_path, SMALL.replace(old, new)))


def test_binary_files_need_kenlm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(ConfigError, match=r"x\.arpa: .*pip install kenlm.* ARPA"):
        loading.load(file(tmp_path, MAGIC + b"http://kheafield.com/code format version 5\n"), Characters("a"))


def test_a_recogniser_is_no_language_model(trained: Path) -> None:
    with pytest.raises(DataError, match=r"recogniser.* las train_lm"):
        loading.load(trained / "run", Characters("a"))
    with pytest.raises(StorageError, match=r"neither .* checkpoint"):
        loading.load(trained, Characters("a"))
