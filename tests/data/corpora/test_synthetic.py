"""The synthetic corpora: the same bytes however they are made, disjoint splits, a tree that TIMIT's reader reads."""

import json
import shutil
import wave
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from las.config import build
from las.data.corpora.synthetic import SyntheticSpeech
from las.data.synthesis import rendering
from las.data.synthesis.espeak import Espeak
from las.data.synthesis.espeak_phones import Label
from las.data.tokenizers import Phones
from las.runtime.errors import ConfigError, DataError

TINY = {"train_utterances": 12, "dev_utterances": 4, "test_utterances": 4}
TINY |= {"train_speakers": 6, "dev_speakers": 2, "test_speakers": 2}


def corpus(root: Path, **settings: Any) -> SyntheticSpeech:
    return SyntheticSpeech(name="tiny", root=str(root), tokens=Phones(phone_set=48), **(TINY | settings))


def files(root: Path) -> dict[str, bytes]:
    """Everything the reader sees: path and content, hidden files left out."""
    found = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SyntheticSpeech:
    synthetic = corpus(tmp_path_factory.mktemp("made") / "tree")
    synthetic.synthesise()
    return synthetic


def test_bytes_do_not_depend_on_workers_or_order(made: SyntheticSpeech, tmp_path: Path) -> None:
    one = corpus(tmp_path / "one", workers=1)
    one.synthesise()
    assert files(one.root) == files(made.root)
    backwards = tmp_path / "backwards"
    with Espeak() as espeak:
        for planned in reversed(made.plan):
            rendering.make(espeak, backwards, planned, made.sound)
    expected = files(made.root)
    del expected["corpus.json"]
    assert files(backwards) == expected


def test_files_are_those_of_timit(made: SyntheticSpeech) -> None:
    for planned in made.plan:
        path = made.root / planned.path
        assert path.match("T*/DR[1-8]/[FM]???0/SX*") or path.match("DEV/DR[1-8]/[FM]???0/SX*")
        with wave.open(str(path.with_suffix(".WAV"))) as audio:
            assert (audio.getframerate(), audio.getnchannels(), audio.getsampwidth()) == (16000, 1, 2)
            length = audio.getnframes()
        start, end, text = path.with_suffix(".TXT").read_text().rstrip("\n").split(" ", 2)
        assert (start, end) == ("0", str(length))
        assert text[0].isupper() and text[-1] in ".?" and text[:-1].lower() == planned.sentence
        rows = [line.split() for line in path.with_suffix(".WRD").read_text().splitlines()]
        assert [word for _, _, word in rows] == planned.sentence.split()
        times = [int(value) for row in rows for value in row[:2]]
        assert times == sorted(times) and times[0] > 0 and times[-1] < length


def test_splits_share_no_speaker_and_no_sentence(made: SyntheticSpeech) -> None:
    speakers: dict[str, set[str]] = {}
    said: dict[str, set[str]] = {}
    for planned in corpus(made.root, train_utterances=1000, train_speakers=32, dev_speakers=4, test_speakers=4).plan:
        split = planned.path.split("/")[0]
        speakers.setdefault(split, set()).add(planned.speaker.name)
        said.setdefault(split, set()).add(planned.sentence)
    assert {split: len(names) for split, names in speakers.items()} == {"TRAIN": 32, "DEV": 4, "TEST": 4}
    for sets in (speakers, said):
        assert len(set().union(*sets.values())) == sum(map(len, sets.values()))
    assert sum(map(len, said.values())) == 1008


def test_a_large_test_part_leaves_the_others_as_they_are(made: SyntheticSpeech, tmp_path: Path) -> None:
    """In its own tree, with speakers and sentences of its own; without it the settings are those of before."""
    root = Path(shutil.copytree(made.root, tmp_path / "tree"))
    larger = corpus(root, test_large_utterances=6, test_large_speakers=3)
    before = files(root)
    prepared = larger.prepare(tmp_path / "manifests")
    assert files(root) == before and larger.plan[:20] == made.plan
    assert [len(prepared[split]) for split in ("train", "dev", "test", "test_large")] == [12, 4, 4, 6]
    assert [[each.text for each in prepared[split]] for split in made.splits] == [
        [each.text for each in made.utterances(split)] for split in made.splits
    ]
    speakers = [{each.id.split("_")[0] for each in prepared[split]} for split in larger.splits]
    assert len(speakers[-1]) == 3 and not speakers[-1] & set().union(*speakers[:-1])
    assert "test_large" not in made.settings() and made.settings()["synthesis"] == larger.settings()["synthesis"]


