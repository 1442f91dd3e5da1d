"""What a person reads about a score: tables, aligned utterances, and the HTML page."""

import io
import re

import pytest
from html_page import Page
from rich.console import Console

from las.scoring import significance, tables
from las.scoring.alignment import Aligned, AlignmentRules
from las.scoring.error_rates import UNITS, Score, error_rate, summarise

REFERENCES = {"a": ["x", "[b]"], "b": ["y"]}
HYPOTHESES = {"a": ["x", "[/c]"]}


def printed(show, *arguments) -> list[str]:
    text = io.StringIO()
    show(*arguments, Console(file=text, width=120))
    return text.getvalue().splitlines()


def rows(lines: list[str]) -> list[list[str]]:
    return [re.findall(r"[^\s│┃]+", line) for line in lines]


def test_the_table_shows_parts_total_confusions_and_what_is_missing() -> None:
    lines = printed(tables.print_score, error_rate(REFERENCES, HYPOTHESES, {"a": "[mary]", "b": "john"}), "wer")
    assert ["[mary]", "1", "2", "50.0", "50.0", "0.0", "0.0", "50.0"] in rows(lines)
    assert ["john", "1", "1", "0.0", "0.0", "100.0", "0.0", "100.0"] in rows(lines)
    assert ["total", "2", "3", "33.3", "33.3", "33.3", "0.0", "66.7"] in rows(lines)
    assert lines[-2].endswith(": [b] as [/c] (1)") and lines[-1].startswith("1 without") and lines[-1].endswith(": b")
    found = summarise(error_rate(REFERENCES, HYPOTHESES).utterances, subsets={"a": ["SWB"], "b": ["CH"]})
    listed = [row[0] for row in rows(printed(tables.print_score, found, "wer")) if len(row) == 8]
    assert listed[-3:] == ["CH", "SWB", "total"]


@pytest.mark.parametrize(("metric", "unit"), UNITS.items())
def test_reference_tokens_are_named_by_the_metric(metric: str, unit: str) -> None:
    found = error_rate(REFERENCES, HYPOTHESES)
    assert any(f"┃ {unit} ┃" in line for line in printed(tables.print_score, found, metric))
    compared = printed(tables.print_comparison, significance.compare(*scores()), ("a.trn", "b.trn"), metric)
    assert any(f"┃ {unit} ┃" in line for line in compared)
    assert f"of 3 {unit}" in tables.page(found, metric, "x", "nist")


def scores() -> tuple[Score, Score]:
    first = summarise({str(i): [Aligned("x", "y", "substitution")] for i in range(4)}, {str(i): "s" for i in range(4)})
    second = summarise({str(i): [Aligned("x", "x", "correct")] for i in range(4)}, {str(i): "s" for i in range(4)})
    return first, second


def test_a_comparison_shows_both_systems_the_difference_and_every_p_value() -> None:
    lines = printed(tables.print_comparison, significance.compare(*scores()), ("a.trn", "b.trn"), "wer")
    found = rows(lines)
    assert ["a.trn", "4", "4", "0.0", "100.0", "0.0", "0.0", "100.0"] in found
    assert ["b.trn", "4", "4", "100.0", "0.0", "0.0", "0.0", "0.0"] in found
    assert tables.difference(significance.compare(*scores()), ("a.trn", "b.trn")) in lines
    p_values = {row[0]: row[-4:] for row in found if row and row[-1][0] in "01<"}
    assert p_values["McNemar"] == ["4", "4.000", "0.125", "0.125"]
    assert p_values["matched-pair"] == ["4", "0.000", "1.000", "1.000"]
    assert p_values.keys() >= {"sign", "Wilcoxon"}
    assert lines[-1].startswith("b.trn ") and "100.0 %" in lines[-1]


def test_differences_and_probabilities_in_print() -> None:
    second, first = scores()
    comparison = significance.compare(first, second)
    assert tables.difference(comparison, ("a", "b")) == "b is 100.00 points above a"  # of nothing there are no percents
    for p, shown in ((0.0, "<0.001"), (0.00099, "<0.001"), (0.001, "0.001"), (0.0625, "0.062")):
        assert tables.probability(p) == shown


def test_aligned_words_stand_one_above_the_other() -> None:
    found = error_rate(
        {"é_1": ["naïve", "(uh)", "mat"]}, {"é_1": ["naive", "a", "mat", "日本"]}, rules=AlignmentRules(True)
    )
    assert tables.aligned_text(found.utterances) == (
        "é_1: 2 sub 0 del 1 ins of 3\n"
        "  reference   NAÏVE  (UH)  mat  ****\n"
        "  hypothesis  NAIVE  A     mat  日本\n"
        "              S      S          I\n"
    )


def test_long_utterances_go_on_below_and_those_without_words_are_listed() -> None:
    lines = tables.aligned_text({"a": [Aligned("word", "word", "correct")] * 40, "b": []}).splitlines()
    assert max(map(len, lines)) <= tables.COLUMNS + 14
    assert sum(line.count("word") for line in lines if "reference" in line) == 40
    assert lines[-4:] == ["b: 0 sub 0 del 0 ins of 0", "  reference", "  hypothesis", ""]


@pytest.fixture
def page() -> str:
    references = {"good": ["a", "b"], "<bad>": ["<i>", "&amp", "c"], "silent": ["a"]}
    hypotheses = {"good": ["a", "b"], "<bad>": ["</p>", "c", "&"]}
    found = error_rate(references, hypotheses, {name: "mary" for name in references})
    return tables.page(found, "wer", "<decoded>.trn", "nist")


def test_the_page_shows_the_score_and_marks_edits(page: str) -> None:
    for text in ("WER 66.7 %", "&lt;decoded&gt;.trn", "&amp;amp as &lt;/p&gt;", "mary", "total", "1 without", "nist"):
        assert text in page
    assert page.index("&lt;bad&gt;: 3 of 3") < page.index("silent: 1 of 1") < page.index("good: 0 of 2")
    substitution = '<span class="sub"><del>&amp;amp</del> <ins>&lt;/p&gt;</ins></span>'
    assert f"<del>&lt;i&gt;</del> {substitution} c <ins>&amp;</ins>" in page


def test_the_page_is_whole_needs_nothing_from_elsewhere_and_fits_a_phone_in_the_dark(page: str) -> None:
    read = Page(page)
    assert read.open == [] and read.loads == [] and read.tags.keys().isdisjoint({"script", "link", "img", "iframe"})
    assert "url(" not in page and "http" not in page and "@import" not in page
    assert "prefers-color-scheme: dark" in page and 'content="width=device-width, initial-scale=1"' in page
