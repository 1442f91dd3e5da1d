"""The sources of docs/your_own_speech.md: AN4 in three formats, and invented German sentences spoken by eSpeak.

python docs/made_by/own_sources.py AN4 own
"""

import csv
import json
import random
import re
import sys
from pathlib import Path

import numpy as np
import soundfile

from las.data.synthesis.espeak import Espeak

ARTICLES = ("die", "eine", "keine", "jede")
ADJECTIVES = ("schöne", "große", "süße", "kühle", "böse", "müde", "träge", "weiße")
NOUNS = ("Tür", "Brücke", "Küche", "Straße", "Wölfin", "Mühle", "Übung", "Größe", "Höhle", "Ärztin")
VERBS = ("fällt", "gehört", "schließt", "blüht", "wächst", "läuft", "genügt", "stört")
ENDINGS = ("später", "draußen", "früh", "natürlich", "gewöhnlich", "überall", "Ähnliches", "öfter")
VOICES = ("m1", "m2", "m3", "m4", "m5", "m6", "m7", "f1", "f2", "f3", "f4", "f5")
EACH = 50
"""Sentences of each voice."""


def utterances(an4: Path, split: str) -> list[tuple[str, str, Path, str]]:
    """Id, speaker, path of the audio and text of AN4's `split`."""
    lines = (an4 / f"etc/an4_{split}.transcription").read_text().splitlines()
    matches = [re.fullmatch(r"(?:<s> )?(.*?)(?: </s>)? \((.*)\)", line) for line in lines]
    texts = {match[2]: match[1] for match in matches if match}
    paths = [Path(line) for line in (an4 / f"etc/an4_{split}.fileids").read_text().split()]
    return [(path.name, path.parent.name, an4 / "wav" / f"{path}.wav", texts[path.name]) for path in paths]


def write_formats(an4: Path, folder: Path) -> None:
    """Write AN4 as a Kaldi folder, as NeMo's JSON lines and as CSV."""
    for split in ("train", "test"):
        rows = utterances(an4, split)
        kaldi = folder / "kaldi" / split
        kaldi.mkdir(parents=True, exist_ok=True)
        for name, lines in (
            ("wav.scp", [f"{key} {audio}" for key, _, audio, _ in rows]),
            ("text", [f"{key} {text}" for key, _, _, text in rows]),
            ("utt2spk", [f"{key} {speaker}" for key, speaker, _, _ in rows]),
        ):
            (kaldi / name).write_text("\n".join(lines) + "\n")
        (folder / "nemo").mkdir(exist_ok=True)
        with (folder / f"nemo/{split}.jsonl").open("w") as file:
            for key, speaker, audio, text in rows:
                duration = round(soundfile.info(audio).duration, 3)
                entry = {
                    "audio_filepath": str(audio),
                    "duration": duration,
                    "text": text,
                    "speaker": speaker,
                    "id": key,
                }
                file.write(json.dumps(entry) + "\n")
        (folder / "csv").mkdir(exist_ok=True)
        with (folder / f"csv/{split}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(
                [("id", "speaker", "audio", "text"), *((k, s, str(a), t) for k, s, a, t in rows)]
            )


def write_german(folder: Path) -> None:
    """Write a folder for each voice: wav files with a text file beside each; no sentence occurs twice."""
    generator = random.Random(1)
    parts = (ARTICLES, ADJECTIVES, NOUNS, VERBS, ENDINGS)
    sentences: dict[str, None] = {}
    while len(sentences) < EACH * len(VOICES):
        sentences[" ".join(generator.choice(words) for words in parts)] = None
    with Espeak() as espeak:
        for number, sentence in enumerate(sentences):
            voice = VOICES[number % len(VOICES)]
            rate, pitch = generator.randint(130, 190), generator.randint(35, 65)
            speech = espeak.say(sentence, f"de+{voice}", rate, pitch, pitch_range=50, seed=number)
            path = folder / voice / f"{number:04d}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, np.frombuffer(speech.pcm, np.int16), speech.sample_rate)
            path.with_suffix(".txt").write_text(sentence + "\n", "utf-8")


if __name__ == "__main__":
    source, target = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    write_formats(source, target)
    write_german(target / "deutsch")
