"""The verb `ngram`: from transcripts or text to an ARPA file that belongs to the tokens."""

import gzip
import os
from pathlib import Path

import kenlm_cases
import pytest
import tiny
from console import Las
from tiers import rest_slow

from las.cli import ngram
from las.data.tokenizers import Phones
from las.lm import arpa, kneser_ney, loading


def timit(root: Path) -> list[str]:
    return ["corpus=timit", f"corpus.root={root / 'TIMIT'}", "corpus.partial=true", f"data_dir={root / 'data'}"]


def write(path: Path, sentences: list[list[str]]) -> Path:
    text = "".join(" ".join(sentence) + "\n" for sentence in sentences)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_transcripts_make_a_model_of_the_tokens(corpus: Path, las: Las) -> None:
    answer = las("ngram", *timit(corpus), "n=2", f"output={corpus / 'lm.arpa'}")
    answer.succeeds("│ 5")
    answer.succeeds("timit: 8 32 dev: 10")
    tokens = Phones(phone_set=48)
    scorer = loading.load(corpus / "lm.arpa", tokens)
    assert scorer.score(scorer.start(1)).shape == (1, 1, tokens.size)
    # Phones that were never seen are in it: the model belongs to the tokens, and not to this text.
    assert set(tokens.symbols) < set(arpa.read(corpus / "lm.arpa").words)


def test_a_text_makes_a_model_of_words(tmp_path: Path, las: Las) -> None:
    text = write(tmp_path / "my text.txt.gz", kenlm_cases.text("words"))
    dev = write(tmp_path / "dev.txt", [["w1", "w2", "unheard"], ["w3"]])
    answer = las("ngram", f"text={text}", f"dev={dev}", "units=words", f"output={tmp_path / 'out' / 'lm.arpa.gz'}")
    answer.succeeds("dev: 6 0.500* 1 unknown")
    expected = kneser_ney.estimate(kenlm_cases.text("words"), 3).model
    assert [len(part.words) for part in arpa.read(tmp_path / "out" / "lm.arpa.gz").ngrams] == [
        len(part.words) for part in expected.ngrams
    ]


def test_words_of_a_dictionary_count_as_words_seen_zero_times(tmp_path: Path, las: Las) -> None:
    text = write(tmp_path / "text", [["TO", "BE"], ["OR", "NOT", "TO", "BE"]] * 5)
    (tmp_path / "words.dic").write_text("TO T UW\nBE B IY\nTO(2) T AH\nROMEO R OW M IY OW\n")
    arguments = [f"text={text}", f"lexicon={tmp_path / 'words.dic'}", f"output={tmp_path / 'lm'}"]
    las("ngram", *arguments, "units=words", "n=2").succeeds("words.dic: 1 3")
    model = arpa.read(tmp_path / "lm")
    assert set(model.words) == {"<s>", "</s>", "<unk>", "TO", "BE", "OR", "NOT", "ROMEO"}
    probs = dict(zip(model.words, model.ngrams[0].log10_probs, strict=True))
    assert -10 < probs["ROMEO"] == probs["<unk>"] < probs["OR"]
    las("ngram", *arguments).fails(2, "words.dic units=words")


def test_results_are_returned(tmp_path: Path) -> None:
    text = write(tmp_path / "text", kenlm_cases.sentences(1, 500))
    arguments = [f"text={text}", f"dev={text}", "units=words", f"output={tmp_path / 'lm'}"]
    first, third = (ngram.ngram([*arguments, f"n={order}"]) for order in (1, 3))
    assert len(first["ngrams"]) == 1 and len(third["discounts"]) == 3
    assert third["dev_perplexity"] < first["dev_perplexity"] == first["dev_perplexity_of_known"]


def test_a_text_can_be_spelled_in_the_tokens_of_a_corpus(corpus: Path, las: Las) -> None:
    text = write(corpus / "text", [["aa", "iy"], [], ["iy", "aa", "iy"]])
    answer = las("ngram", *timit(corpus), f"text={text}", "n=2", f"output={corpus / 'lm.arpa'}")
    answer.succeeds(f"{text}: 2 5")
    assert "dev:" not in answer.out
    text = write(corpus / "text", [["aa"], ["aa", "hello"]])
    las("ngram", *timit(corpus), f"text={text}", f"output={corpus / 'lm.arpa'}").fails(3, "'hello' 2) units=words")


def test_transcripts_that_cannot_be_used_are_counted(corpus: Path, las: Las) -> None:
    (tiny.wav(corpus, "ftr0_sx3").with_suffix(".PHN")).write_text("0 2400 aa\n2400 4800 q\n")
    las("ngram", *timit(corpus), "n=2", "units=words", f"output={corpus / 'lm.arpa'}").succeeds("8 29")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    rest_slow(
        [
            ("", 2, "output=..."),
            ("output=x n=0", 2, "n=0 1"),
            ("output=x order=4", 2, "order=4: n=4"),
            ("output=x n=two", 2, "n='two'"),
            ("output=x units=letters", 2, "units=letters tokens words"),
            ("output=x unit=words", 2, "'unit' units"),
            ("output=x units=words text=none.txt", 3, "none.txt:"),
            ("output=x units=words text=latin1.txt", 3, "latin1.txt:2: UTF-8"),
            ("output=x units=words text=cut.gz", 3, "cut.gz: gzip"),
            ("output=x units=words text=empty.txt", 3, "empty.txt:"),
            ("output=x units=words text=marked.txt", 3, "1: <s>"),
        ],
        keep=4,
    ),
)
def test_errors_are_for_people(
    arguments: str, code: int, words: str, tmp_path: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin1.txt").write_bytes("a\nä\n".encode("latin1"))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"a b c\n" * 100)[:-12])
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "marked.txt").write_text("<s> a </s>\n")
    las("ngram", *arguments.split()).fails(code, words)
    assert not (tmp_path / "x").exists()


def test_a_mark_is_no_letter_and_a_fifo_is_refused(tmp_path: Path, las: Las) -> None:
    os.mkfifo(tmp_path / "pipe")
    las("ngram", "units=words", f"text={tmp_path / 'pipe'}", f"output={tmp_path / 'x.arpa'}").fails(3, "pipe: FIFO,")
    (tmp_path / "text").write_bytes("one two\none\n".encode("utf-8-sig"))
    assert las("ngram", "units=words", f"text={tmp_path / 'text'}", f"output={tmp_path / 'x.arpa'}").code == 0
    words = arpa.read(tmp_path / "x.arpa").words
    (tmp_path / "y.arpa").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "x.arpa").read_bytes())
    assert arpa.read(tmp_path / "y.arpa").words == words and "one" in words
