"""Recordings described by files: splits, symbols, rates, and every kind of bad input."""

import csv
import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import soundfile
from console import Las
from refusals import refused
from tiny import sound

from las.data import manifest
from las.data.corpora.files import FilesCorpus
from las.data.quality import QualityLimits
from las.data.text_rules import TextRules
from las.runtime.errors import ConfigError
from las.training import data_preparation

Prepare = Callable[..., str]
HEADER = ("audio", "text", "speaker")
SEGMENTS = ("audio", "text", "channel", "start", "end")
Row = Sequence[object]


def table(path: Path, rows: Sequence[Row], header: Sequence[str] = HEADER) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def recordings(root: Path, speakers: int = 6, each: int = 2) -> list[Row]:
    """Sounds of a few speakers, with rows that describe them."""
    rows = []
    for number in range(speakers * each):
        name = f"{number % speakers}_{number // speakers}.wav"
        sound(root / name, 0.2 + 0.01 * number, number)
        rows.append((name, ("Yes!", "no one")[number % 2], f"s{number % speakers}"))
    return rows


@pytest.fixture
def prepare(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Prepares a corpus in the folder of the test; returns what was printed, and the problems of its training part."""
    monkeypatch.chdir(tmp_path)

    def run(name: str = "files", **options: Any) -> str:
        corpus = FilesCorpus(name, **{"train": "all.csv", "resampled": f"data/resampled/{name}", **options})
        data = data_preparation.prepare(corpus, Path("data"), QualityLimits())
        problems = [f"{problem.utterance_id}: {problem.reason}" for problem in data.problems("train")]
        unknown = [
            f"{split}: {data.unknown(split)} {data.remedy()}" for split in corpus.splits if data.unknown(split).share
        ]
        return "\n".join([capsys.readouterr().out, *problems, *unknown])

    return run


def said(out: str, words: str) -> bool:
    """Whether a line of what was printed has all of some key words, separated by |."""
    return any(all(word in line for word in words.split("|")) for line in out.splitlines())


def written(root: Path, split: str, name: str = "files") -> list[manifest.Utterance]:
    return manifest.read(root / "data/manifests" / name / f"{split}.jsonl")


def test_one_command_prepares_a_table(las: Las, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "all.csv", recordings(tmp_path))
    text = ["corpus.text.map={Y: Ü, !: .}", "corpus.text.drop=[x,é]"]
    given = ["corpus=files", "corpus.train=all.csv", "corpus.dev_share=0.2", "corpus.name=mine", *text]
    answer = las("prepare", *given).succeeds_quietly()
    folder = "data/manifests/mine"
    places = [
        answer.out.index(words)
        for words in (
            "train: 12 utterances of all.csv, read as csv\n",
            "1 of 6 speakers (s5), 2 of 12 utterances (16.7 %), corpus.seed=1\n",
            "7: ' ' '.' 'e' 'n' 'o' 's' 'Ü'\n",
            "  map: 6 texts, '!' 6 times, 'Y' 6 times; 'Yes!' becomes 'Ües.'\n",
            f"manifests: {folder}/train.jsonl, {folder}/dev.jsonl, {folder}/test.jsonl\n",
            "0 of 8 training utterances",
        )
    ]
    assert places == sorted(places)
    splits = {split: written(tmp_path, split, "mine") for split in ("train", "dev", "test")}
    assert {split: len(listed) for split, listed in splits.items()} == {"train": 8, "dev": 2, "test": 2}
    speakers = [{each.speaker for each in listed} for listed in splits.values()]
    assert sum(map(len, speakers)) == len(set().union(*speakers)) == 6
    first = splits["train"][0]
    assert first.audio == str(tmp_path / f"{first.id}.wav")
    assert first.duration_s == soundfile.info(first.audio).duration
    test = tmp_path / "data/manifests/mine/test.jsonl"
    assert "WER 0.0 %" in las("score", f"reference={test}", f"hypothesis={test}").out


def test_rules_for_texts_and_symbols(prepare: Prepare, tmp_path: Path) -> None:
    rows = [(name, "Süß, ja." if index else "nein", who) for index, (name, _, who) in enumerate(recordings(tmp_path))]
    table(tmp_path / "all.csv", rows)
    table(tmp_path / "dev.csv", [(rows[0][0], "éjé? ñein", "x")])
    out = prepare(dev="dev.csv", test_share=0.0)
    assert not (tmp_path / "data/manifests/files/test.jsonl").exists()
    assert "dev: 4 of 9 symbols (44.4 %): 'é' 2 times (0_0), '?' once (0_0), 'ñ' once (0_0)" in out
    assert """'corpus.text.drop="?éñ"'""" in out
    rules = TextRules(map=["ß: ss", "ñ: n"], drop=["é"], lowercase=True, remove_punctuation=True)
    out = prepare(dev="dev.csv", test_share=0.0, text=rules)
    assert "dev: 4 of" not in out and said(out, "characters|, 8: |'a'|'j'|'ü'")
    assert "  map: 12 texts, 'ß' 11 times, 'ñ' once; 'Süß,' becomes 'Süss,'" in out
    assert [each.text for each in written(tmp_path, "dev")] == ["j nein"]
    table(tmp_path / "dev.csv", [(rows[0][0], "nein <unk>", "x")])
    assert """'corpus.text.drop="<>ku"'""" in prepare(dev="dev.csv", test_share=0.0, unit="bpe", pieces=14)


def test_too_many_pieces_name_the_key(prepare: Prepare, tmp_path: Path) -> None:
    table(tmp_path / "all.csv", recordings(tmp_path))
    refused("largest|corpus.pieces", lambda: prepare(unit="bpe"))


def test_rates_channels_and_stretches(prepare: Prepare, tmp_path: Path) -> None:
    for name, rate, channels in (("a.wav", 8000, 1), ("b.wav", 8000, 2), ("c.wav", 22050, 1)):
        sound(tmp_path / name, 1.0, rate=rate, channels=channels)
    samples, rate = soundfile.read(tmp_path / "a.wav")
    soundfile.write(tmp_path / "d.mp3", samples, rate)
    rows = [
        ("a.wav", "one", "", 0, ""),
        ("b.wav", "two", 1, 0.25, 0.75),
        ("c.wav", "one", "", 0.5, 1.005),
        ("d.mp3", "two", 0, 0.5, 0.9),
    ]
    table(tmp_path / "all.csv", rows, SEGMENTS)
    out = prepare(dev="all.csv", test_share=0.0)
    assert said(out, "8,000 Hz (3), 22,050 Hz (1)|than 8,000 Hz|into data/resampled/files")
    assert said(out, "dev: recordings|train too (4): a, b-1-0000250-0000750")
    listed = {each.id: each for each in written(tmp_path, "train")}
    assert list(listed) == ["a", "b-1-0000250-0000750", "c-0000500-0001005", "d-0-0000500-0000900"]
    stretches = [(each.channel, each.start_s, pytest.approx(each.duration_s)) for each in listed.values()]
    assert stretches == [(0, 0.0, 1.0), (1, 0.25, 0.5), (0, 0.5, 0.5), (0, 0.5, 0.4)]
    copy = Path(listed["c-0000500-0001005"].audio)
    assert copy.is_relative_to(tmp_path / "data/resampled/files/8000") and soundfile.info(copy).samplerate == 8000
    copy.unlink()
    assert not said(prepare(dev="all.csv", test_share=0.0), "c-0000500-0001005: ") and copy.exists()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("0_0.wav", "no", "x")], "(1):|all.csv:6: 0_0|all.csv:2"),
        ([(f"gone{n}.wav", "no", "x") for n in range(12)], "(12):|all.csv:6: gone0.wav|2 more|corpus.audio_root"),
    ],
)
def test_bad_rows(rows: list[Row], says: str, prepare: Prepare, tmp_path: Path) -> None:
    table(tmp_path / "all.csv", [*recordings(tmp_path, speakers=4, each=1), *rows])
    refused(says, prepare)
    assert not (tmp_path / "data").exists()


def test_stretches_and_channels_that_are_not_there(prepare: Prepare, tmp_path: Path) -> None:
    sound(tmp_path / "a.wav", 1.0)
    sound(tmp_path / "b.wav", 1.0, channels=2)
    two = ("b.wav", "two", "", 0, "")
    table(tmp_path / "all.csv", [("a.wav", "one", "", 0.5, 1.5), two, ("b.wav", "six", 2, 0.5, "")], SEGMENTS)
    times = "all.csv:2: a-0000500-0001500: |1.500 s|1.000 s"
    channels = "all.csv:3: b: |2 channels|corpus.channel=0|all.csv:4: b-2-0000500-end: |channel 2"
    refused(f"(3):|{times}|{channels}", lambda: prepare(dev="all.csv", test_share=0.0))
    table(tmp_path / "all.csv", [two], SEGMENTS)
    prepare(dev="all.csv", test_share=0.0, channel=1)
    assert written(tmp_path, "dev")[0].channel == 1


def test_segments_that_end_late_are_cut_and_named(prepare: Prepare, tmp_path: Path) -> None:
    """As Kaldi's extract-segments cuts them: by less than 0.5 s."""
    folder, ends = tmp_path / "kaldi", {"a": 1.0, "b": 1.009, "c": 1.05, "d": 1.499, "e": 0.9}
    folder.mkdir()
    for name in ends:
        sound(folder / f"{name}.wav", 1.0)
    for name, line in (("wav.scp", "{0} {0}.wav"), ("text", "{0}-1 one two"), ("segments", "{0}-1 {0} 0.25 {1}")):
        (folder / name).write_text("".join(line.format(*each) + "\n" for each in ends.items()))
    out = prepare(train="kaldi", dev="kaldi", test_share=0.0)
    assert out.count("after their audio") == out.count("(2): c-1, d-1\n") == 2
    durations = {each.id[0]: round(each.duration_s, 3) for each in written(tmp_path, "train")}
    assert durations == {"a": 0.75, "b": 0.75, "c": 0.75, "d": 0.75, "e": 0.65}
    (folder / "segments").write_text("".join(f"{name}-1 {name} 0.25 1.5\n" for name in ends))
    refused("(5):|segments:1: a-1: |1.500 s", lambda: prepare(train="kaldi", dev="kaldi", test_share=0.0))


def test_empty_texts_are_counted_and_named(prepare: Prepare, tmp_path: Path) -> None:
    rows = recordings(tmp_path, speakers=4, each=1)
    table(tmp_path / "all.csv", [(rows[0][0], "", ""), *rows[1:]])
    table(tmp_path / "dev.csv", [("1_0.wav", " ", "")])
    out = prepare(dev="dev.csv", test_share=0.0)
    for words in ("train: empty texts", "(1): all.csv:2", "dev: empty texts", "(1): dev.csv:2", "0_0: the transcript"):
        assert words in out


def test_speakers_and_recordings_in_two_splits_are_named_and_not_refused(prepare: Prepare, tmp_path: Path) -> None:
    """Also recordings behind links."""
    rows = recordings(tmp_path)
    table(tmp_path / "all.csv", rows[:8])
    table(tmp_path / "test.csv", rows[8:])
    assert said(prepare(test="test.csv"), "test: speakers|train too (3): s2, s3, s4. ")
    (tmp_path / "real").mkdir()
    table(tmp_path / "real/all.csv", recordings(tmp_path / "real", speakers=3, each=1))
    (tmp_path / "linked").symlink_to("real")
    out = prepare(train=["real/all.csv", "linked/all.csv"], dev="linked/all.csv", test_share=0.0)
    assert said(out, "train: recordings|once (6): real-0_0, ") and not said(out, "dev: recordings|once")
    assert said(out, "dev: recordings|train too (3): ") and not said(out, "train: |train too")


def test_utterances_are_held_out_where_speakers_are_unknown(prepare: Prepare, tmp_path: Path) -> None:
    table(tmp_path / "all.csv", [(name, text, "") for name, text, _ in recordings(tmp_path)])
    out = prepare(dev_share=0.25)
    assert said(out, "dev: held out|single utterances|3 of 12 utterances (25.0 %), corpus.seed=1")
    before = written(tmp_path, "dev")
    prepare(dev_share=0.25, seed=2)
    assert written(tmp_path, "dev") != before
    table(tmp_path / "all.csv", recordings(tmp_path, speakers=2, each=1))
    refused("(2)|dev and test", prepare)


def test_a_warning_where_far_more_is_held_out_than_asked_for(prepare: Prepare, tmp_path: Path) -> None:
    table(tmp_path / "all.csv", recordings(tmp_path, speakers=3, each=8))
    options = ("dev_share=0.05", "test_share=0.05", "hold_out=utterances", "dev=...", "test=...", "test_share=0")
    assert said(prepare(), "warning: |dev and test: 67 %|" + "|".join(f"corpus.{option} " for option in options))
    assert said(prepare(test_share=0.0), "warning: |dev: 33 %")
    for options in ({"hold_out": "utterances"}, {"dev_share": 0.34, "test_share": 0.34}):
        assert "warning" not in prepare(**options)
    assert "because of corpus.hold_out=utterances: 1 of 24" in prepare(hold_out="utterances")
    table(tmp_path / "all.csv", recordings(tmp_path, speakers=3, each=1))
    assert said(prepare(test_share=0.0, hold_out="utterances"), "warning: |dev: 33 %")


@pytest.mark.parametrize("unit", ["bpe", "characters", "words", "phones"])
def test_unk_in_texts_is_usable_and_counted(unit: str, prepare: Prepare, tmp_path: Path) -> None:
    options: dict[str, Any] = {"unit": unit, "pieces": 16}
    texts = ["<unk> no one", "yes no", "one <unk>", "no <unk> yes <unk>"]
    rows = [(name, texts[number % 4], who) for number, (name, _, who) in enumerate(recordings(tmp_path))]
    table(tmp_path / "all.csv", rows)
    out = prepare(dev="all.csv", test_share=0.0, **options)
    assert out.count(": <unk> is in 9 of 12 texts") == 2 and "unknown symbol" not in out
    corpus = FilesCorpus("files", "all.csv", "copies", dev="all.csv", test_share=0.0, **options)
    corpus.prepare(tmp_path / "data")
    assert [corpus.tokens.decode(corpus.tokens.encode(text)) for text in texts] == texts
    assert corpus.metric == ("phone_error_rate" if unit == "phones" else "wer")
    assert "<unk> is in" not in prepare(dev="all.csv", test_share=0.0, text=TextRules(drop=["<unk>"]), **options)


def test_files_that_cannot_be_read_are_left_to_the_check(prepare: Prepare, tmp_path: Path) -> None:
    """Also a damaged one of another rate."""
    table(tmp_path / "all.csv", recordings(tmp_path))
    first = tmp_path / "0_0.wav"
    samples, _ = soundfile.read(first)
    soundfile.write(first, samples, 44100, format="FLAC")
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 2])
    out = prepare()
    assert "16,000 Hz (11), 44,100 Hz (1)" in out and f"\n0_0: {first}: the file is" in out
    first.write_bytes(b"no audio")
    assert f"\n0_0: {first}: not audio" in prepare()
    for path in tmp_path.glob("*.wav"):
        path.write_bytes(b"no audio")
    refused(".wav: not audio", prepare)


