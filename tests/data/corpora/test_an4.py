"""AN4: CMU's tree in small, what is held out, and what a copy that is not whole says."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import refused
from tiny import sound

from las.data.corpora.an4 import AN4
from las.data.tokenizers import Characters
from las.runtime.errors import ConfigError

SPEAKERS = ("fash", "fbbh", "mabc", "mdef")
LETTERS = Characters(" ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def tree(root: Path, extension: str = "wav") -> Path:
    """Two training utterances of each of four speakers and two of one test speaker, in CMU's layout."""
    parts = {"train": ("an4_clstk", SPEAKERS), "test": ("an4test_clstk", ("fcaw",))}
    for part, (folder, speakers) in parts.items():
        places, lines = [], []
        for number, speaker in enumerate(speakers):
            for take in (1, 2):
                name = f"an{10 * number + take}-{speaker}-b"
                place = root / "an4" / "wav" / folder / speaker / name
                place.parent.mkdir(parents=True, exist_ok=True)
                sound(place.with_name(f"{name}.wav"), 0.3 + 0.1 * take).rename(place.with_name(f"{name}.{extension}"))
                places.append(f"{folder}/{speaker}/{name}\n")
                text = "YES" if take == 1 else "A  B"
                lines.append(f"<s> {text} </s> ({name})\n" if part == "train" else f"{text} ({name})\n")
        etc = root / "an4" / "etc"
        etc.mkdir(parents=True, exist_ok=True)
        (etc / f"an4_{part}.fileids").write_text("".join(places))
        (etc / f"an4_{part}.transcription").write_text("".join(lines))
    return root / "an4"


def corpus(root: Path, partial: bool = True, dev_every: int = 2) -> AN4:
    return AN4("an4", str(root), LETTERS, partial, dev_every)


def test_splits_speakers_and_texts(tmp_path: Path) -> None:
    found = {split: corpus(tree(tmp_path)).utterances(split) for split in AN4.splits}
    assert {split: sorted({each.speaker for each in listed}) for split, listed in found.items()} == {
        "train": ["fash", "mabc"],
        "dev": ["fbbh", "mdef"],
        "test": ["fcaw"],
    }
    assert [(each.id, each.text) for each in found["test"]] == [("an1-fcaw-b", "YES"), ("an2-fcaw-b", "A B")]
    assert found["train"][0].duration_s == pytest.approx(0.4)


def test_the_root_may_be_the_folder_above_and_the_audio_sphere(tmp_path: Path) -> None:
    tree(tmp_path, "sph")
    assert corpus(tmp_path).utterances("test")[0].audio.endswith(".sph")
    assert corpus(tmp_path).normalise("yes  a B") == ["YES", "A", "B"]


def test_the_table_of_the_real_corpus(shared_data: Path, las: Callable, tmp_path: Path) -> None:
    answer = las("prepare", "corpus=an4", f"corpus.root={shared_data / 'an4'}", f"data_dir={tmp_path}").succeeds()
    rows = {line.split("│")[1].strip(): line.split("│")[2:5] for line in answer.out.splitlines() if "│" in line}
    cells = {split: [cell.strip() for cell in rows[split]] for split in AN4.splits}
    assert cells == {"train": ["857", "0.64", "67"], "dev": ["91", "0.07", "7"], "test": ["130", "0.10", "10"]}


def test_a_copy_that_is_not_whole_is_refused_unless_asked_for(tmp_path: Path) -> None:
    root = tree(tmp_path)
    refused("train|8 utterances|948 of 74|partial=true", corpus(root, partial=False).utterances, "train")
    (note,) = corpus(root).notes()
    assert "train: 8 of 948, test: 2 of 130" in note
    refused("corpus.dev_every=1", corpus, root, True, 1, kind=ConfigError)


def test_too_few_speakers_to_hold_one_out_say_what_to_set(tmp_path: Path) -> None:
    root = tree(tmp_path)
    refused(
        "4 training speakers|corpus.dev_every=10|corpus.dev_every=2", corpus(root, dev_every=10).utterances, "train"
    )
    lines = (root / "etc" / "an4_train.fileids").read_text().splitlines(keepends=True)
    (root / "etc" / "an4_train.fileids").write_text("".join(lines[:2]))
    for split in ("train", "dev"):
        refused("one training speaker", corpus(root).utterances, split)
    assert len(corpus(root).utterances("test")) == 2


def replaced(name: str, change: Callable[[str], str]) -> Callable[[Path], object]:
    """Change a file of `etc`."""
    return lambda root: (root / "etc" / name).write_text(change((root / "etc" / name).read_text()))


TEXTS = "an4_train.transcription"
BROKEN: list[tuple[Callable[[Path], object], str]] = [
    (lambda root: next(root.glob("wav/an4_clstk/fash/*1-*")).unlink(), "an4_train.fileids:1: |an1-fash-b.wav|.sph"),
    (replaced(TEXTS, lambda text: text.partition("\n")[2]), "an4_train.fileids:1: an1-fash-b|no transcript"),
    (replaced(TEXTS, lambda text: "<s> YES </s> an1-fash-b\n"), f"{TEXTS}:1: |<s> WORDS </s> (id)"),
    (replaced(TEXTS, lambda text: text + text), f"{TEXTS}:9: an1-fash-b"),
    (lambda root: (root / "etc" / "an4_train.fileids").unlink(), "an4_train.fileids: cannot be read"),
    (lambda root: shutil.rmtree(root / "wav"), "A right tree|an4/etc/an4_train.fileids"),
]


@pytest.mark.parametrize(("damage", "says"), BROKEN)
def test_damage_is_named_with_file_and_line(tmp_path: Path, damage: Callable[[Path], object], says: str) -> None:
    root = tree(tmp_path)
    damage(root)
    refused(says, corpus(root).utterances, "train")
