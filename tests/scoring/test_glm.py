"""Mapping rules: what a file may say, what the rules do, NIST's cases, and random rules against NIST's programs."""

import hashlib
import json
import random
import re
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


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("A => B", Rule("A", "B", "", "")),
        ("A B  =>  C D   ;; why", Rule("A B", "C D", "", "")),
        ("[ A] => [B ] / [C ] __ [ D]", Rule(" A", "B ", "C ", " D")),
        ('" A " => "B" / x _ y', Rule(" A ", "B", "x", "y")),
        ("[S.'S] => [{S.'S / S. IS}] / [ ] __A [ ]", Rule("S.'S", "{S.'S / S. IS}", " ", " ")),
        ("A =>", Rule("A", "", "", "")),
        ("A => []", Rule("A", "", "", "")),
        ("A =>B C", Rule("A", "C", "", "")),
        ("'A' => B", Rule("'A'", "B", "", "")),
        # Without a context the last slash is taken for its start.
        ("[A] => [{B / C}]", Rule("A", "[{B", "", "")),
        ("[A/B] => [C]", Rule("A/B", "C", "", "")),
    ],
)
def test_rules_are_read_as_rfilter1_reads_them(tmp_path: Path, line: str, rule: Rule) -> None:
    assert read(tmp_path, line).reference.rules == (rule,)


def test_headers_name_and_hash(tmp_path: Path) -> None:
    glm = read(tmp_path, '* NAME = "the rules"', "* desc: 'of a test'", "* case_sensitive = 'f'", "a => b / c __ d")
    assert (glm.name, glm.reference.description) == ("the rules", "of a test")
    assert glm.sha256 == hashlib.sha256((tmp_path / "rules.glm").read_bytes()).hexdigest()
    assert glm.reference.rules == (Rule("A", "b", "C", "D"),)
    assert read(tmp_path, "A => B").name == "rules.glm"


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (["A => B", "A -> B"], r"rules\.glm:3: no arrow"),
        (["* name = x"], r"rules\.glm:2: a header without a value in quotes"),
        (["* format = 'NIST2'"], r"rules\.glm: format 'NIST2': .* 'NIST1' only"),
        (["* max_nrules = '1'", "A => B", "C => D"], r"rules\.glm: 2 rules where 1 are allowed"),
        (["A => B"] * 401, "401 rules where 400 are allowed"),
        ([f"A => {'B' * 130}"], r"rules\.glm:2: the line has more than 131 bytes"),
        ([';; INPUT_DEPENDENT_APPLICATION = "("'], r"rules\.glm:2: '\(' is no regular expression"),
        ([" ;; a comment behind a blank"], r"rules\.glm:2: no arrow"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, rules: list[str], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read(tmp_path, *rules)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.glm: cannot be read"):
        Glm.read(tmp_path / "gone.glm")
    (tmp_path / "latin.glm").write_bytes(b";;\n\xe9 => e\n")
    with pytest.raises(DataError, match=r"latin\.glm:2: not UTF-8"):
        Glm.read(tmp_path / "latin.glm")


def test_the_first_rule_that_fits_is_applied_and_its_output_is_not_read_again(tmp_path: Path) -> None:
    rules = read(tmp_path, "AB => x", "A => B", "B => A").reference
    assert rules.apply("ABAB BA AA") == "xx AB BB"


def test_contexts_are_those_of_the_input(tmp_path: Path) -> None:
    rules = read(tmp_path, "[A] => [B] / [ ] __ [ ]", "[C] => [D] / [A ] __").reference
    assert rules.apply("A A AA A C A") == "A B AA B D A"


def test_case_matters_unless_the_header_says_it_does_not(tmp_path: Path) -> None:
    assert read(tmp_path, "a => x / B __").reference.apply("Ba bA BA ba") == "Bx bA BA ba"
    assert read(tmp_path, "* case_sensitive = 'F'", "a => x / B __").reference.apply("Ba bA BA ca") == "Bx bx Bx ca"


def test_what_no_rule_fits_may_be_dropped(tmp_path: Path) -> None:
    assert read(tmp_path, "* copy_no_hit = 'F'", "A => B").reference.apply("A C A") == "BB"


def test_the_comment_mark_is_the_first_token_of_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, "# no rule", "A => B # why", first="# rules").reference.rules == (Rule("A", "B", "", ""),)


def test_parts_hold_for_formats_and_purposes(tmp_path: Path) -> None:
    parts = [f';; INPUT_DEPENDENT_APPLICATION = "{kind}"' for kind in ("stm|trn", "CTM", "ref", "")]
    glm = read(tmp_path, "A => 0", parts[0], "B => 1", parts[1], "C => 2", parts[2], "D => 3", parts[3], "E => 4")
    assert glm.reference.apply("ABCDE") == "01C3E"
    assert glm.hypothesis.apply("ABCDE") == "0B2DE"


