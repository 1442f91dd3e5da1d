"""Alignment against NIST's sclite: its own test data, gold counts, and the program where it is installed."""

import json
import random
import re
import time
from collections.abc import Sequence
from typing import Any

import pytest
import transcripts
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import rest_slow
from transcripts import OPTIONS, counts

from las.runtime.errors import ArgumentError, DataError
from las.scoring import transcript_files
from las.scoring.alignment import Aligned, AlignmentRules, align
from las.scoring.word_network import Marked

CORRECT, SUBSTITUTION, DELETION, INSERTION = transcripts.KINDS
PLAIN = AlignmentRules()
DELETABLE = AlignmentRules(optional_words=True)
FRAGMENTS = AlignmentRules(fragments=True)
BOTH = AlignmentRules(optional_words=True, fragments=True)


def aligned(reference: str, hypothesis: str, rules: AlignmentRules = PLAIN) -> list[Aligned]:
    return align([Marked(reference.split())], [Marked(hypothesis.split())], rules)[0]


def marked(cases: Sequence[Sequence[Any]]) -> tuple[list[Marked], list[Marked]]:
    """References and hypotheses of cases, both in markup, as sclite reads them."""
    return [Marked(case[0].split()) for case in cases], [Marked(case[1].split()) for case in cases]


def test_words_and_kinds():
    assert aligned("the Cat sat down", "the hat SAT right down") == [
        Aligned("the", "the", CORRECT),
        Aligned("cat", "hat", SUBSTITUTION),
        Aligned("sat", "sat", CORRECT),
        Aligned(None, "right", INSERTION),
        Aligned("down", "down", CORRECT),
    ]
    assert aligned("The", "the", AlignmentRules(ignore_case=False)) == [Aligned("The", "the", SUBSTITUTION)]
    assert aligned("i (uh) see", "i see", DELETABLE)[1] == Aligned("(uh)", None, CORRECT)
    assert aligned("i see", "i (uh) see", DELETABLE)[1] == Aligned(None, "(uh)", CORRECT)


COUNTED = [
    ("", "", [0, 0, 0, 0], PLAIN),
    ("a b", "", [0, 0, 2, 0], PLAIN),
    # Substitutions cost 4, deletions and insertions 3: a deletion and an insertion (6) beat two substitutions (8).
    ("a b", "b c", [1, 0, 1, 1], PLAIN),
    # Of the same cost, one insertion and deletion less is preferred only through order: a substitution first.
    ("a a a", "a", [1, 0, 2, 0], PLAIN),
    ("A é É", "a É é", [2, 0, 1, 1], PLAIN),
    ("{ a b / c / @ } d", "d", [1, 0, 0, 0], PLAIN),
    ("{a/b}{c / d}e", "b d e", [3, 0, 0, 0], PLAIN),
    ("{ a { b / c } / d } e", "{ x / a c } { e }", [3, 0, 0, 0], PLAIN),
    ("{ " * 30 + "a" + " }" * 30, "a", [1, 0, 0, 0], PLAIN),
    ("a } / b", "a b", [2, 0, 2, 0], PLAIN),
    ("uh-huh; b;tag b* *", "uh-huh b b *", [4, 0, 0, 0], PLAIN),
    ("(uh) (%hesitation)", "uh %hesitation", [2, 0, 0, 0], DELETABLE),
    ("i (uh) see", "i see", [2, 0, 1, 0], PLAIN),
    ("fi- find -ish ticks", "find f- fish -icks", [4, 0, 0, 0], FRAGMENTS),
    ("-", "b", [0, 1, 0, 0], FRAGMENTS),
    ("(fi-)", "find", [1, 0, 0, 0], BOTH),
    # A word in brackets is no fragment by its beginning, unless the other word is one.
    ("(-ish)", "fish", [0, 1, 0, 0], BOTH),
]


@pytest.mark.parametrize(("reference", "hypothesis", "expected", "rules"), COUNTED)
def test_counts_by_hand(reference, hypothesis, expected, rules):
    assert counts(aligned(reference, hypothesis, rules)) == expected


REFUSED = {
    "a { b / c": "no closing }",  # sclite leaves the words out and says nothing
    "a { / } b": "have no word",  # sclite crashes here and below
    "{ }": "have no word",
    "a{b / c} d": r"inside the word.*a\{b",
    "{ a x{b} }": r"inside the word.*x\{b",
    "{ " * 31 + "a" + " }" * 31: "30 deep",  # sclite says the same in other words
}


@pytest.mark.parametrize("text", REFUSED)
def test_markup_that_cannot_be_read_is_refused(text):
    for pair in ((text, "a"), ("a", text)):
        with pytest.raises(DataError, match=REFUSED[text]):
            aligned(*pair)


