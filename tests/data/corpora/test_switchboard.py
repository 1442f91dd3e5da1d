"""Switchboard: utterances, sides, development parts, the cap, what is missing, and a training tested on Hub5."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import telephone
import tiny
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from las.config import build
from las.data.corpora import isip_transcripts, switchboard
from las.data.corpora.switchboard import Switchboard, capped
from las.data.tokenizers import Characters
from las.runtime.errors import ConfigError

SIDES = {
    "2001A": [
        (0.0, 1.5, "[silence]"),
        (1.5, 3.0, "hi um this is a[round]- [laughter-fun]"),
        (3.0, 4.0, "[noise]"),
        (4.0, 6.0, "TV"),
    ],
    "2001B": [(0.0, 2.0, "[silence]"), (2.0, 2.5, "yeah"), (2.5, 20.2, "[laughter] <b_aside> oh well <e_aside>")],
    "2005A": [(0.5, 1.25, "yeah")],
    "2005B": [(0.0, 20.0, "[silence]")],
}
HUB5 = """sw_4390 A sw_4390_A 0.50 2.25 <O,en,F,en-F> I'VE ((SEEN)) IT
sw_4390 B sw_4390_B 2.00 3.50 <O,en,M,en-M> (%HESITATION) (TH-) THE TEAPOT
en_4156 B en_4156_B 1.00 2.00 <O,en,M,en-M> UH-HUH
"""


def corpus(root: Path, **settings: Any) -> Switchboard:
    return Switchboard("swb", str(root), Characters(isip_transcripts.ALPHABET), **({"partial": True} | settings))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return telephone.switchboard(tmp_path / "swb", SIDES)


def test_utterances_have_kaldis_names_their_side_as_speaker_and_its_channel(tree: Path) -> None:
    made = corpus(tree)
    listed = sorted((*made.utterances("dev"), *made.utterances("train")), key=lambda each: each.id)
    assert [(each.id, each.channel, each.speaker, each.text) for each in listed] == [
        ("sw02001-A_000150-000300", 0, "sw02001-A", "hi um this is a- fun"),
        ("sw02001-A_000400-000600", 0, "sw02001-A", "t v"),
        ("sw02001-B_000200-000250", 1, "sw02001-B", "yeah"),
        ("sw02001-B_000250-002020", 1, "sw02001-B", "oh well"),
        ("sw02005-A_000050-000125", 0, "sw02005-A", "yeah"),
    ]
    assert (listed[0].start_s, listed[0].duration_s) == (1.5, 1.5)
    assert listed[0].audio == str(tree / "swb1_d1" / "data" / "sw02001.sph")
    assert made.problems(listed) == []


def test_a_segment_is_cut_at_the_end_of_its_call_and_named_where_that_is_too_much(tree: Path) -> None:
    cut = corpus(tree).utterances("train")[2]
    assert (cut.start_s, cut.duration_s) == (2.5, 17.5)
    assert any("1 segments end after" in note for note in corpus(tree).notes())
    telephone.call(tree / "swb1_d1" / "data" / "sw02001.sph", seconds=19.6)
    (problem,) = corpus(tree).problems(corpus(tree).utterances("train"))
    assert problem.utterance_id == "sw02001-B_000250-002020" and problem.kind == "ends too early"


def test_noises_are_left_out_or_kept(tree: Path) -> None:
    kept = [each.text for each in corpus(tree, noises="kept").utterances("train")]
    assert "[laughter] oh well" in kept and "[noise]" in kept and "[silence]" not in kept
    assert any("1 segments hold" in note for note in corpus(tree).notes())
    assert not any("but noises" in note for note in corpus(tree, noises="kept").notes())
    assert corpus(tree).normalise("Oh [noise] well [laughter]") == ["oh", "well"]


def test_names_may_be_in_upper_case_and_without_a_zero_and_transcripts_elsewhere(tree: Path, tmp_path: Path) -> None:
    for path in sorted(tree.rglob("*"), reverse=True):
        path.rename(path.with_name(path.name.upper().replace("SW0", "SW")))
    assert len(corpus(tree).utterances("train")) == 4
    transcripts = (tree / "SWB_MS98_TRANSCRIPTIONS").rename(tmp_path / "text")
    refused("no transcripts|A right tree", corpus(tree).utterances, "train")
    assert len(corpus(tree, transcripts=str(transcripts)).utterances("train")) == 4


def test_missing_audio_and_transcripts_are_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    telephone.call(tree / "sw02007.sph")
    telephone.transcript(tree, "2009A", [(0.0, 1.0, "gone")])
    made = corpus(tree)
    assert len(made.utterances("train")) == 4
    for words in ("3 of 2438 calls", "no transcript: sw02007-A, sw02007-B", "no audio: sw02009-A"):
        assert any(note.startswith("swb: ") and note.endswith(words) for note in made.notes())
    words = "3 of 2438|sw02007-A, sw02007-B|corpus.partial=true"
    refused(words, corpus(tree, partial=False).utterances, "train")
    (tree / "sw02007.sph").unlink()
    monkeypatch.setattr(switchboard, "NUM_CALLS", (1, 2))
    refused("6 segments|264,333|0.5 %", corpus(tree, partial=False).utterances, "train")
    monkeypatch.setattr(switchboard, "NUM_SEGMENTS", 6)
    whole = corpus(tree, partial=False)
    assert len(whole.utterances("train")) == 4 and not any("partial" in note for note in whole.notes())


def test_a_call_that_is_there_twice_and_a_copy_without_calls_are_errors(tree: Path, tmp_path: Path) -> None:
    twin = telephone.call(tree / "copy" / "sw2005.sph")
    refused("same call|sw2005.sph|sw02005.sph", corpus(tree).utterances, "train")
    twin.unlink()
    text = telephone.transcript(tree / "copy", "2001A", [(0.0, 1.0, "oh")])
    refused("sw02001-A|Remove one", corpus(tree).utterances, "train")
    text.unlink()
    refused("no such folder", corpus(tmp_path / "none").utterances, "train")
    refused("no calls in", corpus(tree / "swb_ms98_transcriptions").utterances, "train")
    (tmp_path / "short").mkdir()
    short = telephone.switchboard(tmp_path / "short", {"2001A": [(0.0, 1.0, "oh")]})
    refused("1 + 0 utterances", corpus(short).utterances, "dev")


def test_the_development_part_is_the_head_of_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert switchboard.DEV == {"kaldi": 4000, "z20": 3000}
    monkeypatch.setattr(switchboard, "DEV", {"kaldi": 40, "z20": 30})
    lines = [(0.1 * index, 0.1 * (index + 1), f"word{index}") for index in range(205)]
    tree = telephone.switchboard(tmp_path, {"2001A": lines, "2001B": lines}, seconds=21.0)
    for dev, count in (("kaldi", 40), ("z20", 30)):
        made = corpus(tree, dev=dev)
        held_out, train = made.utterances("dev"), made.utterances("train")
        assert (len(held_out), len(train)) == (count, 410 - count)
        assert max(each.id for each in held_out) < min(each.id for each in train)
    monkeypatch.setattr(switchboard, "DEV", {"kaldi": 4000})
    assert len(corpus(tree).utterances("dev")) == 41


def test_the_same_text_is_trained_on_at_most_so_often(tmp_path: Path) -> None:
    lines = [(float(index), index + 1.0, "yeah" if index % 2 else f"word{index}") for index in range(20)]
    tree = telephone.switchboard(tmp_path, {"2001A": lines, "2001B": lines})
    made = corpus(tree, max_repeats=5)
    train = Counter(each.text for each in made.utterances("train"))
    dev = Counter(each.text for each in made.utterances("dev"))
    assert (train["yeah"], dev["yeah"]) == (5, 2)
    assert any("13 training utterances" in n for n in made.notes())
    assert Counter(each.text for each in corpus(tree, max_repeats=None).utterances("train"))["yeah"] == 18


@given(st.lists(st.sampled_from("abc"), max_size=60), st.integers(1, 8))
def test_the_cap_keeps_what_it_may_in_order_and_spread_out(texts: list[str], most: int) -> None:
    numbered = [
        (isip_transcripts.ISIPSegment("side", float(index), index + 1.0, text), text)
        for index, text in enumerate(texts)
    ]
    kept = capped(numbered, most)
    assert kept == [each for each in numbered if each in kept]
    for text in set(texts):
        places = [index for index, each in enumerate(one for one in numbered if one[1] == text) if each in kept]
        total = texts.count(text)
        assert len(places) == min(most, total)
        gaps = [after - before for before, after in zip([-1, *places], places, strict=False)]
        assert max(gaps) <= -(-total // min(most, total))
    assert capped(numbered, None) == numbered


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"dev": "kladi"}, "dev='kladi'|mean kaldi"),
        ({"noises": "keep"}, "noises='keep'"),
        ({"fillers": "gone"}, "fillers='gone'"),
        ({"max_repeats": 0}, "corpus.max_repeats=0"),
    ],
)
def test_unknown_values_are_named(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    refused(says, lambda: corpus(tmp_path, **settings), kind=ConfigError)


def test_manifests_follow_the_settings_and_the_names_of_the_files(tree: Path, tmp_path: Path) -> None:
    changes = ({}, {"noises": "kept"}, {"dev": "z20"}, {"max_repeats": 2}, {"transcripts": str(tmp_path)})
    assert len({json.dumps(corpus(tree, **change).settings()) for change in changes}) == 5
    before = corpus(tree).inventory()
    telephone.call(tree / "sw02007.sph")
    assert set(corpus(tree).inventory()) - set(before) == {str(tree / "sw02007.sph")}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Switchboard, Hub5'00 and Hub5'01."""
    root = tmp_path_factory.mktemp("trees")
    telephone.switchboard(root / "switchboard", SIDES)
    telephone.hub5(root / "hub5_00", HUB5)
    telephone.hub5(root / "hub5_01", HUB5.replace("en_4156", "sw4653"), year="01")
    return root


