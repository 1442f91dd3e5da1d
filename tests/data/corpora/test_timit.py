"""TIMIT: the counts of Kaldi's splits on a tree of the full shape, the real sample, and what a wrong copy says."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from las.data.audio import files
from las.data.corpora import timit
from las.data.corpora.timit import CORE_TEST, DEV, TIMIT
from las.data.tokenizers import Phones
from las.runtime.errors import ConfigError, DataError
from las.scoring import phones

RATE = 16000
SENTENCES = ["sa1", "sa2", *(f"si{number}" for number in range(3)), *(f"sx{number}" for number in range(5))]
LABELS = "0 100 h#\n100 200 ax-h\n200 240 q\n240 300 kcl\n300 390 h#\n"
CONFIGS = Path(__file__).parents[3] / "configs"


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


def test_the_lists_are_kaldis_sizes_and_disjoint() -> None:
    assert (len(DEV), len(CORE_TEST), len(DEV & CORE_TEST)) == (50, 24, 0)


def test_the_whole_corpus_has_the_counts_of_kaldi(whole: Path) -> None:
    found = corpus(whole)
    prepared = {split: found.utterances(split) for split in found.splits}
    assert {split: len(listed) for split, listed in prepared.items()} == {"train": 3696, "dev": 400, "test": 192}
    speakers = {split: {utterance.speaker for utterance in listed} for split, listed in prepared.items()}
    assert (len(speakers["train"]), speakers["dev"], speakers["test"]) == (462, DEV, CORE_TEST)
    for listed in prepared.values():
        ids = [utterance.id for utterance in listed]
        assert ids == sorted(set(ids))
        assert not any("_sa" in identity for identity in ids)
    assert found.notes() == []
    row = found.table(prepared)[1]
    assert (row.split, row.utterances, row.speakers, row.symbols) == ("dev", 400, 50, 1600)
    assert row.hours == pytest.approx(400 * 400 / RATE / 3600)
    assert row.shortest_s == row.longest_s == 400 / RATE


def test_a_copy_that_lacks_some_says_which_and_partial_takes_it(whole: Path, tmp_path: Path) -> None:
    train = [f"mtr{number:03}" for number in range(3)]
    root = tree(tmp_path / "TIMIT", train, sorted(DEV)[:49])
    for extension in ("WAV", "PHN", "TXT"):
        (root / "TRAIN" / "DR1" / "MTR000" / f"SX0.{extension}").unlink()
    with pytest.raises(DataError) as raised:
        corpus(root).utterances("dev")
    message = str(raised.value)
    assert "train: 23 utterances of 3 speakers, expected 3696 of 462; missing mtr000 (7 of 8 sentences)" in message
    assert f"dev: 392 utterances of 49 speakers, expected 400 of 50; missing {sorted(DEV)[-1]}" in message
    assert f"test: 0 utterances of 0 speakers, expected 192 of 24; missing {sorted(CORE_TEST)[0]}" in message
    assert "and 19 more" in message
    assert "corpus.partial=true" in message
    sample = corpus(root, partial=True)
    assert [len(sample.utterances(split)) for split in sample.splits] == [23, 392, 23]
    assert sample.utterances("test") == sample.utterances("train")
    assert sample.notes()[1:] == [
        "train: 23 utterances of 3 speakers (the whole corpus: 3696 of 462)",
        "dev: 392 utterances of 49 speakers (the whole corpus: 400 of 50)",
        "test: no core test speakers in this copy: scored on the training utterances",
    ]


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("inside", ["", "TIMIT", "timit", "timit/TIMIT", "data"])
def test_any_case_and_the_folder_above(tmp_path: Path, upper: bool, inside: str) -> None:
    tree(tmp_path / inside, ["fcjf0"], [], upper)
    found = corpus(tmp_path, partial=True).utterances("train")
    assert [utterance.id for utterance in found] == [f"fcjf0_{sentence}" for sentence in sorted(SENTENCES[2:])]
    assert {utterance.speaker for utterance in found} == {"fcjf0"}


def test_mixed_case_and_foreign_files_beside(tmp_path: Path) -> None:
    root = tree(tmp_path, ["fcjf0"], [], upper=False)
    place = root / "train" / "dr1" / "fcjf0"
    (place / "sx0.wav").rename(place / "SX0.Wav")
    (place / "sx1.phn").rename(place / "Sx1.PHN")
    (place / "sx2.wav.wav").write_bytes(b"a converted copy")
    (place / "._sx3.wav").write_bytes(b"a resource fork")
    (root / "train" / "dr1" / ".DS_Store").touch()
    found = corpus(tmp_path, partial=True)
    assert len(found.utterances("train")) == 8
    assert found.problems(found.utterances("train")) == []


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
    with pytest.raises(DataError, match="'hello' is not a TIMIT phone"):
        found.normalise("sil hello")


@pytest.mark.parametrize("extension", ["WAV", "PHN", "TXT"])
def test_a_missing_file_is_named(tmp_path: Path, extension: str) -> None:
    root = tree(tmp_path, ["fcjf0"], [])
    missing = root / "TRAIN" / "DR1" / "FCJF0" / f"SX3.{extension}"
    missing.unlink()
    with pytest.raises(DataError, match="is missing next to SX3") as raised:
        corpus(root, partial=True).utterances("train")
    assert str(missing) in str(raised.value)


@pytest.mark.parametrize(
    ("labels", "line", "says"),
    [
        ("0 100 h#\n100 200 aaa\n", 2, "'aaa' is not one of TIMIT's 61 phone labels. Did you mean"),
        ("0 100 h#\n100 200 sil\n", 2, "'sil' is not one of TIMIT's 61"),
        ("0 100\n", 1, "is not `start end label`"),
        ("0 1.5 h#\n", 1, "is not `start end label`"),
        ("-5 100 h#\n", 1, "is not `start end label`"),
        ("0 100 h#\n\n200 150 aa\n", 3, "ends before it starts"),
        ("50 100 h#\n20 150 aa\n", 2, "starts before the label above"),
        ("0 400 h#\n400 2001 h#\n", 2, "the label ends at 0.125 s, the audio at 0.025 s"),
    ],
)
def test_a_bad_label_is_named_by_file_and_line(tmp_path: Path, labels: str, line: int, says: str) -> None:
    path = tree(tmp_path, ["fcjf0"], []) / "TRAIN" / "DR1" / "FCJF0" / "SX3.PHN"
    path.unlink()
    path.write_text(labels)
    with pytest.raises(DataError) as raised:
        corpus(tmp_path, partial=True).utterances("train")
    assert str(raised.value).startswith(f"{path}:{line}: ")
    assert says in str(raised.value)


def test_labels_may_end_early_and_a_little_late(tmp_path: Path) -> None:
    path = tmp_path / "x.phn"
    path.write_text("0 2000 h#\n")
    assert timit.read_phones(path, 400 / RATE) == timit.read_phones(path, 0.0) == timit.read_phones(path, 60.0)


@pytest.mark.parametrize(
    ("content", "says"), [(b"", "no phone labels"), (b"\n \n", "no phone labels"), (b"\xff", "not UTF-8")]
)
def test_a_phn_file_without_labels_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.phn"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"x\.phn:.* {says}"):
        timit.read_phones(path)


def test_a_wrong_tree_shows_a_right_one(tmp_path: Path) -> None:
    (tmp_path / "TRAIN" / "speaker1").mkdir(parents=True)
    for root in (tmp_path, tmp_path / "absent"):
        with pytest.raises(DataError, match=r"TIMIT/TRAIN/DR1/FCJF0/SA1\.WAV") as raised:
            corpus(root).utterances("train")
        assert str(root) in str(raised.value)
    (tmp_path / "TRAIN" / "DR1").mkdir()
    with pytest.raises(DataError, match="no training utterances"):
        corpus(tmp_path, partial=True).utterances("train")


def test_unknown_splits_and_phone_sets(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no split 'tset'\. Did you mean test"):
        corpus(tmp_path).utterances("tset")
    with pytest.raises(DataError, match="no set of 40 phones"):
        TIMIT("timit", str(tmp_path), Phones(phone_set=48), phone_set=40)


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
    with pytest.raises(DataError, match="train: 128 utterances of 16 speakers, expected 3696 of 462"):
        corpus(shared_data / "timit_sample").utterances("train")


def test_the_config_brings_its_tokens_and_they_follow_the_phone_set() -> None:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        for size in (48, 39):
            composed = compose("corpus/timit", overrides=["corpus.root=/x", f"corpus.phone_set={size}"])
            settings = OmegaConf.to_container(composed.corpus, resolve=True)
            assert settings.pop("tokens") == {"_target_": "las.Phones", "phone_set": size}
            assert settings.pop("_target_") == "las.TIMIT"
            assert settings == {"name": "timit", "root": "/x", "partial": False, "phone_set": size}
        composed = compose("corpus/timit", overrides=["corpus.root=/x", "tokens@corpus.tokens=characters"])
        assert composed.corpus.tokens._target_ == "las.Characters"
