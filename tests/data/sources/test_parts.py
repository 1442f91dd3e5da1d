"""Folders of whole datasets: each split is read from its own folder, and no test recording is trained on."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import sound

from las.data.corpora.files import FilesCorpus
from las.runtime.errors import ConfigError

SPLITS = {"train": ("a", "b", "c"), "validation": ("d",), "test": ("e", "f")}


def audio(root: Path, splits: dict[str, tuple[str, ...]]) -> dict[str, list[Path]]:
    made = {split: [root / split / f"{name}.wav" for name in names] for split, names in splits.items()}
    for paths in made.values():
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            sound(path, 0.1)
    return made


def listing_in_each(root: Path) -> None:
    for split, paths in audio(root, SPLITS).items():
        rows = "".join(f"{path.name},{path.stem} one\n" for path in paths)
        (root / split / "metadata.csv").write_text(f"file_name,transcription\n{rows}")


def json_lines_in_each(root: Path) -> None:
    for split, paths in audio(root, SPLITS).items():
        lines = [json.dumps({"file_name": path.name, "text": f"{path.stem} one"}) for path in paths]
        (root / split / "metadata.jsonl").write_text("\n".join(lines))


def listing_of_all(root: Path) -> None:
    made = audio(root, SPLITS)
    rows = [f"{split}/{path.name},{path.stem} one\n" for split, paths in made.items() for path in paths]
    (root / "metadata.csv").write_text("file_name,text\n" + "".join(rows))


def texts_beside(root: Path) -> None:
    for paths in audio(root, {name.upper(): names for name, names in SPLITS.items()}).values():
        for path in paths:
            path.with_suffix(".TXT").write_text(f"{path.stem} one")


def kaldi(root: Path) -> None:
    for split, paths in audio(root, {"train": SPLITS["train"], "dev": ("d",), "eval": ("e", "f")}).items():
        (root / split / "wav.scp").write_text("".join(f"{path.stem} {path.name}\n" for path in paths))
        (root / split / "text").write_text("".join(f"{path.stem} {path.stem} one\n" for path in paths))


@pytest.mark.parametrize("write", [listing_in_each, json_lines_in_each, listing_of_all, texts_beside, kaldi])
def test_splits_are_the_folders_of_a_dataset(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / "set")
    (tmp_path / "set/.cache").mkdir()
    corpus = FilesCorpus("set", str(tmp_path / "set"), str(tmp_path / "copies"), dev_share=0.0)
    assert corpus.splits == ("train", "dev", "test")
    ids = {split: [each.id[-1] for each in corpus.utterances(split)] for split in corpus.splits}
    assert ids == {"train": ["a", "b", "c"], "dev": ["d"], "test": ["e", "f"]}
    assert [each.text for each in corpus.utterances("dev")] == ["d one"]
    first = corpus.notes()[0]
    assert first.startswith(f"{tmp_path / 'set'}: a dataset with a folder for each split, ")
    assert first.endswith("; left out, other folders (1): .cache")


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
    with pytest.raises(ConfigError, match=r"corpus\.dev=.*set: a dataset with the folders train, test: name the one"):
        FilesCorpus("set", place, str(tmp_path / "copies"), dev=place)
    assert FilesCorpus("set", place, str(tmp_path / "copies")).shares == {"dev": 0.05}
