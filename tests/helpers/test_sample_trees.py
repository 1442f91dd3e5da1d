"""Generated trees: the same bytes, true formats, every case of names, read by the corpora they are made for."""

import importlib.util
import itertools
import re
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample_calls
import sample_trees
import shorten_encoder
import soundfile
from places import REPOSITORY
from tiers import rest_slow

from las.data.audio import sphere
from las.data.audio.files import load
from las.data.corpora import hub5, isip_transcripts
from las.data.corpora.an4 import AN4
from las.data.corpora.base import Corpus
from las.data.corpora.switchboard import Switchboard
from las.data.corpora.timit import TIMIT
from las.data.tokenizers import Characters, Phones
from las.runtime.errors import ConfigError, DataError
from las.scoring import stm
from las.scoring.glm import Glm

DATA_PAGE = REPOSITORY / "docs" / "data.md"
needs_espeak = pytest.mark.skipif(
    importlib.util.find_spec("espeakng_loader") is None,
    reason="eSpeak NG is missing: pip install 'las-asr[synth]'",
)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a tree once for all tests: kind and case of its names."""
    root = tmp_path_factory.mktemp("trees")

    def write(kind: str, case: str = "released") -> Path:
        folder = root / case / kind
        if not folder.exists():
            sample_trees.write(kind, folder, case=case)
        return folder

    return write


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def switchboard(root: Path, hub5_00: Path | None = None, hub5_01: Path | None = None) -> Switchboard:
    tests = {"hub5_00": hub5_00 and str(hub5_00), "hub5_01": hub5_01 and str(hub5_01)}
    return Switchboard("swb", str(root), Characters(isip_transcripts.ALPHABET), **tests, partial=True)


def sound(corpus: Corpus) -> Iterator[str]:
    """What is wrong with any utterance of a corpus."""
    for split in corpus.splits:
        utterances = corpus.utterances(split)
        assert utterances
        yield from (problem.reason for problem in corpus.problems(utterances))


@needs_espeak
@pytest.mark.parametrize("kind", rest_slow(sample_trees.KINDS, keep=0))
def test_the_same_arguments_give_the_same_bytes(kind: str, trees: Callable[..., Path], tmp_path: Path) -> None:
    sample_trees.write(kind, tmp_path / "again")
    assert files(tmp_path / "again") == files(trees(kind))


@pytest.mark.slow
@needs_espeak
@pytest.mark.parametrize("case", rest_slow(["lower", "released", "upper"]))
def test_telephone_trees_are_read_in_any_case_of_names(case: str, trees: Callable[..., Path]) -> None:
    made = switchboard(*(trees(kind, case) for kind in ("switchboard", "hub5_00", "hub5_01")))
    assert made.splits == ("train", "dev", "hub5_00", "hub5_01")
    assert list(sound(made)) == []
    names = [path.name for path in trees("hub5_00", case).rglob("*")]
    assert all(name == {"lower": name.lower(), "upper": name.upper()}.get(case, name) for name in names)


@needs_espeak
@pytest.mark.parametrize("case", rest_slow(["released", "lower", "upper"], keep=1))
def test_a_timit_tree_is_read(case: str, trees: Callable[..., Path]) -> None:
    corpus = TIMIT("timit", str(trees("timit", case)), Phones(phone_set=48), partial=True)
    assert list(sound(corpus)) == []
    assert {split: len(corpus.utterances(split)) for split in corpus.splits} == {"train": 16, "dev": 4, "test": 4}
    assert not any("scored on the training utterances" in note for note in corpus.notes())


@needs_espeak
def test_an_an4_tree_is_read(trees: Callable[..., Path]) -> None:
    corpus = AN4("an4", str(trees("an4")), Characters(" 'ABCDEFGHIJKLMNOPQRSTUVWXYZ"), partial=True)
    assert list(sound(corpus)) == []
    assert {split: len(corpus.utterances(split)) for split in corpus.splits} == {"train": 27, "dev": 3, "test": 6}


@needs_espeak
def test_a_librispeech_tree_has_flac_and_a_transcript_beside_it(trees: Callable[..., Path]) -> None:
    tree = trees("librispeech") / "LibriSpeech"
    parts = {"train-clean-100": 4, "dev-clean": 1, "dev-other": 1, "test-clean": 1, "test-other": 1}
    assert {path.name for path in tree.iterdir()} == parts.keys()
    for part, speakers in parts.items():
        transcripts = list((tree / part).glob("*/*/*.trans.txt"))
        assert len(transcripts) == speakers
        for path in transcripts:
            speaker, chapter = path.parts[-3:-1]
            lines = [line.split(" ", 1) for line in path.read_text("ascii").splitlines()]
            assert [name for name, _ in lines] == [f"{speaker}-{chapter}-{index:04d}" for index in range(5)]
            assert all(re.fullmatch("[A-Z']+( [A-Z']+)*", text) for _, text in lines)
            for name, _ in lines:
                header = soundfile.info(path.with_name(f"{name}.flac"))
                assert (header.samplerate, header.channels, header.format) == (16000, 1, "FLAC")


@needs_espeak
def test_switchboard_has_what_real_transcripts_have(trees: Callable[..., Path]) -> None:
    tree = trees("switchboard")
    texts = []
    for side, path in isip_transcripts.find(tree).items():
        segments = isip_transcripts.read(path)
        texts += [each.text for each in segments]
        call = sphere.read_header(tree / "swb1_d1" / "data" / f"{side[:7]}.sph")
        assert (call.sample_rate, call.channels, call.coding) == (8000, 2, "ulaw")
        assert segments[0].start_s == 0 and segments[-1].end_s == call.num_samples / 8000
        assert all(before.end_s == after.start_s for before, after in itertools.pairwise(segments))
    said = " ".join(texts)
    for markup in (
        "[silence]",
        *isip_transcripts.NOISES,
        "[laughter-",
        "them_1",
        "<b_aside>",
        "{",
        "TV",
        "]-",
        "-[",
        "/",
        "uh-huh",
    ):
        assert markup in said, markup
    assert [word for text in texts for word in isip_transcripts.markup_left(text)] == []


@needs_espeak
def test_speech_is_where_the_transcript_says_and_in_its_channel(trees: Callable[..., Path]) -> None:
    tree = trees("switchboard")
    corpus = switchboard(tree)
    for utterance in corpus.utterances("train")[:20]:
        silent = [
            each
            for each in isip_transcripts.read(isip_transcripts.find(tree)[utterance.speaker])
            if each.text == "[silence]"
        ]
        place = (utterance.audio, utterance.start_s, utterance.duration_s)
        own, other = (power(*place, channel) for channel in (utterance.channel, 1 - utterance.channel))
        assert own > 20 * power(utterance.audio, silent[0].start_s, 0.5, utterance.channel)
        assert own != other


def power(path: str, start_s: float, duration_s: float, channel: int) -> float:
    """Mean square of a stretch of a channel."""
    return float((load(path, channel, start_s, duration_s) ** 2).mean())


@needs_espeak
def test_hub5_has_nist_markup_and_rules_that_change_it(trees: Callable[..., Path]) -> None:
    tree = trees("hub5_00")
    reference = tree / "2000_hub5_eng_eval_tr" / "reference"
    segments = stm.read(reference / "hub5e00.english.000405.stm")
    assert {each.file for each in segments} == {"sw_4390", "en_4156"}
    assert sum(each.ignored for each in segments) == 4
    said = " ".join(each.text for each in segments)
    assert all(markup in said for markup in ("(%HESITATION)", "-)", "{ ", "<B_ASIDE>", "((", "UH-HUH"))
    assert Glm.read(reference / "en20000405_hub5.glm").name == "las_generated.glm"
    pem = (tree / "hub5e_00" / "english" / "hub5e_00.pem").read_text().splitlines()[1:]
    times = {(line.split()[0], line.split()[1], line.split()[3], line.split()[4]) for line in pem}
    scored = [each for each in segments if not each.ignored]
    assert times == {(each.file, each.channel, f"{each.start_s:.2f}", f"{each.end_s:.2f}") for each in scored}


@pytest.mark.slow
@needs_espeak
def test_callhome_may_be_compressed(trees: Callable[..., Path], tmp_path: Path) -> None:
    def shortened(codes: np.ndarray) -> bytes:
        return shorten_encoder.write_sphere(tmp_path / "one.sph", codes).read_bytes()

    sample_trees.write("hub5_00", tmp_path / "tree", callhome=shortened)
    callhome, plain = (root / "hub5e_00" / "english" / "en_4156.sph" for root in (tmp_path / "tree", trees("hub5_00")))
    assert callhome.stat().st_size < plain.stat().st_size
    assert np.array_equal(sphere.read(callhome), sphere.read(plain))
    made = hub5.TestSet("hub5_00", tmp_path / "tree", tmp_path / "tree", tmp_path / "tree", "removed", False)
    assert len(made.utterances()) == 20


def test_mu_law_is_that_of_g711() -> None:
    samples = np.arange(-32768, 32768, dtype=np.int64).astype(np.int16)
    codes = sample_calls.mu_law(samples)
    assert codes.dtype == np.uint8 and len(np.unique(codes)) == 256
    decoded = sphere._law_table("ulaw")[codes] * 32768
    step = np.maximum(2.0 ** np.floor(np.log2(np.abs(samples.astype(float)) + 132) - 4), 1)
    inside = np.abs(samples.astype(int)) <= 32635
    assert np.all(np.abs(decoded - samples)[inside] <= step[inside] / 2 + 0.5)
    zero = codes == 0x7F  # of the two codes of zero, 0 itself has the other
    assert np.array_equal(sample_calls.mu_law(decoded.astype(np.int16))[~zero], codes[~zero])


def test_a_sphere_file_is_read_by_others_too(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).integers(-9000, 9000, (800, 2)).astype(np.int16)
    path = tmp_path / "call.sph"
    path.write_bytes(sample_calls.sphere(sample_calls.mu_law(samples)))
    theirs, rate = soundfile.read(path, dtype="float32")
    assert rate == 8000
    assert np.array_equal(theirs, sphere.read(path))


@pytest.mark.slow
@needs_espeak
def test_a_tree_can_be_larger_and_another_one(trees: Callable[..., Path], tmp_path: Path) -> None:
    sample_trees.write("hub5_01", tmp_path / "large", seed=2, size=2)
    large, small = files(tmp_path / "large"), files(trees("hub5_01"))
    assert (len(large), len(small)) == (5, 3)
    assert all(large[name] != content for name, content in small.items())


def test_folders_with_something_in_them_and_unknown_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kind swichboard: expected one of .* Did you mean switchboard"):
        sample_trees.write("swichboard", tmp_path / "tree")
    with pytest.raises(ConfigError, match="case Upper: expected one of released, lower, upper"):
        sample_trees.write("timit", tmp_path / "tree", case="Upper")
    (tmp_path / "precious").touch()
    with pytest.raises(DataError, match="is not empty"):
        sample_trees.write("timit", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_the_command_says_how_it_is_used_and_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert sample_trees.main([]) == 2
    assert "KIND: switchboard, hub5_00, hub5_01, timit, librispeech, an4" in capsys.readouterr().out
    assert sample_trees.main(["timti", str(tmp_path / "tree")]) == 2
    assert "error: kind timti" in capsys.readouterr().err


@needs_espeak
def test_the_commands_of_the_data_page_run(tmp_path: Path) -> None:
    (printed,) = re.findall(r"^python (tests/helpers/\S+) (\w+) data/\w+$", DATA_PAGE.read_text("utf-8"), re.MULTILINE)
    assert (REPOSITORY / printed[0]).samefile(sample_trees.__file__) and printed[1] in sample_trees.KINDS
    command = [sys.executable, sample_trees.__file__, "an4", str(tmp_path / "tree"), "lower"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "GPL-3.0-or-later" in said and f"an4: written to {tmp_path / 'tree'}" in said
    first = next((tmp_path / "tree").rglob("*.wav"))
    with wave.open(str(first)) as file:
        assert (file.getframerate(), file.getnchannels()) == (16000, 1)


def test_the_kinds_are_documented() -> None:
    page: Any = DATA_PAGE.read_text("utf-8")
    assert all(f"`{kind}`" in page for kind in sample_trees.KINDS)
