"""Mapping rules: what a file may say, what the rules do, NIST's cases, and random rules against NIST's programs."""

import hashlib
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import mapping_rules
import pytest

from las.runtime.errors import DataError
from las.scoring import ctm, stm
from las.scoring.ctm import CTMWord
from las.scoring.glm import Glm, Rule
from las.scoring.stm import Segment

DATA = "sctk_tests/src"


def read(tmp_path: Path, *rules: str, first: str = ";; rules") -> Glm:
    path = tmp_path / "rules.glm"
    path.write_text("".join(f"{line}\n" for line in (first, *rules)), "utf-8")
    return Glm.read(path)


def test_headers_name_and_hash(tmp_path: Path) -> None:
    glm = read(tmp_path, '* NAME = "the rules"', "* desc: 'of a test'", "* case_sensitive = 'f'", "a => b / c __ d")
    assert (glm.name, glm.reference.description) == ("the rules", "of a test")
    assert glm.sha256 == hashlib.sha256((tmp_path / "rules.glm").read_bytes()).hexdigest()
    assert glm.reference.rules == (Rule("A", "b", "C", "D"),)
    assert read(tmp_path, "A => B").name == "rules.glm"


BAD = [
    (["A => B", "A -> B"], ":3: no arrow"),
    (["* name = x"], ":2: a header without"),
    (["* format = 'NIST2'"], ": .*'NIST2'.*'NIST1'"),
    (["* max_nrules = '1'", "A => B", "C => D"], ": 2 rules.* 1 are"),
    (["A => B"] * 401, ": 401 rules.* 400 are"),
    ([f"A => {'B' * 130}"], ":2: .*131 bytes"),
    ([';; INPUT_DEPENDENT_APPLICATION = "("'], r":2: '\(' .*regular expression"),
    ([" ;; a comment behind a blank"], ":2: no arrow"),
]


@pytest.mark.parametrize(("rules", "reason"), BAD)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, rules: list[str], reason: str) -> None:
    with pytest.raises(DataError, match=rf"rules\.glm{reason}"):
        read(tmp_path, *rules)


APPLIED = [
    # The first rule that fits is applied, and its output is not read again.
    (["AB => x", "A => B", "B => A"], "ABAB BA AA", "xx AB BB"),
    # Contexts are those of the input.
    (["[A] => [B] / [ ] __ [ ]", "[C] => [D] / [A ] __"], "A A AA A C A", "A B AA B D A"),
    # Case matters unless the header says that it does not, and what no rule fits may be dropped.
    (["a => x / B __"], "Ba bA BA ba", "Bx bA BA ba"),
    (["* case_sensitive = 'F'", "a => x / B __"], "Ba bA BA ca", "Bx bx Bx ca"),
    (["* copy_no_hit = 'F'", "A => B"], "A C A", "BB"),
]


@pytest.mark.parametrize(("rules", "text", "expected"), APPLIED)
def test_rules_are_applied_from_left_to_right(tmp_path: Path, rules: list[str], text: str, expected: str) -> None:
    assert read(tmp_path, *rules).reference.apply(text) == expected


def test_a_file_that_cannot_be_read_and_the_mark_of_comments(tmp_path: Path) -> None:
    (tmp_path / "latin.glm").write_bytes(b";;\n\xe9 => e\n")
    for name, says in (("gone.glm", ": cannot be read"), ("latin.glm", ":2: not UTF-8")):
        with pytest.raises(DataError, match=name + says):
            Glm.read(tmp_path / name)
    assert read(tmp_path, "# no rule", "A => B # why", first="# rules").reference.rules == (Rule("A", "B", "", ""),)


def test_parts_hold_for_formats_and_purposes(tmp_path: Path) -> None:
    parts = [f';; INPUT_DEPENDENT_APPLICATION = "{kind}"' for kind in ("stm|trn", "CTM", "ref", "")]
    glm = read(tmp_path, "A => 0", parts[0], "B => 1", parts[1], "C => 2", parts[2], "D => 3", parts[3], "E => 4")
    assert glm.reference.apply("ABCDE") == "01C3E"
    assert glm.hypothesis.apply("ABCDE") == "0B2DE"
    assert glm.reference.filter("caf\u00e9 (is ok-yes)") == "C0F\u00e9 (IS) (OK) (YES)", "letters of ASCII alone"


@pytest.mark.parametrize("text", ["(a", "a)", "((a))", ")a("])
def test_brackets_that_do_not_match_are_named_with_their_place(tmp_path: Path, text: str) -> None:
    glm = read(tmp_path, "A => B")
    with pytest.raises(DataError, match=r"rules\.glm: .*file f, channel A, 1\.5 s"):
        glm.filter_segments([Segment("f", "A", "s", 1.5, 2.0, (), text)])
    assert glm.filter_words([CTMWord("f", "A", 1.5, 2.0, text)]) == [CTMWord("f", "A", 1.5, 2.0, text.upper())]


def words(glm: Glm, text: str, confidence: float | None = None) -> list[tuple[float, float, str, float | None]]:
    return [word[2:] for word in glm.filter_words([CTMWord("f", "A", 1.0, 0.6, text, confidence)])]


