"""TIMIT: the counts of Kaldi's splits on a tree of the full shape, the real sample, and what a wrong copy says."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
from refusals import refused

from las.data.audio import files
from las.data.corpora import timit
from las.data.corpora.timit import CORE_TEST, DEV, TIMIT
from las.data.tokenizers import Phones
from las.scoring import phones

RATE = 16000
SENTENCES = ["sa1", "sa2", *(f"si{number}" for number in range(3)), *(f"sx{number}" for number in range(5))]
LABELS = "0 100 h#\n100 200 ax-h\n200 240 q\n240 300 kcl\n300 390 h#\n"


def add(folder: Path, speaker: str, templates: dict[str, Path], upper: bool) -> None:
    """One speaker's ten sentences, as links to three small files."""
    place = folder / (speaker.upper() if upper else speaker)
    place.mkdir(parents=True)
    for sentence in SENTENCES:
        for extension, template in templates.items():
            name = f"{sentence}.{extension}"
            os.link(template, place / (name.upper() if upper else name))


def tree(root: Path, train: list[str], test: list[str], upper: bool = True) -> Path:
    """A tree of TIMIT's layout with these speakers."""
    templates = {extension: root / f"template.{extension}" for extension in ("wav", "phn", "txt", "wrd")}
    root.mkdir(parents=True, exist_ok=True)
    soundfile.write(templates["wav"], np.ones(400, np.int16), RATE)
    templates["phn"].write_text(LABELS)
    templates["txt"].write_text("0 400 Hello.\n")
    templates["wrd"].write_text("0 400 hello\n")
    for part, speakers in (("train", train), ("test", test)):
        for index, speaker in enumerate(speakers):
            region = f"dr{index % 8 + 1}"
            add(root / (f"{part}/{region}".upper() if upper else f"{part}/{region}"), speaker, templates, upper)
    return root