def test_file_names_that_occur_twice_get_their_folders(prepare: Prepare, tmp_path: Path) -> None:
    for number, folder in enumerate(("ann", "bob", "eve", "joe")):
        (tmp_path / "speech" / folder).mkdir(parents=True)
        sound(tmp_path / "speech" / folder / "1.wav", 0.3, number)
        (tmp_path / "speech" / folder / "1.txt").write_text("one two\n")
    prepare(train="speech")
    listed = [each for split in ("train", "dev", "test") for each in written(tmp_path, split)]
    assert sorted((each.id, each.speaker) for each in listed) == [(f"{n}-1", n) for n in ("ann", "bob", "eve", "joe")]


def test_an_own_manifest_is_read_again_as_it_is(prepare: Prepare, tmp_path: Path) -> None:
    table(tmp_path / "all.csv", recordings(tmp_path))
    prepare()
    path, alignment = tmp_path / "data/manifests/files/train.jsonl", (manifest.Interval(0.0, 0.1, "a"),)
    manifest.write(path, [dataclasses.replace(each, alignment=alignment) for each in manifest.read(path)])
    prepare("again", **{split: f"data/manifests/files/{split}.jsonl" for split in ("train", "dev", "test")})
    for split in ("train", "dev", "test"):
        assert written(tmp_path, split, "again") == written(tmp_path, split)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"unit": "wrods"}, "unit='wrods'|mean words"),
        ({"format": "cvs"}, "corpus.format=cvs|mean csv"),
        ({"hold_out": "speaker"}, "hold_out='speaker'|mean speakers"),
        ({"dev_share": 0.0}, "corpus.dev_share=0"),
        ({"test_share": 2.0}, "test_share=2.0|0 to 0.5"),
        ({"columns": {"adio": "x"}}, "columns='adio'|mean audio"),
        ({"channel": -1}, "channel=-1"),
        ({"name": "a/b"}, "corpus.name='a/b'"),
    ],
)
def test_settings_that_cannot_be_meant(options: dict[str, Any], says: str) -> None:
    make = functools.partial(FilesCorpus, **{"name": "files", "train": "all.csv", "resampled": "x", **options})
    refused(says, make, kind=ConfigError)