def test_the_parts_of_a_word_share_its_time(tmp_path: Path) -> None:
    glm = read(tmp_path, "XYZ => X Y Z", "GONE => []", "HE'S => [{HE IS / HE'S}] / [ ] __ [ ]", "R66 => R 66")
    assert words(glm, "xyz", 0.5) == [(1.0, 0.2, "X", 0.5), (1.2, 0.2, "Y", 0.5), (1.4, 0.2, "Z", 0.5)]
    assert words(glm, "gone") == words(glm, "gone", 0.5) == []
    he, is_, hes = (1.0, 0.3, "HE", 0.5), (1.3, 0.3, "IS", 0.5), (1.0, 0.6, "HE'S", 0.5)
    tags = [(0.0, 0.0, name, None) for name in (ctm.BEGIN, ctm.OR, ctm.END)]
    assert words(glm, "he's", 0.5) == [tags[0], he, is_, tags[1], hes, tags[2]]
    # csrfilt.sh takes the number for a confidence.
    assert words(glm, "r66") == [(1.0, 0.6, "R", None)]
    with pytest.raises(DataError, match=r"'a' is mapped .* word @"):
        words(read(tmp_path, "[A] => [{B / }] / [ ] __ [ ]"), "a")
    segment = Segment("f", "a", "s", 0.5, 1.5, ("o",), "a b")
    assert read(tmp_path, "B => C D").filter_segments([segment]) == [replace(segment, text="A C D")]


@pytest.mark.parametrize("name", ["test.trn", "test"])
def test_csrfilt_cases_of_nist_trn(shared_data: Path, name: str) -> None:
    suite = shared_data / DATA / "test_suite"
    glm = Glm.read(suite / "example.glm")
    output = "test.out" if name == "test" else "test.trn.-dh.out"
    found = []
    for line in (suite / f"{name}.in").read_text().splitlines():
        match = re.fullmatch(r"(.*)(\(.*\))\s*", line)
        found.append(f"{glm.reference.filter(match[1])} {match[2]}" if match and not line.startswith(";;") else line)
    wanted = [" ".join(line.split()) for line in (suite / output).read_text().splitlines()]
    assert [" ".join(line.split()) for line in found] == wanted


def one_word_lines(source: Path, folder: Path, *without: str) -> Path:
    """A ctm of NIST without its two lines that hold two words where one belongs, which `ctm.read` refuses."""
    lines = source.read_text().splitlines()
    kept = [line for line in lines if not any(each in line for each in ("FAT TISSUE", '"END QUOTE', *without))]
    (folder / source.name).write_text("".join(f"{line}\n" for line in kept))
    return folder / source.name


def test_csrfilt_cases_of_nist_stm_and_ctm(shared_data: Path, tmp_path: Path) -> None:
    """csrfilt.sh refuses brackets that do not match; here they are letters, as hypotheses are in no markup."""
    suite = shared_data / DATA / "test_suite"
    glm = Glm.read(suite / "example.glm")
    assert glm.filter_segments(stm.read(suite / "test.stm.in")) == stm.read(suite / "test.stm.-dh.out")
    starts = ("940328 1 5.44", "940328 1 5.63", "940328 1 18.88", "940328 1 18.98")
    found = glm.filter_words(ctm.read(one_word_lines(suite / "test_ctm.in", tmp_path)))
    assert found == ctm.read(one_word_lines(suite / "test_ctm.-dh.out", tmp_path, *starts))
    texts = [word.text for word in glm.filter_words(ctm.read(one_word_lines(suite / "test_ctm.errors.in", tmp_path)))]
    assert {"(OH)", "(SET", "OK(AY", "COOL("} <= set(texts)


@pytest.mark.parametrize("seed", range(12))
def test_random_rules_do_what_nist_programs_do(seed: int, tmp_path: Path) -> None:
    gold = json.loads(mapping_rules.GOLD.read_text("utf-8"))
    assert mapping_rules.ours(mapping_rules.case(seed), tmp_path) == gold[seed]


@pytest.mark.parametrize("name", ["src/test_suite/example.glm", "doc/trans_rules/en20030506.glm"])
def test_rules_of_nist_against_nist_programs(shared_data: Path, tmp_path: Path, name: str) -> None:
    lines = (shared_data / "sctk_tests" / name).read_text().splitlines()
    sources = [line.split("=>")[0].strip(" []") for line in lines if "=>" in line and not line.startswith(";;")]
    draw = random.Random(1)
    case = mapping_rules.with_rules(lines, draw, blank=False)
    picked = [draw.choice(sources).strip(' []"').replace("(", "").replace(")", "") for _ in range(300)]
    reference = "".join(f"f A s 1.5 2.5 {' '.join(picked[at : at + 3])}\n" for at in range(0, 300, 3))
    hypothesis = "".join(f"f A 1 0.5 {each}\n" for each in picked if not set(each) & set(" {}"))
    case = case._replace(lines="", reference=reference, hypothesis=hypothesis)
    assert mapping_rules.ours(case, tmp_path) == mapping_rules.theirs(case, tmp_path)
