"""Switchboard: utterances, sides, development parts, the cap, what is missing, and a training tested on Hub5."""

import importlib.util
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sample_trees
import telephone
import tiny
from hypothesis import given
from hypothesis import strategies as st

from las.config import build
from las.data.corpora import isip_transcripts, switchboard
from las.data.corpora.switchboard import Switchboard, capped
from las.data.tokenizers import Characters
from las.runtime.errors import ConfigError, DataError

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
needs_espeak = pytest.mark.skipif(
    importlib.util.find_spec("espeakng_loader") is None,
    reason="eSpeak NG is missing: pip install 'las-asr[synth]'",
)


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


def test_a_segment_is_cut_at_the_end_of_its_call_and_named_where_that_is_too_much(tree: Path, tmp_path: Path) -> None:
    cut = corpus(tree).utterances("train")[2]
    assert (cut.start_s, cut.duration_s) == (2.5, 17.5)
    assert any("1 segments end after their call" in note for note in corpus(tree).notes())
    telephone.call(tree / "swb1_d1" / "data" / "sw02001.sph", seconds=19.6)
    made = corpus(tree)
    problem = made.problems(made.utterances("train"))
    assert [each.utterance_id for each in problem] == ["sw02001-B_000250-002020"]
    assert "ends at 19.600 s, the utterance at 20.200 s" in problem[0].reason


def test_noises_are_left_out_or_kept(tree: Path) -> None:
    kept = corpus(tree, noises="kept").utterances("train")
    assert "[laughter] oh well" in [each.text for each in kept]
    assert "[noise]" in [each.text for each in kept]
    assert any("1 segments hold nothing but noises" in note for note in corpus(tree).notes())
    assert not any("nothing but noises" in note for note in corpus(tree, noises="kept").notes())
    assert corpus(tree).normalise("Oh [noise] well [laughter]") == ["oh", "well"]


def test_names_may_be_in_upper_case_and_without_a_zero(tree: Path) -> None:
    for path in sorted(tree.rglob("*"), reverse=True):
        path.rename(path.with_name(path.name.upper().replace("SW0", "SW")))
    assert len(corpus(tree).utterances("train")) == 4


def test_transcripts_may_lie_elsewhere(tree: Path, tmp_path: Path) -> None:
    transcripts = (tree / "swb_ms98_transcriptions").rename(tmp_path / "text")
    with pytest.raises(DataError, match=r"no transcripts in .*swb(?s:.*)A right tree looks like this"):
        corpus(tree).utterances("train")
    assert len(corpus(tree, transcripts=str(transcripts)).utterances("train")) == 4


def test_missing_audio_and_transcripts_are_named(tree: Path) -> None:
    telephone.call(tree / "sw02007.sph")
    telephone.transcript(tree, "2009A", [(0.0, 1.0, "gone")])
    made = corpus(tree)
    assert len(made.utterances("train")) == 4
    notes = made.notes()
    assert "swb: a partial copy, 3 of 2438 calls" in notes
    assert "swb: 2 sides of calls have no transcript: sw02007-A, sw02007-B" in notes
    assert "swb: 1 sides of calls have no audio: sw02009-A" in notes


def test_a_copy_that_is_not_whole_says_what_is_missing(tree: Path) -> None:
    (tree / "swb_ms98_transcriptions" / "20" / "2005" / "sw2005B-ms98-a-trans.text").unlink()
    with pytest.raises(
        DataError, match=r"not the whole of Switchboard: a partial copy, 2 of 2438.*sw02005-B(?s:.*)partial"
    ):
        corpus(tree, partial=False).utterances("train")


def test_a_whole_copy_has_its_number_of_segments(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switchboard, "NUM_CALLS", (1, 2))
    with pytest.raises(DataError, match=r"6 segments hold more than silence, expected 264,333 within 0\.5 %"):
        corpus(tree, partial=False).utterances("train")
    monkeypatch.setattr(switchboard, "NUM_SEGMENTS", 6)
    whole = corpus(tree, partial=False)
    assert len(whole.utterances("train")) == 4
    assert not any("partial" in note for note in whole.notes())


