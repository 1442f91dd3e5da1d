"""AN4, or any list of utterances, described by files in every format that `corpus=files` reads."""

import csv
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from las.data.audio import files


class Spoken(NamedTuple):
    """Recording to describe."""

    id: str
    speaker: str
    audio: Path
    text: str


def an4(root: Path, part: str, count: int | None = None) -> list[Spoken]:
    """The first `count` utterances of a part of AN4 (`train` or `test`) in CMU's tree."""
    lines = (root / "etc" / f"an4_{part}.transcription").read_text().splitlines()
    matches = [re.fullmatch(r"(?:<s> )?(.*?) (?:</s> )?\((.*)\)", line) for line in lines]
    texts = {match[2]: match[1] for match in matches if match}
    places = (root / "etc" / f"an4_{part}.fileids").read_text().split()[:count]
    return [Spoken(Path(p).name, Path(p).parent.name, root / "wav" / f"{p}.wav", texts[Path(p).name]) for p in places]


def kaldi(folder: Path, spoken: Sequence[Spoken]) -> Path:
    """A Kaldi data folder."""
    folder.mkdir(parents=True)
    for name, line in (("wav.scp", "{0.id} {0.audio}"), ("text", "{0.id} {0.text}"), ("utt2spk", "{0.id} {0.speaker}")):
        (folder / name).write_text("".join(f"{line.format(each)}\n" for each in spoken))
    return folder


def nemo(folder: Path, spoken: Sequence[Spoken]) -> Path:
    """NeMo's JSON lines, with durations of three digits, and the speaker."""
    folder.mkdir(parents=True)
    with (folder / "manifest.json").open("w") as file:
        for each in spoken:
            values = {"audio_filepath": str(each.audio), "duration": round(files.info(each.audio).duration_s, 3)}
            file.write(json.dumps(values | {"text": each.text, "speaker": each.speaker}) + "\n")
    return folder / "manifest.json"


def table(folder: Path, spoken: Sequence[Spoken]) -> Path:
    """CSV with a header, as a spreadsheet writes it: CRLF and a byte order mark."""
    folder.mkdir(parents=True)
    with (folder / "recordings.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file_name", "transcription", "speaker_id"])
        writer.writerows([each.audio, each.text, each.speaker] for each in spoken)
    return folder / "recordings.csv"


DESCRIBED: dict[str, Callable[[Path, Sequence[Spoken]], Path]] = {"kaldi": kaldi, "nemo": nemo, "csv": table}
