"""The verb `listen`: utterances as a training reads them, augmented, as wav files with what was done to each."""

import re
from pathlib import Path
from typing import Any

import soundfile
from rich.table import Table

from las.config.build import build, check_values, compose, require
from las.data.augmentation.augmentation import Augmentation
from las.data.corpora.base import Corpus
from las.data.loader import Loader, augmentation_seed
from las.data.manifest import Utterance
from las.runtime import progress
from las.runtime.errors import ConfigError
from las.storage import atomic

UNSAFE = re.compile(r"[^\w.-]")
"""Characters of an utterance id that a file name does not have."""


def listen(overrides: list[str]) -> list[dict[str, Any]]:
    """Write augmented utterances as wav files (of 32-bit floats, as the model reads them), a table and their draws.

    The draws are those of a training with this seed in this epoch. Returns the content of the JSON.
    """
    config = compose("listen", overrides)
    check_values(config, {"count": int, "epoch": int, "seed": int})
    require("count", config["count"], 1)
    require("epoch", config["epoch"], 1)
    output = Path(config["output"])
    atomic.require_folder(output)
    corpus: Corpus = build(config["corpus"], where="corpus")
    augment: Augmentation = build(config["augment"], where="augment")
    if not augment.changes_waveforms:
        raise ConfigError("augment: this augmentation changes no waveform: augment=noisy does")
    for line in augment.check(corpus.sample_rate):
        progress.say(line)
    split = corpus.known_split(config["split"])
    utterances = corpus.prepare(Path(config["data_dir"]) / "manifests")[split]
    entries = write(utterances, corpus, augment, (config["seed"], config["epoch"]), config["count"], output)
    atomic.write_json(output / "augmentation.json", entries)
    print_table(entries, f"{corpus.name} {split}, seed {config['seed']}, epoch {config['epoch']}")
    if augment.changes_features:
        progress.say("masks and time warping change features, not the audio")
    progress.say(f"{len(entries)} utterances and augmentation.json written to {output}")
    return entries


def write(
    utterances: list[Utterance], corpus: Corpus, augment: Augmentation, place: tuple[int, int], count: int, output: Path
) -> list[dict[str, Any]]:
    """Write `count` evenly spaced utterances, augmented by the draws of `place` (seed, epoch); an entry for each."""
    loader, rate = Loader(utterances, corpus.tokens, corpus.sample_rate, num_workers=0), corpus.sample_rate
    seed, epoch = place
    output.mkdir(parents=True, exist_ok=True)
    entries = []
    for index in range(0, len(utterances), max(1, len(utterances) // count))[:count]:
        name = utterances[index].id
        key = augmentation_seed(seed, epoch - 1, name)  # trainings count epochs from 0
        waveform, draws = augment.waveform_and_draws(loader.waveform(index), rate, key, loader.talkers(index))
        file = f"{index:05d}_{UNSAFE.sub('_', name)[-80:]}.wav"
        soundfile.write(output / file, waveform.numpy(), rate, subtype="FLOAT")
        seconds, peak = len(waveform) / rate, float(waveform.abs().max()) if len(waveform) else 0.0
        entries.append({"file": file, "id": name, "seconds": seconds, "peak": peak, "augmentation": draws})
    return entries


def print_table(entries: list[dict[str, Any]], title: str) -> None:
    """Print a row for each file: its length, its peak, and what was drawn."""
    table = Table("file", title=title)
    for heading in ("s", "peak"):
        table.add_column(heading, justify="right")
    table.add_column("augmentation")
    for entry in entries:
        drawn = "; ".join(f"{name} {_words(value)}" for name, value in entry["augmentation"].items())
        table.add_row(entry["file"], f"{entry['seconds']:.2f}", f"{entry['peak']:.2f}", drawn or "none drawn")
    progress.console.print(table)


def _words(drawn: Any) -> str:
    if isinstance(drawn, dict):
        return ", ".join(f"{key} {_words(value)}" for key, value in drawn.items())
    return f"{drawn:.3g}" if isinstance(drawn, float) else str(drawn)