def overrides(trees: Path, root: Path) -> list[str]:
    places = {"root": "switchboard", "hub5_00": "hub5_00", "hub5_01": "hub5_01"}
    own = [f"corpus.{key}={trees / kind}" for key, kind in places.items()]
    return ["corpus=switchboard_300", "corpus.partial=true", *own, f"data_dir={root / 'data'}"]


def test_prepare_prints_every_split_and_what_to_know(trees: Path, tmp_path: Path, las: Callable[..., Any]) -> None:
    answer = las("prepare", *overrides(trees, tmp_path)).succeeds()
    printed = answer.out + answer.err
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in printed.splitlines() if "│" in line]
    counts = {row[0]: (row[1], row[3]) for row in rows}
    assert counts == {"train": ("4", "3"), "dev": ("1", "1"), "hub5_00": ("3", "3"), "hub5_01": ("3", "3")}
    for note in ("2 of 2438 calls", "1 segments hold", "published results", "0 of 4 training"):
        assert note in " ".join(printed.split())


@pytest.mark.slow
def test_a_training_ends_with_hub5_scored_in_its_parts(trees: Path, tmp_path: Path) -> None:
    from las.cli import train as cli_train

    run = tmp_path / "run"
    more = [*tiny.SHORT, "schedule=constant", f"run_dir={run}", *tiny.MODEL, *tiny.QUICK]
    result = cli_train.train([*overrides(trees, tmp_path), *more])["splits"]
    assert list(result) == ["dev", "hub5_00", "hub5_01"]
    lines = (run / "hypotheses.hub5_00.jsonl").read_text().splitlines()
    texts = {each["id"]: each["text"] for each in map(json.loads, lines)}
    made = build.build(build.compose("train", overrides(trees, tmp_path))["corpus"])
    utterances = made.utterances("hub5_00")
    assert texts.keys() == {each.id for each in utterances}
    score, kept = made.score("hub5_00", utterances, texts), result["hub5_00"]
    assert kept["wer"] == score.total.rate and score.subsets.keys() == {"SWB", "CH"}
    for count in ("words", "errors"):
        assert getattr(score.total, count) == sum(getattr(part, count) for part in score.subsets.values())
    assert {name: part["wer"] for name, part in kept["subsets"].items()} == {
        n: r.rate for n, r in score.subsets.items()
    }
    assert (kept["glm"], len(kept["glm_sha256"]), kept["fillers"]) == ("las_generated.glm", 64, "removed")
    assert "glm" not in result["dev"] and made.provenance("dev") == {}
    assert all(f"hub5_00 {part}: " in (run / "log.txt").read_text() for part in ("SWB", "CH"))
