"""Which words belong to which segment, and sclite's counts: the rule, NIST's cases, and random files."""

import json
from pathlib import Path

import nist
import pytest
import time_marks

from las.runtime.errors import DataError
from las.scoring import ctm, segments, stm
from las.scoring.alignment import AlignmentRules
from las.scoring.ctm import CTMWord
from las.scoring.stm import Segment


def segment(start_s: float, end_s: float, text: str = "x", file: str = "f", channel: str = "A") -> Segment:
    return Segment(file, channel, "Spk", start_s, end_s, (), text)


def word(start_s: float, duration_s: float, text: str, file: str = "f", channel: str = "A") -> CTMWord:
    return CTMWord(file, channel, start_s, duration_s, text)


def tag(name: str) -> CTMWord:
    return word(0.0, 0.0, name)


def heard(references: list[Segment], words: list[CTMWord]) -> list[str]:
    return [" ".join(nist.marked(pair.hypothesis)) for pair in segments.time_segments(references, words)]


@pytest.mark.parametrize(
    ("border_s", "words", "expected"),
    [
        (1.0, [(0.8, 0.3, "before"), (0.8, 0.4, "on"), (1.5, 0.1, "behind")], ["before", "on behind"]),
        # 3.7 + 0.4 / 2 is 3.9000000000000004, the single nearest to 3.9 is 3.9000000953...
        (3.9, [(3.7, 0.4, "a")], ["a", ""]),
    ],
)
def test_a_border_is_compared_with_the_middle_of_a_word_in_single_precision(
    border_s: float, words: list[tuple[float, float, str]], expected: list[str]
) -> None:
    two = [segment(0.0, border_s), segment(border_s, 5.0)]
    assert heard(two, [word(*each) for each in words]) == expected


def test_a_channel_may_be_missing_in_the_hypothesis_only() -> None:
    assert heard([segment(0.0, 1.0, file="F", channel="a")], [word(0.5, 0.1, "a", "f", "A")]) == ["a"]
    both = [segment(0.0, 1.0), segment(0.0, 1.0, channel="B")]
    other = word(0.5, 0.1, "b", channel="B")
    assert heard(both, [other]) == ["", "b"]
    mistakes = [
        (both[:1], [other], "file 'f', channel 'b'"),
        (both, [other, word(0.5, 0.1, "a")], "file 'f', channel 'a'"),
        (both, [word(0.5, 0.1, "a"), tag("<ALT_END>")], "line 2.* <ALT_END>"),
    ]
    for references, words, says in mistakes:
        with pytest.raises(DataError, match=says):
            heard(references, words)


def test_subsets_are_labels_speakers_are_in_lower_case_and_the_rules_reach_the_alignment() -> None:
    labels = [("O", "WA"), ("O",)]
    references = [
        Segment("f", "A", f"{s}pk", n, n + 1, labels[n], text) for n, s, text in ((0, "S", "a b"), (1, "s", "c"))
    ]
    score = segments.score(references, [word(0.5, 0.1, "A"), word(1.5, 0.1, "x")])
    assert {name: nist.row(rate) for name, rate in score.subsets.items()} == {"O": [1, 1, 1, 0], "WA": [1, 0, 1, 0]}
    assert list(score.speakers) == ["spk"]
    assert list(score.utterances) == ["spk-000", "spk-001"]
    references, words = [segment(0.0, 1.0, "(a) bc-")], [word(0.5, 0.1, "bcd")]
    both = AlignmentRules(optional_words=True, fragments=True)
    assert nist.row(segments.score(references, words).total) == [0, 1, 1, 0]
    assert nist.row(segments.score(references, words, both).total) == [2, 0, 0, 0]


MISSING = "extra missall missfile1 missfile1chanA missfile1chanb missfile2 missfile2chanA missfile2chanB"
NIST = {
    "test3": ("lvc_ref.stm", "lvc_hyp.ctm"),
    "test3a": ("lvc_refe.stm", "lvc_hyp.ctm"),
    "test16_9": ("stm2ctm_missing.ref.stm", "stm2ctm_missing.hyp.ctm"),
}
NIST |= {
    f"test16_{number}": ("stm2ctm_missing.ref.stm", f"stm2ctm_missing.hyp-{name}.ctm")
    for number, name in enumerate(MISSING.split()[1:], start=2)
}


@pytest.mark.parametrize("name", NIST)
def test_cases_of_nist(shared_data: Path, name: str) -> None:
    data = shared_data / "sctk_tests/src/sclite/testdata"
    reference, hypothesis = NIST[name]
    score = segments.score(stm.read(data / reference), ctm.read(data / hypothesis))
    report = (data / "base" / f"{name}.pra").read_text("latin-1")
    assert len(score.utterances) > 7
    assert nist.rows(score) == nist.alignments(report)
    raw = nist.summary((data / "base" / f"{name}.raw").read_text("latin-1"))
    for speaker, rate in [*score.speakers.items(), ("sum", score.total)]:
        assert [rate.utterances, rate.words, *nist.row(rate), rate.errors] == [int(each) for each in raw[speaker][:7]]


def test_case_test16_1_of_nist_has_words_of_a_file_without_reference(shared_data: Path) -> None:
    data = shared_data / "sctk_tests/src/sclite/testdata"
    assert "more data than" in (data / "base/test16_1.err").read_text()
    words = ctm.read(data / "stm2ctm_missing.hyp-extra.ctm")
    with pytest.raises(DataError, match="'9999', channel 'b'"):
        segments.score(stm.read(data / "stm2ctm_missing.ref.stm"), words)


def test_case_test3b_of_nist_has_confidences(shared_data: Path) -> None:
    data = shared_data / "sctk_tests/src/sclite/testdata"
    words = ctm.read(data / "lvc_hypc.ctm")
    assert all(word.confidence is not None for word in words if not word.tag)
    score = segments.score(stm.read(data / "lvc_ref.stm"), words)
    percent = nist.summary((data / "base/test3b.sys").read_text())
    for speaker, rate in [*score.speakers.items(), ("sum/avg", score.total)]:
        wanted = [str(rate.utterances), str(rate.words)]
        wanted += [f"{100 * number / rate.words:.1f}" for number in (*nist.row(rate), rate.errors)]
        assert percent[speaker][:7] == wanted


def test_case_test3c_of_nist_gives_subsets_by_label(shared_data: Path) -> None:
    data = shared_data / "sctk_tests/src/sclite/testdata"
    score = segments.score(stm.read(data / "lvc_refm.stm"), ctm.read(data / "lvc_hypm.ctm"))
    cells = [line.split("|") for line in (data / "base/test3c.lur").read_text().splitlines()]
    overall = next(line for line in cells if len(line) > 5 and "Sum" in line[1])
    for label, cell in zip(("O", "WA", "NA"), (overall[2], overall[4], overall[5]), strict=True):
        rate = score.subsets[label]
        assert cell.split() == [f"[{rate.words}]", f"{100 * rate.rate:.1f}"]
    assert nist.row(score.speakers["2347-b"]) == [0, 0, 0, 13]


def test_random_files_have_the_counts_of_sclite(tmp_path: Path) -> None:
    for seed, expected in json.loads(time_marks.GOLD.read_text("utf-8")):
        assert time_marks.ours(time_marks.case(seed), tmp_path) == expected, seed