@pytest.mark.parametrize(("name", "fewest"), [("synthetic", 24), ("synthetic_hard", 96)])
def test_the_shipped_corpora_have_the_sizes_they_promise(name: str, fewest: int) -> None:
    made = build.build(build.compose("train", [f"corpus={name}"])["corpus"])
    assert len({planned.speaker.name for planned in made.plan}) >= fewest
    assert len({planned.sentence for planned in made.plan}) == len(made.plan) >= 1100
    assert all(count >= 6 for count in made.num_speakers.values())
    if name == "synthetic_hard":
        assert len({word for planned in made.plan for word in planned.sentence.split()}) >= 2000


def test_what_is_missing_is_made_again(made: SyntheticSpeech, tmp_path: Path) -> None:
    synthetic = corpus(shutil.copytree(made.root, tmp_path / "tree"))
    before, kept = files(synthetic.root), synthetic.root / f"{synthetic.plan[0].path}.WAV"
    kept_at, prepared = kept.stat().st_mtime_ns, synthetic.prepare(tmp_path / "manifests")
    assert {split: len(listed) for split, listed in prepared.items()} == {"train": 12, "dev": 4, "test": 4}
    (synthetic.root / f"{synthetic.plan[1].path}.PHN").unlink()
    (synthetic.root / f"{synthetic.plan[2].path}.WAV").unlink()
    assert corpus(synthetic.root).prepare(tmp_path / "manifests") == prepared
    assert files(synthetic.root) == before and kept.stat().st_mtime_ns == kept_at


def test_a_complete_tree_needs_no_synthesiser(
    made: SyntheticSpeech, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    listed = corpus(made.root).utterances("dev")
    assert len(listed) == 4 and made.problems(listed) == []
    refused("las-asr[synth]", corpus(tmp_path / "tree").utterances, "train")
    assert files(tmp_path) == {}


def test_the_root_is_never_shared_with_anything_else(made: SyntheticSpeech, tmp_path: Path) -> None:
    record = json.loads((made.root / "corpus.json").read_text())
    assert record["settings"]["seed"] == 1 and record["espeak"].startswith("1.") and len(record["sha256"]) == 64
    assert set(record["utterances"]) == {planned.path for planned in made.plan}
    refused("rate, plan|corpus.root=", corpus(made.root, rate=[200, 220]).utterances, "train")
    (tmp_path / "letter.txt").write_text("dear")
    refused("corpus.json|corpus.root=", corpus(tmp_path).utterances, "train")
    (tmp_path / "copy").mkdir()
    for content, says in ((json.dumps(record | {"espeak": "1.0"}), "eSpeak NG 1.0"), ("{", "cannot be read")):
        (tmp_path / "copy" / "corpus.json").write_text(content)
        refused(says, corpus(tmp_path / "copy").utterances, "train")


def test_an_error_in_one_worker_stops_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DataError("no phone")

    monkeypatch.setattr(rendering.espeak_phones, "label", fail)
    with pytest.raises(DataError, match=r"(TRAIN|DEV|TEST)/.*no phone"):
        corpus(tmp_path / "tree").synthesise()
    assert not list(tmp_path.rglob("*.WAV"))


def test_words_said_as_one_share_their_time() -> None:
    labels = [Label(0, 10, "h#", 0), Label(10, 20, "ah", 1), Label(20, 50, "v", 1), Label(50, 70, "s", 8)]
    assert rendering.word_spans(["of", "the", "sea"], labels) == [(10, 30, "of"), (30, 50, "the"), (50, 70, "sea")]


@pytest.mark.parametrize(
    "settings",
    [{"words": [4]}, {"words": [8, 4]}, {"rate": [10, 100]}, {"snr_db": [20, 1000]}, {"train_speakers": 13},
     {"dev_speakers": 0}, {"accents": []}, {"warp": 0.9}, {"workers": 0}],
)  # fmt: skip
def test_settings_that_make_no_corpus_are_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    refused(next(iter(settings)), lambda: corpus(tmp_path, **settings), kind=ConfigError)
