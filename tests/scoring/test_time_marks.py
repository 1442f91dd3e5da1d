"""Time marks (.stm, .ctm): reading, writing, and what is refused."""

import re
from pathlib import Path

import nist
import pytest

from las.runtime.errors import DataError
from las.scoring import ctm, stm
from las.scoring.ctm import CTMWord
from las.scoring.stm import Segment


def written(tmp_path: Path, name: str, text: str) -> Path:
    (tmp_path / name).write_text(text, "utf-8")
    return tmp_path / name


def test_segments_have_fields_labels_and_text(tmp_path: Path) -> None:
    text = ";; a comment\n f1\tA spk 0.5 2 <O,wa>  i've { um / uh }  (yes) \n\nf1 B x .5 1.25\nf1 B s .1 1 a\n"
    assert stm.read(written(tmp_path, "x.stm", text)) == [
        Segment("f1", "A", "spk", 0.5, 2.0, ("O", "wa"), "i've { um / uh }  (yes)"),
        Segment("f1", "B", "x", 0.5, 1.25, (), ""),
        Segment("f1", "B", "s", 0.1, 1.0, (), "a"),
    ]


def test_words_have_fields_confidences_and_tags(tmp_path: Path) -> None:
    text = ";; comment\n f1 A 0.5 .25 Yes 0.75\nf1 A 1 0 no NA lex spk\nf1 A * * <ALT_BEGIN>\nf1 A 2 1 a -1e-3\n"
    words = ctm.read(written(tmp_path, "x.ctm", f"{text}f1 A * * <alt>\nf1 A * * <ALT_END>\n"))
    assert words[:2] == [CTMWord("f1", "A", 0.5, 0.25, "Yes", 0.75), CTMWord("f1", "A", 1.0, 0.0, "no", None)]
    assert [word.tag for word in words] == [None, None, "<ALT_BEGIN>", None, "<ALT>", "<ALT_END>"]
    assert words[3].confidence == -0.001
    assert ctm.read(written(tmp_path, "x.ctm", ";; nothing\n")) == []


BAD_SEGMENTS = {
    "f A spk 0.5": "4 fields",
    "f A spk start 2 yes": "begin time 'start'",
    "f A spk 1 -2 yes": "end time '-2'",
    "f A spk 1 nan yes": "end time 'nan'",
    "f A spk 2 1.5 yes": "1.5 s.*2 s",
    "f A spk 2 2 yes": "not after",
    "f A spk 1 2 <O, WA> yes": "labels '<O,'",
}
BAD_WORDS = {
    "f A 0.5 0.5": "4 fields",
    "f A 0.5 0.5 a 1 lex spk more": "9 fields",
    "f A start 0.5 a": "begin 'start'",
    "f A 0.5 -1 a": "duration '-1'",
    "f A * * a": r"begin '\*'",
    "f A 0.5 1 a high": "confidence 'high'",
    "f A 0.5 1 a nan": "confidence 'nan'",
    "f A * * <ALT_END>": "none is open",
    "f A * * <ALT>": "none is open",
    "f A * * <ALTERNATIVE>": "no tag",
    "f A * * <ALT_BEGIN>\nf A 1 1 a": "without <ALT_END>",
    "f A * * <ALT_BEGIN>\nf B * * <ALT_END>": "without <ALT_END>",
    "f A * * <ALT_BEGIN>\nf A * * <ALT_BEGIN>": "one is already",
    "f A * * <ALT_BEGIN>\nf A * * <ALT>\nf A 1 1 b\nf A * * <ALT_END>": "right after <ALT_BEGIN>",
    "f A * * <ALT_BEGIN>\nf A * * <ALT_END>": "right after <ALT_BEGIN>",
}
BAD = [*(("x.stm", *each) for each in BAD_SEGMENTS.items()), *(("x.ctm", *each) for each in BAD_WORDS.items())]


@pytest.mark.parametrize(("name", "line", "says"), BAD)
def test_a_bad_line_is_named(tmp_path: Path, name: str, line: str, says: str) -> None:
    """Also alternatives that sclite would misread, at the tag that does not belong where it stands."""
    start, read = ("f A s 0 1 yes\n\n", stm.read) if name == "x.stm" else ("f A 0 0.5 yes\n\n", ctm.read)
    number = 4 if re.search("already|right after", says) else 3
    with pytest.raises(DataError, match=rf"x\.{name[2:]}:{number}: .*{says}"):
        read(written(tmp_path, name, f"{start}{line}\n"))


def test_a_file_without_segments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no segments"):
        stm.read(written(tmp_path, "x.stm", ";; nothing\n"))


def test_segments_that_are_not_scored() -> None:
    texts = {stm.IGNORED: True, f"some {stm.IGNORED.lower()} words": True}
    texts |= {"IGNORETIMESEGMENTINSCORING": True, "IGNORE TIME SEGMENT IN SCORING": False}
    for text, ignored in texts.items():
        assert Segment("f", "A", "s", 0.0, 1.0, (), text).ignored is ignored


def test_what_is_written_reads_back_as_it_was(tmp_path: Path) -> None:
    segments = [
        Segment("f1", "A", "spk", 0.1 + 0.2, 12345.678, ("O",), "{ a / b } (c)"),
        Segment("f2", "B", "spk", 0.00001, 1e7, (), ""),
    ]
    nist.write_stm(tmp_path / "x.stm", segments)
    assert stm.read(tmp_path / "x.stm") == segments
    begin, middle, end = [CTMWord("f", "A", 0.0, 0.0, tag) for tag in (ctm.BEGIN, ctm.OR, ctm.END)]
    plain = CTMWord("f", "A", 0.1 + 0.2, 0.00001, "a")
    words = [plain, begin, CTMWord("f", "A", 1e6, 0.5, "b-", -0.25), middle, CTMWord("f", "A", 3.0, 0.0, "c"), end]
    path = written(tmp_path, "x.ctm", ctm.text(words))
    assert ctm.read(path) == words and "f A * * <ALT>\n" in path.read_text()
