"""A tiny corpus of TIMIT's layout and a tiny model: a whole training takes about a second."""

import hashlib
import json
from pathlib import Path

import numpy as np
import soundfile

RATE = 16000
LABELS = ("h#", "aa", "iy", "h#")
MODEL = [
    "model.features.num_mels=8",
    "++model.features.normalisation=global",
    "model.listener.dropout=0.1",
    "model.listener.input_noise=0.1",
    "model.listener.hidden_size=8",
    "model.speller.hidden_size=8",
    "model.speller.embedding_size=4",
    "model.speller.attention.key_size=8",
]
SHORT = ["trainer.max_steps=4", "trainer.batch_size=4", "trainer.validate_every=2"]
QUICK = ["trainer.histograms=false", "trainer.attention_pictures=false", "search=greedy"]


def sound(path: Path, seconds: float, seed: int = 0, rate: int = RATE, channels: int = 1) -> Path:
    """A tone in noise, 16 bit."""
    draw = np.random.default_rng(seed)
    times = np.arange(round(seconds * rate)) / rate
    tone = 0.3 * np.sin(2 * np.pi * (200 + 50 * (seed % 20)) * times)
    samples = tone[:, None] + 0.02 * draw.standard_normal((len(times), channels))
    soundfile.write(path, (20000 * samples).astype(np.int16), rate)
    return path


def utterance(folder: Path, sentence: str, seconds: float, seed: int, labels: tuple[str, ...] = LABELS) -> Path:
    """The three files of one sentence; its labels share the time out evenly. Returns the wav."""
    folder.mkdir(parents=True, exist_ok=True)
    end = round(seconds * RATE)
    borders = [end * index // len(labels) for index in range(len(labels) + 1)]
    lines = [f"{start} {stop} {label}\n" for start, stop, label in zip(borders, borders[1:], labels, strict=False)]
    (folder / f"{sentence}.PHN").write_text("".join(lines))
    (folder / f"{sentence}.TXT").write_text(f"0 {end} Ah ee.\n")
    return sound(folder / f"{sentence}.WAV", seconds, seed)


def tree(root: Path) -> Path:
    """Eight training utterances of one speaker, two of a development and two of a core test speaker."""
    for part, speaker, count in (("TRAIN", "FTR0", 8), ("TEST", "FADG0", 2), ("TEST", "MDAB0", 2)):
        for index in range(count):
            seconds, seed = 0.3 + 0.04 * index, 10 * len(part) + index
            utterance(root / "TIMIT" / part / "DR1" / speaker, f"SX{index}", seconds, seed)
    return root


def wav(root: Path, name: str) -> Path:
    """The wav of an utterance of `tree` by its id, e.g. ftr0_sx3."""
    speaker, _, sentence = name.upper().partition("_")
    part = "TRAIN" if speaker == "FTR0" else "TEST"
    return root / "TIMIT" / part / "DR1" / speaker / f"{sentence}.WAV"


def corpus(root: Path) -> list[str]:
    """The overrides that choose the corpus of `tree(root)`."""
    return ["corpus=timit", f"corpus.root={root / 'TIMIT'}", "corpus.partial=true", f"data_dir={root / 'data'}"]


def overrides(root: Path, *more: str) -> list[str]:
    """The overrides of a training on `tree(root)` of four steps, validated every two, in `root/run`."""
    return [*corpus(root), *SHORT, f"run_dir={root / 'run'}", "schedule=constant", *MODEL, *QUICK, *more]


def damage(path: Path, how: str) -> None:
    """A file with one bit of its middle flipped (`flip`), its second half gone (`cut`), or gone itself (`missing`)."""
    content = bytearray(path.read_bytes())
    path.unlink()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


def forge(directory: Path, name: str, value: object) -> None:
    """Write another `<name>.json` into a checkpoint, with a manifest that vouches for it: input from outside."""
    (directory / f"{name}.json").write_text(json.dumps(value))
    vouch(directory, f"{name}.json")


def vouch(directory: Path, name: str) -> None:
    """Make the manifest of a checkpoint agree with one of its files."""
    manifest, content = json.loads((directory / "MANIFEST.json").read_text()), (directory / name).read_bytes()
    manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (directory / "MANIFEST.json").write_text(json.dumps(manifest))


def steps(run: Path) -> list[dict]:
    """metrics.jsonl without the times of day."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "time"} for line in lines]