def test_a_call_that_is_there_twice_and_a_copy_without_calls_are_errors(tree: Path, tmp_path: Path) -> None:
    twin = telephone.call(tree / "copy" / "sw2005.sph")
    with pytest.raises(DataError, match=r"the same call as .*\. Remove one of them"):
        corpus(tree).utterances("train")
    twin.unlink()
    with pytest.raises(DataError, match="there is no such folder"):
        corpus(tmp_path / "none").utterances("train")
    with pytest.raises(DataError, match="no calls in"):
        corpus(tree / "swb_ms98_transcriptions").utterances("train")
    (tmp_path / "short").mkdir()
    with pytest.raises(DataError, match=r"1 \+ 0 utterances are too few"):
        corpus(telephone.switchboard(tmp_path / "short", {"2001A": [(0.0, 1.0, "oh")]})).utterances("dev")


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
    assert any("13 training utterances are left out, whose text occurs more than 5 times" in n for n in made.notes())
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
    ("settings", "reason"),
    [
        ({"dev": "kladi"}, r"corpus\.dev=kladi: expected one of kaldi, z20\. Did you mean kaldi"),
        ({"noises": "keep"}, r"corpus\.noises=keep"),
        ({"fillers": "gone"}, r"corpus\.fillers=gone: expected one of removed, kept"),
        ({"max_repeats": 0}, r"corpus\.max_repeats=0 leaves nothing"),
    ],
)
def test_unknown_values_are_named(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        corpus(tmp_path, **settings)


def test_manifests_follow_the_settings_and_the_names_of_the_files(tree: Path, tmp_path: Path) -> None:
    made = corpus(tree)
    settings = [made.settings(), corpus(tree, noises="kept").settings(), corpus(tree, dev="z20").settings()]
    settings += [corpus(tree, max_repeats=2).settings(), corpus(tree, transcripts=str(tmp_path)).settings()]
    assert len({json.dumps(each) for each in settings}) == len(settings)
    before = made.inventory()
    telephone.call(tree / "sw02007.sph")
    assert set(corpus(tree).inventory()) - set(before) == {str(tree / "sw02007.sph")}
    with pytest.raises(ConfigError, match="swb has no split 'test'"):
        made.utterances("test")


def test_the_card_makes_the_corpus(tree: Path) -> None:
    with pytest.raises(ConfigError, match=r"corpus\.root has no value"):
        build.compose("train", ["corpus=switchboard_300"])
    card = build.compose("train", ["corpus=switchboard_300", f"corpus.root={tree}", "corpus.hub5_01=/hub5"])
    made = build.build(card["corpus"])
    assert isinstance(made, Switchboard)
    assert (made.splits, made.sample_rate, made.channels, made.metric) == (("train", "dev", "hub5_01"), 8000, 2, "wer")
    assert "".join(made.tokens.symbols[1:]) == isip_transcripts.ALPHABET


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated Switchboard, Hub5'00 and Hub5'01."""
    root = tmp_path_factory.mktemp("trees")
    for kind in ("switchboard", "hub5_00", "hub5_01"):
        sample_trees.write(kind, root / kind)
    return root


def overrides(trees: Path, root: Path) -> list[str]:
    places = {
        key: trees / kind for key, kind in (("root", "switchboard"), ("hub5_00", "hub5_00"), ("hub5_01", "hub5_01"))
    }
    own = [f"corpus.{key}={place}" for key, place in places.items()]
    return ["corpus=switchboard_300", "corpus.partial=true", *own, f"data_dir={root / 'data'}"]


@needs_espeak
def test_prepare_prints_every_split_and_what_to_know(trees: Path, tmp_path: Path, las: Callable[..., Any]) -> None:
    answer = las("prepare", *overrides(trees, tmp_path))
    assert answer.code == 0, answer.err
    printed = answer.out + answer.err
    for split, count, speakers in (("train", 51, 8), ("dev", 5, 1), ("hub5_00", 20, 4), ("hub5_01", 20, 4)):
        row = next(line for line in printed.splitlines() if line.strip("│ ").startswith(split + " "))
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        assert (int(cells[1]), int(cells[3])) == (count, speakers)
    for note in ("4 of 2438 calls", "8 segments hold nothing but noises", "not the test of published results"):
        assert note in " ".join(printed.split())
    assert "0 of 51 training utterances cannot be used" in printed


@pytest.mark.slow
@needs_espeak
def test_a_training_ends_with_hub5_scored_in_its_parts(trees: Path, tmp_path: Path) -> None:
    from las.cli import train as cli_train

    more = [*tiny.SHORT, "schedule=constant", f"run_dir={tmp_path / 'run'}", *tiny.MODEL, *tiny.QUICK]
    result = cli_train.train([*overrides(trees, tmp_path), *more])
    assert list(result["splits"]) == ["dev", "hub5_00", "hub5_01"]
    log = (tmp_path / "run" / "log.txt").read_text()
    assert all(f"hub5_00 {part}: " in log for part in ("SWB", "CH"))
    lines = (tmp_path / "run" / "hypotheses.hub5_00.jsonl").read_text().splitlines()
    texts = {each["id"]: each["text"] for each in map(json.loads, lines)}
    made = build.build(build.compose("train", overrides(trees, tmp_path))["corpus"])
    utterances = made.utterances("hub5_00")
    assert texts.keys() == {each.id for each in utterances}
    score = made.score("hub5_00", utterances, texts)
    assert result["splits"]["hub5_00"]["wer"] == score.total.rate
    assert score.subsets.keys() == {"SWB", "CH"}
    assert score.total.words == sum(part.words for part in score.subsets.values())
    assert score.total.errors == sum(part.errors for part in score.subsets.values())
    kept = result["splits"]["hub5_00"]
    assert {name: part["wer"] for name, part in kept["subsets"].items()} == {
        n: r.rate for n, r in score.subsets.items()
    }
    assert (kept["glm"], len(kept["glm_sha256"]), kept["fillers"]) == ("las_generated.glm", 64, "removed")
    assert "glm" not in result["splits"]["dev"] and made.provenance("dev") == {}
