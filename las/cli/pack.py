"""The verb `pack`: the audio files of a corpus in a few large tar files, for network disks and very large corpora."""

import shlex
from pathlib import Path

from rich.table import Table

from las.config import overrides as config_overrides
from las.config.build import build, compose
from las.data import packing
from las.data.corpora.base import Corpus
from las.data.packing import PackedSplit
from las.runtime import progress
from las.runtime.errors import ConfigError
from las.storage import atomic
from las.training import data_preparation


def pack(overrides: list[str]) -> dict[str, PackedSplit]:
    """Write a corpus into shards and print how many; called again after an interruption, it goes on."""
    config = compose("pack", overrides)
    if not config["output"]:
        raise ConfigError("output=FOLDER says where the shards go: output=shards")
    if config["shard_mb"] <= 0:
        raise ConfigError(f"shard_mb={config['shard_mb']} must be above 0")
    corpus: Corpus = build(config["corpus"], where="corpus")
    output = Path(config["output"])
    atomic.require_folder(output)
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), build(config["limits"], where="limits"))
    shard_bytes = round(config["shard_mb"] * 1e6)
    results = {split: packing.pack(split, listed, output, shard_bytes) for split, listed in data.splits.items()}
    hashes = {split: packed.content_hash for split, packed in results.items()}
    packing.write_index(output, corpus.settings(), hashes)
    print_table(corpus, results)
    progress.say("next:  " + shlex.join(["las", "train", *_training(corpus, overrides, results)]))
    return results


def _training(corpus: Corpus, overrides: list[str], results: dict[str, PackedSplit]) -> list[str]:
    """Overrides of a training from the shards: the same corpus with another root, or its manifests."""
    typed = [config_overrides.typed(override) for override in overrides]
    if any(override.startswith("corpus.root=") for override in typed):
        output = next(iter(results.values())).manifest.parent
        same = [each for each in typed if not each.startswith(("corpus.root=", "output=", "shard_mb="))]
        return [*same, f"corpus.root={output}"]
    sources = [f"corpus.{role}={results[split].manifest}" for role, split in roles(corpus).items()]
    return ["corpus=files", f"corpus.name={corpus.name}", *sources]


def roles(corpus: Corpus) -> dict[str, str]:
    """The splits of a corpus as `corpus=files` calls them."""
    train, dev, *tests = corpus.splits
    return {"train": train, "dev": dev} | ({"test": tests[0]} if tests else {})


def print_table(corpus: Corpus, results: dict[str, PackedSplit]) -> None:
    """Print files, shards and megabytes of each split."""
    table = Table("split", title=f"{corpus.name}: shards")
    for heading in ("audio files", "shards", "of these already there", "MB"):
        table.add_column(heading, justify="right")
    for split, packed in results.items():
        counts = (packed.num_files, len(packed.shards), packed.num_kept)
        table.add_row(split, *(f"{count:,}" for count in counts), f"{packed.num_bytes / 1e6:,.1f}")
    progress.console.print(table)
