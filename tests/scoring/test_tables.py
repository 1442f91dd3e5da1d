"""What a person reads about a score: tables, aligned utterances, and the HTML page."""

import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from las.scoring import significance, tables
from las.scoring.alignment import Aligned, AlignmentRules
from las.scoring.error_rates import Score, error_rate, summarise

REFERENCES = {"a": ["x", "[b]"], "b": ["y"]}
HYPOTHESES = {"a": ["x", "[/c]"]}


def printed(show, *arguments) -> list[str]:
    text = io.StringIO()
    show(*arguments, Console(file=text, width=120))
    return text.getvalue().splitlines()


def rows(lines: list[str]) -> list[list[str]]:
    return [re.findall(r"[^\s│┃]+", line) for line in lines]


def test_the_table_shows_parts_total_confusions_and_what_is_missing() -> None:
    found = error_rate(REFERENCES, HYPOTHESES, {"a": "[mary]", "b": "john"})
    lines = printed(tables.print_score, found, "wer")
    assert ["[mary]", "1", "2", "50.0", "50.0", "0.0", "0.0", "50.0"] in rows(lines)
    assert ["john", "1", "1", "0.0", "0.0", "100.0", "0.0", "100.0"] in rows(lines)
    assert ["total", "2", "3", "33.3", "33.3", "33.3", "0.0", "66.7"] in rows(lines)
    assert "most frequent confusions: [b] as [/c] (1)" in lines
    assert "1 without a hypothesis, counted as deleted: b" in lines


@pytest.mark.parametrize(("metric", "unit"), [("phone_error_rate", "phones"), ("wer", "words"), ("cer", "characters")])
def test_reference_tokens_are_named_by_the_metric(metric: str, unit: str) -> None:
    found = error_rate(REFERENCES, HYPOTHESES)
    assert any(f"┃ {unit} ┃" in line for line in printed(tables.print_score, found, metric))
    compared = printed(tables.print_comparison, significance.compare(*scores()), ("a.trn", "b.trn"), metric)
    assert any(f"┃ {unit} ┃" in line for line in compared)
    assert f"2 errors of 3 {unit} in 2 utterances" in Page(tables.page(found, metric, "x", "nist")).text


def test_subsets_have_rows_of_their_own() -> None:
    alignments = {"a": [Aligned("x", "x", "correct")], "b": [Aligned("x", None, "deletion")]}
    found = summarise(alignments, {"a": "mary", "b": "john"}, subsets={"a": ["SWB"], "b": ["CH"]})
    listed = [row[0] for row in rows(printed(tables.print_score, found, "wer")) if len(row) == 8]
    assert [name for name in listed if name.islower() or name.isupper()] == ["john", "mary", "CH", "SWB", "total"]


def scores() -> tuple[Score, Score]:
    first = summarise({str(i): [Aligned("x", "y", "substitution")] for i in range(4)}, {str(i): "s" for i in range(4)})
    second = summarise({str(i): [Aligned("x", "x", "correct")] for i in range(4)}, {str(i): "s" for i in range(4)})
    return first, second


def test_a_comparison_shows_both_systems_the_difference_and_every_p_value() -> None:
    lines = printed(tables.print_comparison, significance.compare(*scores()), ("a.trn", "b.trn"), "wer")
    found = rows(lines)
    assert ["a.trn", "4", "4", "0.0", "100.0", "0.0", "0.0", "100.0"] in found
    assert ["b.trn", "4", "4", "100.0", "0.0", "0.0", "0.0", "0.0"] in found
    assert "b.trn is 100.00 points below a.trn (-100.0 %)" in lines
    p_values = {row[0]: row[-4:] for row in found if row and row[-1][0] in "01<"}
    assert p_values["McNemar"] == ["4", "4.000", "0.125", "0.125"]
    assert p_values["matched-pair"] == ["4", "0.000", "1.000", "1.000"]
    assert p_values.keys() >= {"sign", "Wilcoxon"}
    assert "b.trn makes fewer errors in 100.0 % of resampled tests" in lines


def test_a_worse_second_system_is_above() -> None:
    second, first = scores()
    comparison = significance.compare(first, second)
    assert tables.difference(comparison, ("a", "b")) == "b is 100.00 points above a"  # of nothing there are no percents


@pytest.mark.parametrize(("p", "shown"), [(0.0, "<0.001"), (0.00099, "<0.001"), (0.001, "0.001"), (0.0625, "0.062")])
def test_probabilities_have_three_decimals(p: float, shown: str) -> None:
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


def test_long_utterances_go_on_below() -> None:
    alignment = [Aligned("word", "word", "correct")] * 40
    lines = tables.aligned_text({"a": alignment}).splitlines()
    assert max(map(len, lines)) <= tables.COLUMNS + 14
    assert sum(line.count("word") for line in lines if "reference" in line) == 40


def test_an_utterance_without_words_is_listed() -> None:
    assert tables.aligned_text({"a": []}) == "a: 0 sub 0 del 0 ins of 0\n  reference\n  hypothesis\n\n"


class Page(HTMLParser):
    """Checks that every tag is closed in order; keeps tags, attributes and the text of classes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attributes
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if "style" not in self.open else ""


def page() -> str:
    references = {"good": ["a", "b"], "<bad>": ["<i>", "&amp", "c"], "silent": ["a"]}
    hypotheses = {"good": ["a", "b"], "<bad>": ["</p>", "c", "&"]}
    found = error_rate(references, hypotheses, {name: "mary" for name in references})
    return tables.page(found, "wer", "<decoded>.trn", "nist")


def test_the_page_is_whole_and_shows_what_was_heard() -> None:
    shown = Page(page())
    assert "WER 66.7 %" in shown.text and "<decoded>.trn" in shown.text
    for text in ("&amp as </p>", "<i>1", "mary", "total", "1 without a hypothesis", "convention\nnist"):
        assert text in shown.text
    assert shown.text.index("<bad>: 3 of 3") < shown.text.index("silent: 1 of 1") < shown.text.index("good: 0 of 2")


def test_the_page_needs_nothing_from_elsewhere() -> None:
    shown = Page(page())
    assert shown.tags.isdisjoint({"script", "link", "img", "iframe"})
    assert {name for name, _ in shown.attributes} <= {"lang", "charset", "name", "content", "class"}
    assert "url(" not in page() and "http" not in page() and "@import" not in page()


def test_the_page_is_light_or_dark_and_fits_a_phone() -> None:
    assert "prefers-color-scheme: dark" in page()
    assert ("content", "width=device-width, initial-scale=1") in Page(page()).attributes


def test_edits_are_marked() -> None:
    shown = page()
    substitution = '<span class="sub"><del>&amp;amp</del> <ins>&lt;/p&gt;</ins></span>'
    assert f"<del>&lt;i&gt;</del> {substitution} c <ins>&amp;</ins>" in shown
