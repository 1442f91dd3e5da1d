"""Generated trees: the same bytes, true formats, every case of names, read by the corpora they are made for."""

import importlib.util
import re
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import sample_calls
import sample_trees
import shorten_encoder
from places import REPOSITORY
from refusals import refused
from tiers import rest_slow

from las.data.audio import sphere
from las.data.corpora import hub5, isip_transcripts
from las.data.corpora.an4 import AN4
from las.data.corpora.base import Corpus
from las.data.corpora.librispeech import LibriSpeech
from las.data.corpora.switchboard import Switchboard
from las.data.corpora.timit import TIMIT
from las.data.tokenizers import Characters, Phones
from las.runtime.errors import ConfigError

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


PARTS = {"train": ["train-clean-100"], "evaluate": ["dev-clean", "dev-other", "test-clean", "test-other"]}
LETTERS = Characters(" 'ABCDEFGHIJKLMNOPQRSTUVWXYZ")
READ: dict[str, tuple[Callable[[str], Corpus], dict[str, int]]] = {
    "timit": (lambda root: TIMIT("t", root, Phones(48), partial=True), {"train": 16, "dev": 4, "test": 4}),
    "an4": (lambda root: AN4("a", root, LETTERS, partial=True), {"train": 27, "dev": 3, "test": 6}),
    "librispeech": (
        lambda root: LibriSpeech("l", root, LETTERS, **PARTS, partial=True),
        {"train": 20, "dev_clean": 5, "dev_other": 5, "test_clean": 5, "test_other": 5},
    ),
}


@needs_espeak
@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("case", rest_slow(["released", "lower", "upper"], keep=1))
def test_a_tree_is_read_by_its_corpus(kind: str, case: str, trees: Callable[..., Path]) -> None:
    if kind == "an4" and case == "upper":
        pytest.skip("AN4 has names in lower case")
    corpus, counts = READ[kind][0](str(trees(kind, case))), READ[kind][1]
    assert list(sound(corpus)) == [] and not any("scored on" in note for note in corpus.notes())
    assert {split: len(corpus.utterances(split)) for split in corpus.splits} == counts


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


def test_folders_with_something_in_them_and_unknown_kinds_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused("kind swichboard|mean switchboard", sample_trees.write, "swichboard", tmp_path / "tree", kind=ConfigError)
    refused("case Upper", lambda: sample_trees.write("timit", tmp_path / "tree", case="Upper"), kind=ConfigError)
    (tmp_path / "precious").touch()
    refused("not empty", sample_trees.write, "timit", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert sample_trees.main([]) == 2 and ", ".join(sample_trees.KINDS) in capsys.readouterr().out
    assert sample_trees.main(["timti", str(tmp_path / "tree")]) == 2 and "timti" in capsys.readouterr().err


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