@pytest.mark.parametrize(
    ("text", "filtered"),
    [
        ("  so-rt of  ", "SO RT OF"),
        ("frag- -ment a--b", "FRAG- -MENT A -B"),
        ("she (is ok-yes) (no)", "SHE (IS) (OK) (YES) (NO)"),
        ("(uh)", "(%HESITATION)"),
        ("caf\u00e9", "CAF\u00e9"),
    ],
)
def test_texts_are_filtered_as_by_csrfilt(tmp_path: Path, text: str, filtered: str) -> None:
    assert read(tmp_path, "UH => %HESITATION / [ ] __ [ ]").reference.filter(text) == filtered


@pytest.mark.parametrize("text", ["(a", "a)", "((a))", ")a("])
def test_brackets_that_do_not_match_are_named_with_their_place(tmp_path: Path, text: str) -> None:
    glm = read(tmp_path, "A => B")
    with pytest.raises(DataError, match=r"rules\.glm: cannot filter the segment \(file f, channel A, 1\.5 s\)"):
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


def test_an_empty_alternative_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'a' is mapped to an empty alternative, which is the word @"):
        words(read(tmp_path, "[A] => [{B / }] / [ ] __ [ ]"), "a")


def test_labels_and_times_of_segments_stay(tmp_path: Path) -> None:
    segment = Segment("f", "a", "s", 0.5, 1.5, ("o",), "a b")
    [filtered] = read(tmp_path, "B => C D").filter_segments([segment])
    assert filtered == Segment("f", "a", "s", 0.5, 1.5, ("o",), "A C D")


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


def test_csrfilt_case_of_nist_stm(shared_data: Path) -> None:
    suite = shared_data / DATA / "test_suite"
    found = Glm.read(suite / "example.glm").filter_segments(stm.read(suite / "test.stm.in"))
    assert found == stm.read(suite / "test.stm.-dh.out")


def one_word_lines(source: Path, folder: Path) -> Path:
    """A ctm of NIST without its two lines that hold two words where one belongs, which `ctm.read` refuses."""
    kept = [line for line in source.read_text().splitlines() if "FAT TISSUE" not in line and '"END QUOTE' not in line]
    (folder / "words.ctm").write_text("".join(f"{line}\n" for line in kept))
    return folder / "words.ctm"


def test_csrfilt_case_of_nist_ctm(shared_data: Path, tmp_path: Path) -> None:
    suite = shared_data / DATA / "test_suite"
    found = Glm.read(suite / "example.glm").filter_words(ctm.read(one_word_lines(suite / "test_ctm.in", tmp_path)))
    starts = ("940328 1 5.44", "940328 1 5.63", "940328 1 18.88", "940328 1 18.98")
    wanted = [line for line in (suite / "test_ctm.-dh.out").read_text().splitlines() if not line.startswith(starts)]
    (tmp_path / "out.ctm").write_text("".join(f"{line}\n" for line in wanted))
    assert found == ctm.read(tmp_path / "out.ctm")


def test_csrfilt_case_of_nist_with_errors(shared_data: Path, tmp_path: Path) -> None:
    """csrfilt.sh refuses brackets that do not match; here they are letters, as hypotheses are in no markup."""
    suite = shared_data / DATA / "test_suite"
    words = ctm.read(one_word_lines(suite / "test_ctm.errors.in", tmp_path))
    texts = [word.text for word in Glm.read(suite / "example.glm").filter_words(words)]
    assert {"(OH)", "(SET", "OK(AY", "COOL("} <= set(texts)


@pytest.mark.parametrize("seed", range(12))
def test_random_rules_do_what_nist_programs_do(seed: int, tmp_path: Path) -> None:
    gold = json.loads(mapping_rules.GOLD.read_text("utf-8"))
    assert mapping_rules.ours(mapping_rules.case(seed), tmp_path) == gold[seed]


def test_new_random_rules_against_nist_programs(tmp_path: Path) -> None:
    for seed in range(1000, 1003):
        case = mapping_rules.case(seed)
        assert mapping_rules.ours(case, tmp_path) == mapping_rules.theirs(case, tmp_path)


@pytest.mark.slow
def test_a_hundred_random_rule_files_against_nist_programs(tmp_path: Path) -> None:
    for seed in range(100):
        case = mapping_rules.case(seed)
        assert mapping_rules.ours(case, tmp_path) == mapping_rules.theirs(case, tmp_path)


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
