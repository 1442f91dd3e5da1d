"""Text files that others wrote: encodings, numbered lines, strict numbers, and what is no file of text."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from las.cli import main
from las.data import manifest
from las.data.corpora import isip_transcripts, timit
from las.data.manifest import Utterance
from las.data.sources import formats
from las.data.sources.base import ReadingOptions
from las.hmm import imported, lexicon, textgrid
from las.hmm.topology import Topology
from las.lm import arpa
from las.lm import lexicon as lm_lexicon
from las.runtime.errors import DataError
from las.scoring import ctm, stm, transcript_files
from las.scoring.glm import Glm
from las.storage import text_files
from las.training.tasks import text as text_task

MARKED = ("utf-8-sig", "utf-16", "utf-32")  # Python writes a mark with each
FAR = ("1e308", "9" * 300)
"""Numbers, but none of seconds, channels or probabilities."""
LONG = ("9" * 400, "9" * 5000, "1e400", "-1e400", "0." + "0" * 5000 + "_1", "1_0", "\u0663", "nan", "inf", "0x10", "1e")


def read_source(path: Path) -> object:
    return formats.read(path, None, ReadingOptions({}, None))


def read_pdf_map(path: Path) -> object:
    return imported.pdf_map(path, Topology(["SIL"], ["SIL"]))


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "t.csv": ("audio,text,start\na.wav,one,{}\n", read_source),
    "u.csv": ("audio,text,channel\na.wav,one,{}\n", read_source),
    "t.tsv": ("audio\ttext\tend\na.wav\tone\t{}\n", read_source),
    "t.jsonl": ('{{"audio": "a.wav", "text": "one", "duration": "{}"}}\n', read_source),
    "u.jsonl": ('{{"audio": "a.wav", "text": "one", "duration": {}}}\n', read_source),
    "own.jsonl": (
        '{{"id": "a", "audio": "a.wav", "channel": {}, "start_s": 0, "duration_s": 1, "text": "", "speaker": ""}}\n',
        read_source,
    ),
    "kaldi/segments": ("a a 0 {}\n", lambda path: read_source(path.parent)),
    "x.TextGrid": ('"ooTextFile"\n"TextGrid"\n0 1 <exists> 1 "IntervalTier" "a" 0 1 1 0 {} "b"\n', textgrid.read),
    "y.TextGrid": ('"ooTextFile"\n"TextGrid"\n0 1 <exists> 1 "IntervalTier" "a" 0 1 {} 0 1 "b"\n', textgrid.read),
    "x.dic": ("A {} AH\n", lexicon.read),
    "ali.txt": ("u1 4 {}\n", lambda path: imported.pdfs(path)),
    "map.txt": ("{} SIL 0\n", read_pdf_map),
    "x.ctm": ("a 1 0 {} word\n", ctm.read),
    "y.ctm": ("a 1 0 1 word {}\n", ctm.read),
    "x.stm": ("a 1 ann 0 {} word\n", stm.read),
    "isip.text": ("sw2001A-ms98-a-0001 0 {} word\n", isip_transcripts.read),
    "x.phn": ("0 {} sh\n", timit.read_phones),
    "x.arpa": ("\\data\\\nngram 1={}\n\\1-grams:\n-1 <s>\n\\end\\\n", arpa.read),
    "y.arpa": ("\\data\\\nngram 1=2\n\\1-grams:\n{} <s>\n-1 </s>\n\\end\\\n", arpa.read),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("number", [*LONG, *FAR])
def test_numbers_that_are_none_are_named_by_every_reader(name: str, number: str, tmp_path: Path) -> None:
    content, read = READERS[name]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if name == "kaldi/segments":
        (tmp_path / "kaldi/wav.scp").write_text("a a.wav\n")
        (tmp_path / "kaldi/text").write_text("a one\n")
    path.write_text(content.format(number), "utf-8")
    is_phone = name == "x.dic" and number in ("\u0663", "0x10", "1e")
    if is_phone or (name == "y.ctm" and number in FAR):
        return
    with pytest.raises(DataError, match=path.name.replace(".", r"\.")):
        read(path)


def test_numbers_have_one_notation() -> None:
    for text, value in (("17", 17.0), ("-0.5", -0.5), (".5", 0.5), ("1e-3", 0.001), ("+2.", 2.0)):
        assert text_files.number(text) == value
    for text in (*LONG, "", " 1", "1 ", "1,5", "--1"):
        with pytest.raises(ValueError, match="not a number"):
            text_files.number(text)
        assert not text_files.is_integer(text)
    assert text_files.seconds("0.25") == 0.25
    for text in ("-0.25", "1e10"):
        with pytest.raises(ValueError, match=rf"'{text}' .*1e\+09 seconds"):
            text_files.seconds(text)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 10**18 - 1))
def test_what_python_writes_is_read(value: float, whole: int) -> None:
    assert text_files.number(repr(value)) == value
    assert text_files.number(repr(np.float64(value).item())) == value
    assert text_files.is_integer(str(whole)) and not text_files.is_integer(f"-{whole}")


@pytest.mark.parametrize("encoding", MARKED)
def test_marks_say_the_encoding_and_are_no_letters(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes("schön\r\n\n \t\ntwo\u2028half \n".encode(encoding))
    assert list(text_files.lines(path)) == [(1, "schön"), (4, "two\u2028half")]
    path.write_bytes("[".encode(encoding) + b"\xff\xff\xff")
    with pytest.raises(DataError, match=r"x\.txt:1: not UTF-8|UTF-(16|32) .*damaged at offset"):
        text_files.read(path)


GRID = textgrid.text({"ä": [textgrid.Interval(0.0, 1.0, "ß")]}, 1.0)
ARPA = "\\data\\\nngram 1=2\n\n\\1-grams:\n-1 <s>\n-1 </s>\n\\end\\\n"
UTTERANCE = Utterance("u1", "a.wav", 0, 0.0, 1.0, "a", "")
MANIFEST = json.dumps(dataclasses.asdict(UTTERANCE) | {"alignment": []}) + "\n"
PAST_A_MARK = [
    (MARKED, "x.TextGrid", GRID, lambda path: textgrid.read(path).keys() == {"ä"}),
    (MARKED, "x.trn", "a b (u-1)\n", lambda path: transcript_files.read(path)["u-1"].text == "a b"),
    (MARKED, "x.ctm", "a 1 0 1 word\n", lambda path: ctm.read(path)[0].file == "a"),
    (MARKED, "x.stm", "a 1 ann 0 1 word\n", lambda path: stm.read(path)[0].file == "a"),
    (MARKED, "x.glm", ';;\n* name "x"\nA => B\n', lambda path: Glm.read(path).reference.rules[0].source == "A"),
    (MARKED, "x.dic", "A AH\n", lambda path: lexicon.read(path).entries.keys() == {"A"}),
    (MARKED, "x.phn", "0 160 sh\n", lambda path: timit.read_phones(path)[0].symbol == "sh"),
    # Files that are large or read line by line.
    (MARKED[:1], "isip.text", "sw2001A-ms98-a-0001 0 1 a\n", lambda path: isip_transcripts.read(path)[0].text == "a"),
    (MARKED[:1], "x.arpa", ARPA, lambda path: arpa.read(path).order == 1),
    (MARKED[:1], "x.txt", "a b\n", lambda path: list(text_task.lines(path)) == [(1, "a b")]),
    (MARKED[:1], "names.txt", "GO ON\n", lambda path: lm_lexicon.read_phrases(path) == ["GO ON"]),
    (MARKED[:1], "ali.txt", "u1 4 4\n", lambda path: imported.pdfs(path).keys() == {"u1"}),
    (MARKED[:1], "m.jsonl", MANIFEST, lambda path: manifest.read(path) == [UTTERANCE]),
]


@pytest.mark.parametrize(("encodings", "name", "content", "is_read"), PAST_A_MARK)
def test_every_reader_reads_past_a_mark(encodings, name, content, is_read, tmp_path: Path) -> None:
    for encoding in encodings:
        (tmp_path / name).write_bytes(content.encode(encoding))
        assert is_read(tmp_path / name), encoding


def test_the_mark_of_utf_8_is_no_letter_of_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def option(name: str, content: str, encoding: str = "utf-8-sig") -> Path:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding)
        return tmp_path / name

    option("cell/mine.yaml", "# My cell.\n_target_: las.PlainLSTMCell\n")
    own = f"--config-dir={tmp_path}"
    assert main.main(["list", own, "cell"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("mine "))
    assert line.split(maxsplit=1)[1] == "My cell."
    assert main.main(["train", own, "cell@model.listener.cell=mine", "--cfg=job"]) == 0
    # Hydra reads the header of an option by itself, and would put the keys under `experiment`.
    path = option("experiment/mine.yaml", "# @package _global_\nseed: 77\n")
    assert main.main(["train", own, "+experiment=mine", "--cfg=job"]) == 2
    assert f"{path}: it begins" in capsys.readouterr().err


@pytest.mark.parametrize(
    "read", [text_files.read, textgrid.read, Glm.read, stm.read, isip_transcripts.read, read_source, arpa.read]
)
def test_a_fifo_is_refused_unread(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    (tmp_path / "endless.csv").symlink_to("/dev/zero")
    for name, kind in (("x.csv", "a FIFO"), ("endless.csv", "a device")):
        with pytest.raises(DataError, match=rf"{name}: .*{kind}, not a regular"):
            read(tmp_path / name)