def corpus(root: Path, **settings: object) -> TIMIT:
    size = settings.get("phone_set", 48)
    return TIMIT("timit", str(root), Phones(phone_set=size), **settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All 630 speakers; the test part holds the 94 that no split uses, too."""
    train = [f"{'mf'[number % 2]}tr{number:03}" for number in range(462)]
    unused = [f"mun{number:03}" for number in range(94)]
    return tree(tmp_path_factory.mktemp("LDC93S1") / "TIMIT", train, [*sorted(DEV), *sorted(CORE_TEST), *unused])


def test_the_whole_corpus_has_the_counts_of_kaldi(whole: Path) -> None:
    assert (len(DEV), len(CORE_TEST), len(DEV & CORE_TEST)) == (50, 24, 0)
    found = corpus(whole)
    prepared = {split: found.utterances(split) for split in found.splits}
    assert {split: len(listed) for split, listed in prepared.items()} == {"train": 3696, "dev": 400, "test": 192}
    speakers = {split: {utterance.speaker for utterance in listed} for split, listed in prepared.items()}
    assert (len(speakers["train"]), speakers["dev"], speakers["test"]) == (462, DEV, CORE_TEST)
    for listed in prepared.values():
        ids = [utterance.id for utterance in listed]
        assert ids == sorted(set(ids)) and not any("_sa" in identity for identity in ids)
    length_s = 400 / RATE
    assert found.table(prepared)[1] == ("dev", 400, pytest.approx(400 * length_s / 3600), 50, 1600, length_s, length_s)
    assert found.notes() == []


def test_a_copy_that_lacks_some_says_which_and_partial_takes_it(tmp_path: Path) -> None:
    root = tree(tmp_path / "TIMIT", [f"mtr{number:03}" for number in range(3)], sorted(DEV)[:49])
    for extension in ("WAV", "PHN", "TXT"):
        (root / "TRAIN" / "DR1" / "MTR000" / f"SX0.{extension}").unlink()
    train = "train: 23 utterances of 3 speakers, expected 3696 of 462; missing mtr000 (7 of 8 sentences)"
    dev = f"dev: 392 utterances of 49 speakers, expected 400 of 50; missing {sorted(DEV)[-1]}"
    test = f"test: 0 utterances of 0 speakers, expected 192 of 24; missing {sorted(CORE_TEST)[0]}"
    refused(f"{train}|{dev}|{test}|and 19 more|corpus.partial=true", corpus(root).utterances, "dev")
    sample = corpus(root, partial=True)
    assert [len(sample.utterances(split)) for split in sample.splits] == [23, 392, 23]
    assert sample.utterances("test") == sample.utterances("train")
    noted = ("train: 23 |of 3 |3696 of 462", "dev: 392 |of 49 |400 of 50", "test: no core test|training utterances")
    for note, words in zip(sample.notes()[1:], noted, strict=True):
        assert all(word in note for word in words.split("|"))


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("inside", ["", "TIMIT", "timit", "timit/TIMIT", "data"])
def test_any_case_and_the_folder_above(tmp_path: Path, upper: bool, inside: str) -> None:
    tree(tmp_path / inside, ["fcjf0"], [], upper)
    found = corpus(tmp_path, partial=True).utterances("train")
    assert [utterance.id for utterance in found] == [f"fcjf0_{sentence}" for sentence in sorted(SENTENCES[2:])]
    assert {utterance.speaker for utterance in found} == {"fcjf0"}


def test_mixed_case_and_foreign_files(tmp_path: Path) -> None:
    place = tree(tmp_path, ["fcjf0"], [], upper=False) / "train" / "dr1" / "fcjf0"
    (place / "sx0.wav").rename(place / "SX0.Wav")
    (place / "sx1.phn").rename(place / "Sx1.PHN")
    (place / "sx2.wav.wav").write_bytes(b"a converted copy")
    (place / "._sx3.wav").write_bytes(b"a resource fork")
    (place.parent / ".DS_Store").touch()
    found = corpus(tmp_path, partial=True)
    assert len(found.utterances("train")) == 8 and found.problems(found.utterances("train")) == []


@pytest.mark.parametrize(
    ("phone_set", "text"), [(61, "h# ax-h q kcl h#"), (48, "sil ax cl sil"), (39, "sil ah sil sil")]
)
def test_text_is_folded_and_the_alignment_is_not(tmp_path: Path, phone_set: int, text: str) -> None:
    found = corpus(tree(tmp_path, ["fcjf0"], []), partial=True, phone_set=phone_set)
    utterance = found.utterances("train")[0]
    assert utterance.text == text
    assert [interval.symbol for interval in utterance.alignment] == ["h#", "ax-h", "q", "kcl", "h#"]
    assert (utterance.alignment[1].start_s, utterance.alignment[1].end_s) == (100 / RATE, 200 / RATE)
    assert (utterance.start_s, utterance.duration_s, utterance.channel) == (0.0, 400 / RATE, 0)
    assert found.normalise(utterance.text) == ["sil", "ah", "sil", "sil"]
    assert found.tokens.decode(found.tokens.encode(utterance.text)) == utterance.text


def test_normalise_takes_any_set_and_names_strangers(tmp_path: Path) -> None:
    found = corpus(tmp_path)
    for size in phones.SIZES:
        assert set(found.normalise(" ".join(phones.phone_set(size)))) == set(phones.phone_set(39))
    assert found.normalise("") == []
    refused("'hello'", found.normalise, "sil hello")
    refused("40 phones", lambda: TIMIT("timit", str(tmp_path), Phones(phone_set=48), phone_set=40))


@pytest.mark.parametrize("extension", ["WAV", "PHN", "TXT"])
def test_a_missing_file_is_named(tmp_path: Path, extension: str) -> None:
    missing = tree(tmp_path, ["fcjf0"], []) / "TRAIN" / "DR1" / "FCJF0" / f"SX3.{extension}"
    missing.unlink()
    refused(f"{missing} is missing", corpus(tmp_path, partial=True).utterances, "train")


@pytest.mark.parametrize(
    ("labels", "line", "says"),
    [
        ("0 100 h#\n100 200 aaa\n", 2, "'aaa'|Did you mean"),
        ("0 100 h#\n100 200 sil\n", 2, "'sil'"),
        ("0 100\n", 1, "start end label"),
        ("0 1.5 h#\n", 1, "start end label"),
        ("-5 100 h#\n", 1, "start end label"),
        ("0 100 h#\n\n200 150 aa\n", 3, "before it starts"),
        ("50 100 h#\n20 150 aa\n", 2, "the label above"),
        ("0 400 h#\n400 2001 h#\n", 2, "0.125 s|0.025 s"),
        ("", None, "no phone labels"),
        ("\n \n", None, "no phone labels"),
        ("\udcff", 1, "UTF-8"),
    ],
)
def test_a_bad_label_is_named_by_file_and_line(tmp_path: Path, labels: str, line: int | None, says: str) -> None:
    path = tree(tmp_path, ["fcjf0"], []) / "TRAIN" / "DR1" / "FCJF0" / "SX3.PHN"
    path.unlink()
    path.write_bytes(labels.encode("utf-8", "surrogateescape"))
    where = f"{path}: " if line is None else f"{path}:{line}: "
    refused(f"{where}|{says}", corpus(tmp_path, partial=True).utterances, "train")


def test_labels_may_end_early_and_a_little_late(tmp_path: Path) -> None:
    path = tmp_path / "x.phn"
    path.write_text("0 2000 h#\n")
    assert timit.read_phones(path, 400 / RATE) == timit.read_phones(path, 0.0) == timit.read_phones(path, 60.0)


def test_a_wrong_tree_shows_a_right_one(tmp_path: Path) -> None:
    (tmp_path / "TRAIN" / "speaker1").mkdir(parents=True)
    for root in (tmp_path, tmp_path / "absent"):
        refused(f"{root}: |TIMIT/TRAIN/DR1/FCJF0/SA1.WAV", corpus(root).utterances, "train")
    (tmp_path / "TRAIN" / "DR1").mkdir()
    refused("no training utterances", corpus(tmp_path, partial=True).utterances, "train")


def test_completing_a_partial_copy_is_noticed(tmp_path: Path) -> None:
    root = tree(tmp_path / "a", ["fcjf0"], [])
    assert len(corpus(root, partial=True).prepare(tmp_path / "prepared")["dev"]) == 8
    other = tree(tmp_path / "b", [], ["faks0", "fdac1"])
    (other / "TEST").rename(root / "TEST")
    dev = corpus(root, partial=True).prepare(tmp_path / "prepared")["dev"]
    assert {utterance.speaker for utterance in dev} == {"faks0", "fdac1"}


def test_the_real_sample(shared_data, tmp_path: Path) -> None:
    sample = corpus(shared_data / "timit_sample", partial=True)
    prepared = sample.prepare(tmp_path)
    assert [len(prepared[split]) for split in sample.splits] == [128, 128, 128]
    assert sample.problems(prepared["train"]) == []
    assert sample.table(prepared)[0][:4] == ("train", 128, pytest.approx(6.50 / 60, abs=1e-3), 16)
    labels = {interval.symbol for utterance in prepared["train"] for interval in utterance.alignment}
    assert labels <= set(phones.LABELS) and len(labels) >= 60
    utterances = {utterance.id: utterance for utterance in prepared["train"]}
    assert utterances["fvmh0_si836"].duration_s == 68813 / RATE
    short = utterances["madc0_si1367"]
    assert short.duration_s - short.alignment[-1].end_s == pytest.approx(2802 / RATE)
    for utterance in prepared["train"]:
        assert len(files.load(utterance.audio)) == round(utterance.duration_s * RATE)
        spoken = [interval for interval in utterance.alignment if interval.symbol != "q"]
        assert len(utterance.text.split()) == len(sample.normalise(utterance.text)) == len(spoken)
        assert utterance.text.split()[0] == utterance.text.split()[-1] == "sil"
