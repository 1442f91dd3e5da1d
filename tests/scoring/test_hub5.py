"""The Hub5 flow: NIST's cases of hubscr.pl, its parts, and hubscr.pl itself."""

from pathlib import Path

import nist
import pytest

from las.runtime.errors import DataError
from las.scoring import ctm, hub5, stm
from las.scoring.ctm import CTMWord
from las.scoring.glm import Glm
from las.scoring.stm import Segment

CASES = {
    f"{folder}/{hypothesis}": (folder, reference, hypothesis)
    for folder, reference, hypotheses in (
        ("test1.base", "lvc_refe.stm", ("lvc_hyp.ctm", "lvc_hyp2.ctm")),
        ("test1-notag.base", "lvc_refe.notag.noat.stm", ("lvc_hyp.notag.ctm", "lvc_hyp2.notag.ctm")),
        ("test1-notag-a.base", "lvc_refe.notag.noat.stm", ("lvc_hyp.notag.ctm", "lvc_hyp2.notag.ctm")),
    )
    for hypothesis in hypotheses
}
RULES = ";; rules\n* name = 'test'\nUH => %HESITATION / [ ] __ [ ]\nIT'S => IT IS\n"


@pytest.fixture
def glm(tmp_path: Path) -> Glm:
    (tmp_path / "test.glm").write_text(RULES)
    return Glm.read(tmp_path / "test.glm")


def segment(file: str, channel: str, start_s: float, text: str) -> Segment:
    return Segment(file, channel, f"{file}-{channel}", start_s, start_s + 1, (), text)


@pytest.mark.parametrize("case", CASES)
def test_filtered_files_of_nist(shared_data: Path, case: str) -> None:
    name, reference, hypothesis = CASES[case]
    folder = shared_data / "sctk_tests/src/hubscr" / name
    inputs = stm.read(folder / reference), ctm.read(folder / hypothesis)
    segments, words = hub5.filtered(*inputs, Glm.read(folder / "example.glm"))
    # NIST wrote some of these with a version that put file, channel and speaker in upper case too, and compares so.
    wanted = stm.read(folder / f"{reference}.filt")
    assert [_folded(each) for each in segments] == [_folded(each) for each in wanted]
    assert words == ctm.read(folder / f"{hypothesis}.filt")


def _folded(each: Segment) -> tuple[object, ...]:
    names = each.file.lower(), each.channel.lower(), each.speaker.lower()
    return (*names, each.start_s, each.end_s, tuple(label.lower() for label in each.labels), each.text.split())


@pytest.mark.parametrize("case", CASES)
def test_counts_of_nist_by_speaker_and_segment(shared_data: Path, case: str) -> None:
    name, reference, hypothesis = CASES[case]
    folder = shared_data / "sctk_tests/src/hubscr" / name
    score = hub5.score(stm.read(folder / reference), ctm.read(folder / hypothesis), Glm.read(folder / "example.glm"))
    raw, percent = (
        nist.summary((folder / f"{hypothesis}.filt.{kind}").read_text("latin-1")) for kind in ("raw", "sys")
    )
    if "-a." not in case:
        found = nist.rows(score)
        assert found == nist.alignments((folder / f"{hypothesis}.filt.pra").read_text("latin-1"))
        assert found == nist.sgml((folder / f"{hypothesis}.filt.sgml").read_text("latin-1"))
    rates = [*score.speakers.items(), ("sum", score.total)]
    assert len(rates) > 4
    for speaker, rate in rates:
        counts = [*nist.row(rate), rate.errors]
        assert [rate.utterances, rate.words, *counts] == [int(each) for each in raw[speaker][:7]]
        if rate.words:  # speakers without words have counts marked * in place of percents
            shown = percent["sum/avg" if speaker == "sum" else speaker][2:7]
            assert [f"{100 * count / rate.words:.1f}" for count in counts] == shown


def test_both_sides_are_sorted_and_subsets_go_by_file(glm: Glm) -> None:
    texts = [
        ("sw_1", "B", 1.0, "(uh) it's"),
        ("sw_1", "A", 0.0, "a b"),
        ("en_1", "A", 0.0, "c d-e"),
        ("xx_1", "A", 0.0, "f"),
    ]
    times = [("sw_1", "B", 1.4, "is"), ("sw_1", "B", 1.2, "it"), ("sw_1", "A", 0.5, "a"), ("en_1", "A", 0.5, "d-e")]
    reference = [segment(*each) for each in texts]
    hypothesis = [CTMWord(*name, start_s, 0.2, text) for *name, start_s, text in times]
    score = hub5.score(reference, hypothesis, glm)
    assert {name: nist.row(rate) for name, rate in score.subsets.items()} == {"SWB": [4, 0, 1, 0], "CH": [2, 0, 1, 0]}
    assert nist.row(score.total) == [6, 0, 3, 0]
    assert list(score.utterances) == ["en_1-a-000", "sw_1-a-000", "sw_1-b-000", "xx_1-a-000"]
    assert set(score.speakers) == {"en_1-a", "sw_1-a", "sw_1-b", "xx_1-a"}


def test_alternatives_in_the_hypothesis_are_refused(glm: Glm) -> None:
    words = [CTMWord("f", "A", 0.0, 0.0, text) for text in (ctm.BEGIN, "a", ctm.END)]
    with pytest.raises(DataError, match=r"file f, channel A: .*<ALT_BEGIN>"):
        hub5.score([segment("f", "A", 0.0, "a")], words, glm)


def test_references_of_the_ldc_are_repaired(glm: Glm) -> None:
    reference = [segment("f", "A", 0.0, "a ((b c)) <B_ASIDE> d <E_ASIDE> (e)"), segment("f", "A", 1.0, "")]
    repaired = hub5.repaired(reference)
    assert [each.text for each in repaired] == ["a (b c) d (e)", ""]
    assert repaired[0].start_s == reference[0].start_s
    with pytest.raises(DataError, match="brackets"):
        hub5.score(reference, [], glm)
    assert nist.row(hub5.score(repaired, [], glm).total) == [3, 0, 2, 0]


def test_noises_hesitations_and_fragments_may_be_taken_out_of_the_hypothesis() -> None:
    dropped = ["[noise]", "[LAUGHTER]", "[vocalized-noise]", "<unk>", "UH", "um", "%hesitation", "wor-"]
    texts = ["a", *dropped, "-rd", "laughter", "uh-huh"]
    words = [CTMWord("f", "A", float(index), 0.5, text) for index, text in enumerate(texts)]
    assert [word.text for word in hub5.without_noises(words)] == ["a", "-rd", "laughter", "uh-huh"]
