"""Word time marks: reading, writing, what is refused and what NIST's validator objects to."""

import re
from pathlib import Path

import nist
import pytest

from las.runtime.errors import DataError
from las.scoring import ctm
from las.scoring.ctm import CTMWord


def read(tmp_path: Path, text: str) -> list[CTMWord]:
    path = tmp_path / "hypothesis.ctm"
    path.write_text(text, "utf-8")
    return ctm.read(path)


def test_fields_confidences_and_tags(tmp_path: Path) -> None:
    text = ";; comment\n f1 A 0.5 .25 Yes 0.75\nf1 A 1 0 no NA lex spk\nf1 A * * <ALT_BEGIN>\nf1 A 2 1 a -1e-3\n"
    words = read(tmp_path, f"{text}f1 A * * <alt>\nf1 A * * <ALT_END>\n")
    assert words[:2] == [CTMWord("f1", "A", 0.5, 0.25, "Yes", 0.75), CTMWord("f1", "A", 1.0, 0.0, "no", None)]
    assert [word.tag for word in words] == [None, None, "<ALT_BEGIN>", None, "<ALT>", "<ALT_END>"]
    assert words[3].confidence == -0.001


def test_a_recogniser_may_have_heard_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, ";; nothing\n") == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("f A 0.5 0.5", "4 fields where 5 to 8 belong"),
        ("f A 0.5 0.5 a 1 lex spk more", "9 fields where 5 to 8 belong"),
        ("f A start 0.5 a", "the begin 'start' is not a number"),
        ("f A 0.5 -1 a", "the duration '-1' is not a number"),
        ("f A * * a", "the begin '*' is not a number"),
        ("f A 0.5 1 a high", "the confidence 'high' is not a number"),
        ("f A 0.5 1 a nan", "the confidence 'nan' is not a number"),
        ("f A * * <ALT_END>", "<ALT_END> where none is open"),
        ("f A * * <ALT>", "<ALT> where none is open"),
        ("f A * * <ALTERNATIVE>", "no tag of alternatives"),
        ("f A * * <ALT_BEGIN>\nf A 1 1 a", "<ALT_BEGIN> without <ALT_END>"),
        ("f A * * <ALT_BEGIN>\nf B * * <ALT_END>", "<ALT_BEGIN> without <ALT_END>"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    with pytest.raises(DataError, match=rf"hypothesis\.ctm:3: .*{re.escape(reason)}"):
        read(tmp_path, f"f A 0 0.5 yes\n\n{line}\n")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["* * <ALT_BEGIN>", "* * <ALT_BEGIN>"], "one is already open"),
        (["* * <ALT_BEGIN>", "* * <ALT>", "1 1 b", "* * <ALT_END>"], "the empty alternative is the word @"),
        (["* * <ALT_BEGIN>", "* * <ALT_END>"], "right after <ALT_BEGIN>"),
    ],
)
def test_alternatives_that_sclite_would_misread_are_named(tmp_path: Path, lines: list[str], reason: str) -> None:
    with pytest.raises(DataError, match=rf"hypothesis\.ctm:2: .*{re.escape(reason)}"):
        read(tmp_path, "".join(f"f A {line}\n" for line in lines))


def test_written_words_read_back_as_they_were(tmp_path: Path) -> None:
    tags = [CTMWord("f", "A", 0.0, 0.0, tag) for tag in (ctm.BEGIN, ctm.OR, ctm.END)]
    plain = [
        CTMWord("f", "A", 0.1 + 0.2, 0.00001, "a"),
        CTMWord("f", "A", 1e6, 0.5, "b-", -0.25),
        CTMWord("f", "A", 3.0, 0.0, "c"),
    ]
    words = [plain[0], tags[0], plain[1], tags[1], plain[2], tags[2]]
    (tmp_path / "x.ctm").write_text(ctm.text(words), "utf-8")
    assert ctm.read(tmp_path / "x.ctm") == words
    assert "f A * * <ALT>\n" in (tmp_path / "x.ctm").read_text()


def test_the_validator_suite_of_nist(shared_data: Path) -> None:
    suite = shared_data / "sctk_tests/src/ctmValidator/test_suite"
    log = (suite / "test00.log.saved").read_text()
    wanted = [int(number) for number in re.findall(r"ERROR: \[line (\d+)\]", log)]
    found = ctm.problems(suite / "test00.ctm")
    assert len(wanted) == 17
    assert [int(problem.split(":")[1]) for problem in found] == wanted


LINES = (
    *("f A 1 2 it's", "f 1 1 2 a. 0.5", "f C 1 2 a", "f A 1. 2 a", "f A .5 2 a", "f A 1 2 90", "f A 1 2 90 1 fp"),
    *(" f A 1 2 a", "f A * 2 <ALT>", "f A * * <ALT>", "f A * * x<ALT>", "f A 1 2 a@b", "f A 1 2 x%bcack"),
    *("f A 1 2 a 1 lex", "f A 1 2 a 1 x", "f A 1 2 a 1 lex s.", "f.x A 1 2 a", "", "f A 1 2 a   "),
    *("f A 1 2 a b c d e", "f A 1 2 b. "),
)


def test_lines_are_judged_as_by_nist(tmp_path: Path) -> None:
    path = tmp_path / "x.ctm"
    path.write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    judged = nist.run("ctmValidator.pl", "-i", str(path))
    wanted = [int(number) for number in re.findall(r"ERROR: \[line (\d+)\]", judged)]
    assert [int(problem.split(":")[1]) for problem in ctm.problems(path)] == wanted