def textbook(reference: list[str], hypothesis: list[str]) -> list[Aligned]:
    """Cell by cell, and from the end: a match or substitution before an insertion before a deletion."""
    cost = {(-1, -1): 0}
    rows, columns = range(-1, len(reference)), range(-1, len(hypothesis))
    steps = {}
    for row in rows:
        for column in columns:
            paid = 4 * (reference[row : row + 1] != hypothesis[column : column + 1])
            moves = [((row - 1, column - 1), paid), ((row, column - 1), 3), ((row - 1, column), 3)]
            known = [(cost[cell] + price, cell) for cell, price in moves if cell in cost]
            if known:
                cost[row, column], steps[row, column] = min(known, key=lambda choice: choice[0])
    found = []
    cell = (len(reference) - 1, len(hypothesis) - 1)
    while cell != (-1, -1):
        before = steps[cell]
        spoken = None if before[0] == cell[0] else reference[cell[0]]
        heard = None if before[1] == cell[1] else hypothesis[cell[1]]
        kind = DELETION if heard is None else INSERTION if spoken is None else SUBSTITUTION
        found.append(Aligned(spoken, heard, CORRECT if spoken == heard else kind))
        cell = before
    return found[::-1]


symbols = st.lists(st.sampled_from("abcd"), max_size=9)


@given(st.lists(st.tuples(symbols, symbols), max_size=8))
@settings(max_examples=60, derandomize=True)
def test_plain_words_are_aligned_as_in_the_textbook_alone_and_in_company(pairs):
    references, hypotheses = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    expected = [textbook(*pair) for pair in pairs]
    assert align(references, hypotheses) == expected
    # The same words as networks: alone between braces, or in alternatives of which the other cannot be right.
    for template in ("{{ {} }}", "{{ {} / zz zz }}"):
        marked = [Marked(token for word in words for token in template.format(word).split()) for words in references]
        assert align(marked, hypotheses) == expected


signs = st.lists(st.sampled_from(("{", "}", "/", "@", "(a)", "a", "a/b", "{a", "a;b", "a*", "*", "\\a")), max_size=7)


@given(st.lists(st.tuples(signs, signs), max_size=5))
@settings(max_examples=60, derandomize=True)
def test_signs_of_markup_are_words_like_others_in_plain_texts(pairs):
    references, hypotheses = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    expected = [textbook(*pair) for pair in pairs]
    assert align(references, hypotheses) == expected
    assert align([" ".join(words) for words in references], [" \t ".join(words) for words in hypotheses]) == expected


SIDES = [*((side, "no word") for side in (["the cat"], ["a\tb"], [7]))]
SIDES += [(side, "neither a text") for side in (None, 0.5, {"a": 1}, {"a"})]


@pytest.mark.parametrize(("side", "says"), SIDES)
def test_what_is_neither_a_text_nor_a_list_of_words_is_refused(side, says):
    for pair in ((side, "a"), ("a", side)):
        with pytest.raises(ArgumentError, match=says):
            align([pair[0]], [pair[1]])


def test_as_many_references_as_hypotheses_whose_words_may_come_one_by_one():
    assert align([(word for word in "ab")], [iter("ab")]) == align(["a b"], ["a b"])
    assert align([], []) == []
    with pytest.raises(ValueError, match="shorter"):
        align([["a"], ["b"]], [["a"]])


def test_brackets_of_a_hypothesis_are_letters_and_those_of_a_reference_are_asked_for():
    assert counts(align(["i (uh) see"], ["i see"], DELETABLE)[0]) == [3, 0, 0, 0]
    assert counts(align(["i see"], ["i (uh) see"], DELETABLE)[0]) == [2, 0, 0, 1]
    assert counts(align(["i (uh) see"], ["i see"])[0]) == [2, 0, 1, 0]


@pytest.mark.parametrize("options", OPTIONS)
def test_counts_equal_those_that_sclite_gave(options):
    gold = json.loads(transcripts.GOLD.read_text("utf-8"))
    assert [tuple(case[:2]) for case in gold] == transcripts.pairs(transcripts.SEED, transcripts.GOLD_CASES)
    place = list(OPTIONS).index(options)
    found = align(*marked(gold), OPTIONS[options])
    assert [counts(alignment) for alignment in found] == [case[2 + place] for case in gold]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("seed", "count"), rest_slow([(1, 300), (2, 10_000)]))
def test_alignments_equal_those_of_sclite(options, seed, count):
    cases = transcripts.pairs(seed, count)
    found = align(*marked(cases), OPTIONS[options])
    different = [
        (case, ours, theirs)
        for case, ours, theirs in zip(cases, found, transcripts.sclite(cases, options), strict=True)
        if ours != theirs
    ]
    assert different == []


