"""AN4: CMU's tree in small, what is held out, and what a copy that is not whole says."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import sound

from las.data.corpora.an4 import AN4
from las.data.tokenizers import Characters
from las.runtime.errors import ConfigError, DataError

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


def test_words_are_scored_in_upper_case(tmp_path: Path) -> None:
    assert corpus(tmp_path).normalise("yes  a B") == ["YES", "A", "B"]


def test_the_table_of_the_real_corpus(shared_data: Path, las: Callable, tmp_path: Path) -> None:
    answer = las("prepare", "corpus=an4", f"corpus.root={shared_data / 'an4'}", f"data_dir={tmp_path}")
    assert answer.code == 0, answer.err
    rows = {line.split("│")[1].strip(): line.split("│")[2:5] for line in answer.out.splitlines() if "│" in line}
    cells = {split: [cell.strip() for cell in rows[split]] for split in AN4.splits}
    assert cells == {"train": ["857", "0.64", "67"], "dev": ["91", "0.07", "7"], "test": ["130", "0.10", "10"]}


def test_a_copy_that_is_not_whole_is_refused_unless_asked_for(tmp_path: Path) -> None:
    root = tree(tmp_path)
    with pytest.raises(DataError, match=r"train has 8 utterances of 4 speakers, expected 948 of 74.*partial=true"):
        corpus(root, partial=False).utterances("train")
    (note,) = corpus(root).notes()
    assert "train: 8 of 948, test: 2 of 130" in note


def test_too_few_speakers_to_hold_one_out_says_what_to_set(tmp_path: Path, las: Callable) -> None:
    command = ["prepare", "corpus=an4", f"corpus.root={tree(tmp_path)}", "corpus.partial=true", f"data_dir={tmp_path}"]
    answer = las(*command)
    assert answer.code == 3 and "A right tree" not in answer.err
    assert "4 training speakers, and corpus.dev_every=10 holds out every 10th: none for the development" in answer.err
    advice = answer.err.strip().rpartition("Hold out more: ")[2]
    answer = las(*command, advice)
    assert advice == "corpus.dev_every=2" and answer.code == 0, answer.err


def test_one_speaker_cannot_be_held_out(tmp_path: Path) -> None:
    etc = tree(tmp_path) / "etc"
    lines = (etc / "an4_train.fileids").read_text().splitlines(keepends=True)
    (etc / "an4_train.fileids").write_text("".join(lines[:2]))
    for split in ("train", "dev"):
        with pytest.raises(DataError, match="one training speaker, and none to hold out"):
            corpus(tmp_path).utterances(split)
    assert len(corpus(tmp_path).utterances("test")) == 2


def break_tree(root: Path, how: str) -> None:
    etc = root / "etc"
    if how == "audio":
        next(root.glob("wav/an4_clstk/fash/*1-*")).unlink()
    elif how == "transcript":
        lines = (etc / "an4_train.transcription").read_text().splitlines(keepends=True)
        (etc / "an4_train.transcription").write_text("".join(lines[1:]))
    elif how == "line":
        (etc / "an4_train.transcription").write_text("<s> YES </s> an1-fash-b\n")
    elif how == "twice":
        text = (etc / "an4_train.transcription").read_text()
        (etc / "an4_train.transcription").write_text(text + text)
    else:
        (etc / "an4_train.fileids").unlink()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("audio", r"an4_train\.fileids:1: .*an1-fash-b\.wav \(or \.sph\) is missing"),
        ("transcript", r"an4_train\.fileids:1: an1-fash-b has no transcript"),
        ("line", r"an4_train\.transcription:1: .* is not `<s> WORDS </s> \(id\)`"),
        ("twice", r"an4_train\.transcription:9: an1-fash-b has a transcript above already"),
        ("list", r"an4_train\.fileids: cannot be read"),
    ],
)
def test_damage_is_named_with_file_and_line(tmp_path: Path, how: str, message: str) -> None:
    root = tree(tmp_path)
    break_tree(root, how)
    with pytest.raises(DataError, match=message):
        corpus(root).utterances("train")


def test_no_tree_shows_what_one_looks_like(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="A right tree looks like this"):
        corpus(tmp_path).inventory()
    with pytest.raises(ConfigError, match=r"corpus\.dev_every=1"):
        corpus(tmp_path, dev_every=1)
