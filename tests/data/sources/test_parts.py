"""Splits are the folders of a dataset, or held out: by speaker where speakers are known, the same for any order."""

import functools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import refused
from tiny import sound

from las.data.corpora.files import FilesCorpus
from las.data.sources import utterances
from las.data.sources.base import Entry
from las.runtime.errors import ConfigError

SPLITS = {"train": ("a", "b", "c"), "validation": ("d",), "test": ("e", "f")}
LISTED = {".csv": ("file_name,transcription", "{},{} one"), ".jsonl": ("", '{{"file_name": "{}", "text": "{} one"}}')}


def audio(root: Path, splits: dict[str, tuple[str, ...]]) -> dict[str, list[Path]]:
    made = {split: [root / split / f"{name}.wav" for name in names] for split, names in splits.items()}
    for split, paths in made.items():
        (root / split).mkdir(parents=True)
        for path in paths:
            sound(path, 0.1)
    return made


def listing_in_each(root: Path, suffix: str = ".csv") -> None:
    header, line = LISTED[suffix]
    for split, paths in audio(root, SPLITS).items():
        lines = [header, *(line.format(path.name, path.stem) for path in paths)]
        (root / split / f"metadata{suffix}").write_text("\n".join(lines))


def listing_of_all(root: Path) -> None:
    made = audio(root, SPLITS)
    rows = [f"{split}/{path.name},{path.stem} one" for split, paths in made.items() for path in paths]
    (root / "metadata.csv").write_text("\n".join(["file_name,text", *rows]))


def texts_next_to_each(root: Path) -> None:
    for paths in audio(root, {name.upper(): names for name, names in SPLITS.items()}).values():
        for path in paths:
            path.with_suffix(".TXT").write_text(f"{path.stem} one")


def kaldi(root: Path) -> None:
    for split, paths in audio(root, {"train": SPLITS["train"], "dev": ("d",), "eval": ("e", "f")}).items():
        (root / split / "wav.scp").write_text("".join(f"{path.stem} {path.name}\n" for path in paths))
        (root / split / "text").write_text("".join(f"{path.stem} {path.stem} one\n" for path in paths))


WRITERS = [
    listing_in_each,
    functools.partial(listing_in_each, suffix=".jsonl"),
    listing_of_all,
    texts_next_to_each,
    kaldi,
]


@pytest.mark.parametrize("write", WRITERS)
def test_splits_are_the_folders_of_a_dataset(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / "set")
    (tmp_path / "set/.cache").mkdir()
    corpus = FilesCorpus("set", str(tmp_path / "set"), str(tmp_path / "copies"), dev_share=0.0)
    assert corpus.splits == ("train", "dev", "test")
    ids = {split: [each.id[-1] for each in corpus.utterances(split)] for split in corpus.splits}
    assert ids == {"train": ["a", "b", "c"], "dev": ["d"], "test": ["e", "f"]}
    assert [each.text for each in corpus.utterances("dev")] == ["d one"]
    first = corpus.notes()[0]
    assert first.startswith(f"{tmp_path / 'set'}: a dataset") and first.endswith("(1): .cache")


def test_a_split_may_be_named_alone(tmp_path: Path) -> None:
    listing_of_all(tmp_path / "set")
    named = [str(tmp_path / "set" / split) for split in ("train", "test")]
    corpus = FilesCorpus("set", named[0], str(tmp_path / "copies"), test=named[1], dev_share=0.4)
    counts = {split: len(corpus.utterances(split)) for split in corpus.splits}
    assert counts == {"train": 2, "dev": 1, "test": 2}
    corpus = FilesCorpus("set", named[0], str(tmp_path / "copies"), dev=str(tmp_path / "set"), test_share=0.0)
    assert [each.id for each in corpus.utterances("dev")] == ["d"]


def test_a_split_that_a_dataset_lacks_is_named(tmp_path: Path) -> None:
    listing_in_each(tmp_path / "set")
    (tmp_path / "set/validation").rename(tmp_path / "validation")
    place = str(tmp_path / "set")
    make = functools.partial(FilesCorpus, "set", place, str(tmp_path / "copies"), dev=place)
    refused(f"corpus.dev={place}|train, test", make, kind=ConfigError)
    assert FilesCorpus("set", place, str(tmp_path / "copies")).shares == {"dev": 0.05}


SHARES = {"dev": 0.1, "test": 0.2}


def spoken(speakers: int, each: int, speaker: str = "s{}") -> list[Entry]:
    return [Entry("", "", "", f"{n}-{take}", speaker.format(n)) for n in range(speakers) for take in range(each)]


def test_whole_speakers_are_held_out_in_any_order() -> None:
    entries = spoken(20, 5)
    division, reason = utterances.divide(entries, SHARES, seed=1)
    assert not reason and {split: len(listed) for split, listed in division.items()} == {
        "dev": 10,
        "test": 20,
        "train": 70,
    }
    assert sorted(each for listed in division.values() for each in listed) == sorted(entries)
    assert sum(len({each.speaker for each in listed}) for listed in division.values()) == 20
    shuffled, _ = utterances.divide(random.Random(1).sample(entries, len(entries)), SHARES, seed=1)
    assert {split: sorted(listed) for split, listed in shuffled.items()} == {s: sorted(e) for s, e in division.items()}
    assert utterances.divide(entries, SHARES, seed=2)[0] != division


@pytest.mark.parametrize(
    ("entries", "whole_speakers", "says"),
    [
        (spoken(40, 1, ""), True, "no speaker"),
        (spoken(2, 20), True, "only 2 speakers"),
        ([*spoken(8, 5)[:-1], Entry("", "", "", "x", "")], True, "no speaker"),
        (spoken(8, 5), False, "corpus.hold_out=utterances"),
    ],
)
def test_single_utterances_are_held_out_with_the_reason(entries: list[Entry], whole_speakers: bool, says: str) -> None:
    division, reason = utterances.divide(entries, SHARES, 1, whole_speakers)
    assert says in reason
    assert {split: len(listed) for split, listed in division.items()} == {"dev": 4, "test": 8, "train": 28}


def test_a_speaker_with_nearly_everything_stays_in_train() -> None:
    entries = [*spoken(1, 100, "most"), *(Entry("", "", "", f"b{n}", f"b{n}") for n in range(6))]
    for seed in range(10):
        division, reason = utterances.divide(entries, {"dev": 0.02, "test": 0.02}, seed)
        assert not reason and len(division["train"]) >= 100 and {each.speaker for each in division["train"]} >= {"most"}


def test_at_least_one_utterance_is_held_out() -> None:
    division, _ = utterances.divide(spoken(3, 1, ""), {"dev": 0.01, "test": 0.01}, seed=1)
    assert [len(listed) for listed in division.values()] == [1, 1, 1]
