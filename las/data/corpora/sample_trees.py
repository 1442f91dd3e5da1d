"""Small trees of every corpus, true to its format, with synthesised speech: for trying things without the real one.

`python -m las.data.corpora.sample_trees switchboard data/switchboard` writes one. What is said and how is a pure function of
kind, seed and size. Rates on these trees say nothing about real speech.
"""

import io
import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import soundfile

from las.data.corpora import sample_calls
from las.data.corpora.sample_calls import SNR_DB, Encode, Material, write_file
from las.data.corpora.timit import CORE_TEST, DEV
from las.data.synthesis import rendering, sentences, voices
from las.data.synthesis.espeak import Espeak
from las.data.synthesis.rendering import Planned
from las.runtime.errors import ConfigError, DataError, LasError, suggest

CASES: dict[str, Callable[[str], str]] = {"released": str, "lower": str.lower, "upper": str.upper}
"""Names of files and folders: as the corpus is released, or all in one case, as discs may show them."""

USAGE = """python -m las.data.corpora.sample_trees KIND FOLDER [CASE]: writes a small tree of a corpus with synthesised speech.
KIND: {kinds}; CASE of the names: {cases}"""


def write(
    kind: str,
    root: Path,
    seed: int = 1,
    size: int = 1,
    case: str = "released",
    callhome: Encode = sample_calls.sphere,
) -> None:
    """Write a tree of one of `KINDS` into a folder that is empty or not there; `size` times the smallest one.

    `case` is one of `CASES`; `callhome` encodes the CallHome calls of Hub5'00. Raises ConfigError for an unknown kind
    or case, DataError for a folder that holds something, and where eSpeak NG is not installed.
    """
    if kind not in KINDS or case not in CASES:
        key, known = ("case", CASES) if kind in KINDS else ("kind", KINDS)
        value = case if kind in KINDS else kind
        raise ConfigError(f"{key} {value}: expected one of {', '.join(known)}.{suggest(value, known)}")
    if root.exists() and any(root.iterdir()):
        raise DataError(f"{root}: is not empty. Choose another folder, or remove it to have it written again")
    cast = iter(voices.speakers(60 * size, seed, ["en-us"], (150, 190), 0.05))
    said = iter(sentences.sentences(200 * size, seed, 300, (3, 6)))
    with Espeak() as espeak:
        KINDS[kind](Material(root, espeak, cast, said, size, seed, callhome))
    for path in sorted(root.rglob("*"), reverse=True):  # what lies deeper first
        path.rename(path.with_name(CASES[case](path.name)))


def timit(material: Material) -> None:
    """TIMIT: 4 training speakers for each of `size`, one of the development and one of the core test part."""
    names = [next(material.cast).name for _ in range(4 * material.size)]
    parts = [("TRAIN", name) for name in names]
    parts += [("TEST", name.upper()) for part in (DEV, CORE_TEST) for name in sorted(part)[: material.size]]
    sound = rendering.Sound(material.seed, SNR_DB)
    for part, name in parts:
        speaker = replace(next(material.cast), name=name)
        for sentence in ("SA1", "SI501", "SX1", "SX2", "SX3"):
            path = f"{part}/DR{speaker.dialect}/{name}/{sentence}"
            rendering.make(material.espeak, material.root, Planned(path, next(material.sentences), speaker), sound)


def librispeech(material: Material) -> None:
    """LibriSpeech: 4 training speakers for each of `size`, 1 of each other part; 5 utterances of each."""
    parts = {"train-clean-100": 4, "dev-clean": 1, "dev-other": 1, "test-clean": 1, "test-other": 1}
    numbers = itertools.count(19)
    for part, count in parts.items():
        for _ in range(count * material.size):
            voice, speaker = next(material.cast), next(numbers)
            chapter = f"{speaker}-{198 + speaker}"
            folder = material.root / "LibriSpeech" / part / chapter.replace("-", "/")
            lines = []
            for index in range(5):
                text, name = next(material.sentences), f"{chapter}-{index:04d}"
                write_file(folder / f"{name}.flac", _sound(material.say(text, voice, name), "FLAC"))
                lines.append(f"{name} {text.upper()}\n")
            write_file(folder / f"{chapter}.trans.txt", "".join(lines).encode("ascii"))


def an4(material: Material) -> None:
    """AN4: 10 training and 2 test speakers for each of `size`, 3 utterances of each."""
    numbers = itertools.count(1)
    for part, folder, count in (("train", "an4_clstk", 10), ("test", "an4test_clstk", 2)):
        places, transcripts = [], []
        for _ in range(count * material.size):
            speaker = next(material.cast)
            for _ in range(3):
                text = next(material.sentences)
                name = f"an{next(numbers)}-{speaker.name.lower()}-b"
                places.append(f"{folder}/{speaker.name.lower()}/{name}")
                transcripts.append(f"<s> {text.upper()} </s> ({name})\n")
                sound = _sound(material.say(text, speaker, name), "WAV")
                write_file(material.root / "an4" / "wav" / f"{places[-1]}.wav", sound)
        etc = material.root / "an4" / "etc"
        write_file(etc / f"an4_{part}.fileids", "".join(f"{place}\n" for place in places).encode("ascii"))
        write_file(etc / f"an4_{part}.transcription", "".join(transcripts).encode("ascii"))


KINDS: dict[str, Callable[[Material], None]] = {
    "switchboard": sample_calls.switchboard,
    "hub5_00": sample_calls.hub5_00,
    "hub5_01": sample_calls.hub5_01,
    "timit": timit,
    "librispeech": librispeech,
    "an4": an4,
}
"""The trees that can be written."""


def _sound(samples: np.ndarray, kind: str) -> bytes:
    """A sound file of 16-bit samples at 16 kHz."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, voices.SAMPLE_RATE, format=kind, subtype="PCM_16")
    return buffer.getvalue()


def main(arguments: list[str]) -> int:
    """The command of `USAGE`; returns its exit code."""
    if not 2 <= len(arguments) <= 3:
        print(USAGE.format(kinds=", ".join(KINDS), cases=", ".join(CASES)))
        return 2
    kind, folder, case = [*arguments, "released"][:3]
    try:
        write(kind, Path(folder), case=case)
    except LasError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{rendering.LICENCE}\n{kind}: written to {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
