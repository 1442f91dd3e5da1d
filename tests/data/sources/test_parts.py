"""Folders of whole datasets: each split is read from its own folder, and no test recording is trained on."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import refused
from tiny import sound

from las.data.corpora.files import FilesCorpus
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
