"""The verb `ngram`: from transcripts or text to an ARPA file that belongs to the tokens."""

import gzip
import os
from pathlib import Path

import kenlm_cases
import pytest
import tiny
from console import Las

from las.cli.language_model import ngram
from las.data.tokenizers import Phones
from las.lm import arpa, kneser_ney, loading


def write(path: Path, sentences: list[list[str]]) -> Path:
    text = "".join(" ".join(sentence) + "\n" for sentence in sentences)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_transcripts_make_a_model_of_the_tokens(corpus: Path, las: Las) -> None:
    answer = las("ngram", *tiny.corpus(corpus), "n=2", f"output={corpus / 'lm.arpa'}").succeeds("│ 5")
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
    first, third = (ngram([*arguments, f"n={order}"]) for order in (1, 3))
    assert len(first["ngrams"]) == 1 and len(third["discounts"]) == 3
    assert third["dev_perplexity"] < first["dev_perplexity"] == first["dev_perplexity_of_known"]


def test_a_text_can_be_spelled_in_the_tokens_of_a_corpus(corpus: Path, las: Las) -> None:
    text = write(corpus / "text", [["aa", "iy"], [], ["iy", "aa", "iy"]])
    command = ["ngram", *tiny.corpus(corpus), f"text={text}", "n=2", f"output={corpus / 'lm.arpa'}"]
    answer = las(*command).succeeds(f"{text}: 2 5")
    assert "dev:" not in answer.out
    write(text, [["aa"], ["aa", "hello"]])
    las(*command).fails(3, "'hello' 2) units=words")


def test_transcripts_that_cannot_be_used_are_counted(corpus: Path, las: Las) -> None:
    (tiny.wav(corpus, "ftr0_sx3").with_suffix(".PHN")).write_text("0 2400 aa\n2400 4800 q\n")
    las("ngram", *tiny.corpus(corpus), "n=2", "units=words", f"output={corpus / 'lm.arpa'}").succeeds("8 29")


TEXTS = {
    "latin1.txt": ("a\nä\n".encode("latin1"), "latin1.txt:2: UTF-8"),
    "cut.gz": (gzip.compress(b"a b c\n" * 100)[:-12], "cut.gz: gzip"),
    "empty.txt": (b"\n \n", "empty.txt:"),
    "marked.txt": (b"<s> a </s>\n", "1: <s>"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_are_none_are_named(name: str, tmp_path: Path, las: Las) -> None:
    content, words = TEXTS[name]
    given = ["ngram", "units=words", f"text={tmp_path / name}", f"output={tmp_path / 'x'}"]
    las(*given).fails(3, f"{name}:")
    (tmp_path / name).write_bytes(content)
    las(*given).fails(3, words)
    assert not (tmp_path / "x").exists()


def test_a_mark_is_no_letter_and_a_fifo_is_refused(tmp_path: Path, las: Las) -> None:
    os.mkfifo(tmp_path / "pipe")
    las("ngram", "units=words", f"text={tmp_path / 'pipe'}", f"output={tmp_path / 'x.arpa'}").fails(3, "pipe: FIFO,")
    (tmp_path / "text").write_bytes("one two\none\n".encode("utf-8-sig"))
    assert las("ngram", "units=words", f"text={tmp_path / 'text'}", f"output={tmp_path / 'x.arpa'}").code == 0
    words = arpa.read(tmp_path / "x.arpa").words
    (tmp_path / "y.arpa").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "x.arpa").read_bytes())
    assert arpa.read(tmp_path / "y.arpa").words == words and "one" in words