def characters(text: str) -> list[str]:
    """Sclite's -c DH: words as characters, without tags and hyphens."""
    tokens = re.findall(r"[{}/@]|(?:\\.|[^\s{}/])+", text)
    words = [re.sub(r"(?<!\\);.*", "", token).replace("\\", "").replace("-", "") for token in tokens]
    return [f"\\{character}" if character == ";" else character for word in words for character in word]


NIST = {
    "test1: csrnab": ("test1.pra", "csrnab.ref", "csrnab.hyp", PLAIN, str.split),
    "test1a: csrnab through sgml": ("test1a.prf", "csrnab.ref", "csrnab.hyp", PLAIN, str.split),
    "test1d: csrnab, nl.sgml": ("test1d.nl.sgml", "csrnab.ref", "csrnab.hyp", PLAIN, str.split),
    "test1e: csrnab, UTF-8": ("test1e.pra", "csrnab.ref", "csrnab.hyp", PLAIN, str.split),
    "test7: markup, -F -D": ("test7.pra", "tests.ref", "tests.hyp", BOTH, str.split),
    "test7_r: test7 reversed": ("test7_r.pra", "tests.hyp", "tests.ref", BOTH, str.split),
    "test7_noD: markup, -F": ("test7_noD.pra", "tests.ref", "tests.hyp", FRAGMENTS, str.split),
    "test7_5: markup, characters": ("test7_5.pra", "tests.ref", "tests.hyp", PLAIN, characters),
    "test7_6: test7, UTF-8": ("test7_6.pra", "tests.ref", "tests.hyp", BOTH, str.split),
    "test7-utf8-2bytes": ("test7-utf8-2bytes.pra", "tests.ref.utf8-2bytes", "tests.hyp.utf8-2bytes", BOTH, str.split),
    "test7-utf8-3bytes": ("test7-utf8-3bytes.pra", "tests.ref.utf8-3bytes", "tests.hyp.utf8-3bytes", BOTH, str.split),
    "test7-utf8-4bytes": ("test7-utf8-4bytes.pra", "tests.ref.utf8-4bytes", "tests.hyp.utf8-4bytes", BOTH, str.split),
    "test8: csrnab1, characters": ("test8.pra", "csrnab1.ref", "csrnab1.hyp", PLAIN, characters),
}
"""NIST's English trn cases: expected output, reference, hypothesis, rules, and what the tokens are."""


def expected_counts(report: str) -> dict[str, list[int]]:
    """Counts by utterance from a .pra, .prf or .nl.sgml of sclite."""
    scores = re.findall(r"^id: \((.+)\)\s*\nScores: \(#C #S #D #I\) (.+)", report, re.MULTILINE)
    paths = re.findall(r'<PATH id="\((.+?)\)".*?>\n(.*?)</PATH>', report, re.DOTALL)
    found = {name: [int(each) for each in row.split()] for name, row in scores}
    return found | {name: [len(re.findall(f"^{kind}$", body, re.MULTILINE)) for kind in "CSDI"] for name, body in paths}


@pytest.mark.parametrize("case", NIST)
def test_nist_cases(case, shared_data, tmp_path):
    expected, reference, hypothesis, rules, tokens = NIST[case]
    data = shared_data / "sctk_tests" / "src" / "sclite" / "testdata"
    texts = []
    for side, name in enumerate((reference, hypothesis)):
        (tmp_path / f"{side}.trn").write_bytes((data / name).read_bytes())
        texts.append(transcript_files.read(tmp_path / f"{side}.trn", ignore_case=True))
    spoken, heard = texts
    found = align(*([Marked(tokens(side[name].text)) for name in heard] for side in (spoken, heard)), rules)
    wanted = expected_counts((data / "base" / expected).read_text("utf-8"))
    assert len(wanted) > 1
    assert dict(zip(heard, map(counts, found), strict=True)) == wanted


def hundred_thousand_words() -> tuple[list[list[str]], list[list[str]]]:
    """About 100,000 words in utterances of 10 to 25 of 5,000 different words, 30 % of them wrong."""
    draw = random.Random(0)
    references, hypotheses = [], []
    for _ in range(5700):
        spoken = [f"w{int(5000 ** draw.random())}" for _ in range(draw.randint(10, 25))]
        other = draw.choice(spoken) + "x"
        found = [draw.choice(("", other, f"{word} {other}")) if draw.random() < 0.3 else word for word in spoken]
        references.append(spoken)
        hypotheses.append(" ".join(found).split())
    return references, hypotheses


def test_a_hundred_thousand_words_take_less_than_ten_seconds():
    start = time.process_time()
    align(*hundred_thousand_words())
    assert time.process_time() - start < 10
