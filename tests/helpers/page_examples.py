"""The example files of docs/your_own_speech.md, written to a folder with sounds for all they name."""

import re
import shutil
from pathlib import Path

import numpy as np
import soundfile
from places import REPOSITORY

from las.data.sources import formats
from las.data.sources.base import ReadingOptions

PAGE = REPOSITORY / "docs" / "your_own_speech.md"
FORMATS = {
    "my/train.csv": "csv",
    "cv/train.tsv": "tsv",
    "nemo/train.jsonl": "jsonl",
    "lj": "ljspeech",
    "kaldi/train": "kaldi",
    "deutsch": "folder",
    "LibriSpeech/train-clean-5": "librispeech",
}
"""Formats of the sources that the page shows or names."""

GERMAN = ("schöne Grüße", "größer als Öl", "über die Straße", "Äpfel süß")


def files() -> dict[str, str]:
    """Files by name: every block after a paragraph that ends in a name."""
    return dict(re.findall(r"`([\w./]+)`:\n\n```\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))


def write(folder: Path) -> None:
    """Write the examples into a folder; test parts are copies of training parts, and `csv` is one of `my`."""
    texts = files()
    for number, text in enumerate(GERMAN):
        texts[f"deutsch/{('anna', 'bert')[number % 2]}/{number:04d}.txt"] = text
        sound(folder / f"deutsch/{('anna', 'bert')[number % 2]}/{number:04d}.wav", 0.5, number)
    for part, speakers in (("train-clean-5", (19, 26, 32)), ("test-clean", (61,))):
        for speaker in speakers:
            texts[f"LibriSpeech/{part}/{speaker}/1/{speaker}-1.trans.txt"] = f"{speaker}-1-0000 ONE TWO\n"
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for source in [*FORMATS, "LibriSpeech/test-clean"]:
        for number, entry in enumerate(formats.read(folder / source, None, ReadingOptions({}, None))[1].entries):
            sound(Path(entry.audio), entry.start_s + (entry.duration_s or 0.5), number)
    shutil.copytree(folder / "kaldi/train", folder / "kaldi/test")
    shutil.copytree(folder / "my", folder / "csv")
    for train, test in (("nemo/train.jsonl", "nemo/test.jsonl"), ("csv/train.csv", "csv/test.csv")):
        shutil.copy(folder / train, folder / test)


def sound(path: Path, seconds: float, seed: int) -> None:
    """Write noise in the format that the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = 0.1 * np.random.default_rng(seed).standard_normal(round(16000 * seconds))
    soundfile.write(path, samples, 16000)
