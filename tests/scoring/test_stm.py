"""Segment time marks: reading, what is refused and what NIST's validator objects to."""

import re
from pathlib import Path

import nist
import pytest

from las.runtime.errors import DataError
from las.scoring import stm
from las.scoring.stm import Segment


def read(tmp_path: Path, text: str) -> list[Segment]:
    path = tmp_path / "reference.stm"
    path.write_text(text, "utf-8")
    return stm.read(path)


def test_fields_labels_and_text(tmp_path: Path) -> None:
    segments = read(tmp_path, ";; a comment\n f1\tA spk 0.5 2 <O,wa>  i've { um / uh }  (yes) \n\nf1 B x .5 1.25\n")
    assert segments == [
        Segment("f1", "A", "spk", 0.5, 2.0, ("O", "wa"), "i've { um / uh }  (yes)"),
        Segment("f1", "B", "x", 0.5, 1.25, (), ""),
    ]


def test_overlapping_and_unsorted_segments_are_fine(tmp_path: Path) -> None:
    assert len(read(tmp_path, "f A s 5 9 a\nf A s 1 6 b\n")) == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("f A spk 0.5", "4 fields where at least 5 belong"),
        ("f A spk start 2 yes", "the begin time 'start' is not a number"),
        ("f A spk 1 -2 yes", "the end time '-2' is not a number"),
        ("f A spk 1 nan yes", "the end time 'nan' is not a number"),
        ("f A spk 2 1.5 yes", "ends at 1.5 s, which is not after its begin at 2 s"),
        ("f A spk 2 2 yes", "not after its begin"),
        ("f A spk 1 2 <O, WA> yes", "labels '<O,' do not end in '>'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    with pytest.raises(DataError, match=rf"reference\.stm:3: .*{re.escape(reason)}"):
        read(tmp_path, f"f A spk 0 1 yes\n\n{line}\n")


def test_a_file_without_segments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no segments"):
        read(tmp_path, ";; nothing\n")


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        (stm.IGNORED, True),
        (f"some {stm.IGNORED.lower()} words", True),
        ("IGNORETIMESEGMENTINSCORING", True),
        ("IGNORE TIME SEGMENT IN SCORING", False),
    ],
)
def test_segments_that_are_not_scored(text: str, ignored: bool) -> None:
    assert Segment("f", "A", "s", 0.0, 1.0, (), text).ignored is ignored


def test_written_segments_read_back_as_they_were(tmp_path: Path) -> None:
    segments = [
        Segment("f1", "A", "spk", 0.1 + 0.2, 12345.678, ("O",), "{ a / b } (c)"),
        Segment("f2", "B", "spk", 0.00001, 1e7, (), ""),
        Segment("f2", "B", "spk", 1.0, 2.0, (), stm.IGNORED),
    ]
    nist.write_stm(tmp_path / "x.stm", segments)
    assert stm.read(tmp_path / "x.stm") == segments
    assert "e-05" not in (tmp_path / "x.stm").read_text()


BAD_TOKENS = ["JAV=A", "WI*LL", "*RULES", "T)HE", "(USER", "F-)"]


def test_the_validator_suite_of_nist(shared_data: Path) -> None:
    suite = shared_data / "sctk_tests/src/stmValidator/test_suite"
    assert stm.problems(suite / "test01.stm") == []
    found = stm.problems(suite / "test02.stm")
    assert [problem.split("'")[1] for problem in found] == BAD_TOKENS
    assert [int(problem.split(":")[1]) for problem in found] == [3, 3, 3, 3, 4, 4]


TOKENS = re.findall(
    r"\S+",
    "yes well-known UH-huh a. U.S. b.'s t.s frag- -frag (opt) (opt-) (a.'s) don't he's dogs' o'clock d'etre x'y "
    "%hesitation (%HESITATION) %bcack %noise { / } @ {um um} 90 caf\u00e9 a--b (yes'd) (it's (b-c) <noise> ;;x a_b",
)


def test_tokens_are_judged_as_by_nist(tmp_path: Path) -> None:
    path = tmp_path / "x.stm"
    path.write_text("".join(f"f A s {n} {n + 1} a {token}\n" for n, token in enumerate(TOKENS)), "utf-8")
    wanted = re.findall(r"Unrecognized token English -(.*)-", nist.run("stmValidator.pl", "-i", str(path)))
    assert [problem.split(": ")[1].split(" is not")[0][1:-1] for problem in stm.problems(path)] == wanted
