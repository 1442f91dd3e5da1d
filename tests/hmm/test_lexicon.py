"""Dictionaries of CMU, Sphinx and Kaldi; words that they lack."""

from pathlib import Path

import pytest

from las.hmm import lexicon
from las.hmm.lexicon import Pronunciation

CMU = ";;; a comment\nREAD  R IY1 D\nREAD(1)  R EH1 D\nAALBORG AO1 L B AO0 R G # place, danish\n"
SPHINX = "A\tAH\nA(2)\tEY\nAND AE N D\n"
KALDI = "<SIL> SIL\nread r iy d\nread r eh d\n"
KALDI_PROBABILITIES = "read 1.0 r iy d\nread 0.25 r eh d\na 1 ah\n"


def made(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "words.dic"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "word", "expected"),
    [
        (CMU, "READ", [("R IY1 D", 1.0), ("R EH1 D", 1.0)]),
        (CMU, "AALBORG", [("AO1 L B AO0 R G", 1.0)]),
        (SPHINX, "A", [("AH", 1.0), ("EY", 1.0)]),
        (KALDI, "read", [("r iy d", 1.0), ("r eh d", 1.0)]),
        (KALDI_PROBABILITIES, "read", [("r iy d", 1.0), ("r eh d", 0.25)]),
    ],
)
def test_every_format_is_read(tmp_path: Path, text: str, word: str, expected: list[tuple[str, float]]) -> None:
    read = lexicon.read(made(tmp_path, text))
    assert read.entries[word] == tuple(Pronunciation(tuple(phones.split()), share) for phones, share in expected)
    assert read.phones[0] == "SIL" and list(read.phones[1:]) == sorted(read.phones[1:])


def test_missing_words_have_counts_and_the_nearest(tmp_path: Path) -> None:
    known = lexicon.read(made(tmp_path, "HELLO HH AH L OW\nHALO HH EY L OW\nWORLD W ER L D\nHELP HH EH L P\n"))
    missing = known.missing([("u1", ["HELLO", "zoo"]), ("u2", ["hello", "world", "hello"])])
    assert [(each.word, each.occurrences, each.utterance_id) for each in missing] == [
        ("hello", 2, "u2"),
        ("zoo", 1, "u1"),
        ("world", 1, "u2"),
    ]
    assert missing[0].nearest[0] == "HELLO" and len(missing[0].nearest) == 3
    assert all(part in lexicon.describe(missing)[0] for part in ("hello (2 times", "u2", "Nearest: HELLO, "))
    many = [missing[0]] * 30
    assert lexicon.describe(many)[-1] == "  ... and 10 more words"
