"""suite=loader: how fast batches come from a corpus tree when nobody does anything with them, and who waits."""

import functools
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from las import batches, progress
from las.benchmark import material, timing
from las.benchmark.material import Subject
from las.benchmark.rows import Column, Group, Row, number, text
from las.benchmark.settings import Settings
from las.manifest import Utterance
from las.order import Plan, Size, sequential

CPU = torch.device("cpu")
WORKERS = (0, 1, 2, 4)
NUM_BATCHES = 20  # that a consumer takes, when waiting is measured

COLUMNS = (
    Column("threads that read", text("implementation")),
    Column("augmentation", text("augmentation")),
    Column("audio s per s", number("audio_s_per_s", 0)),
    Column("from memory", number("cached_audio_s_per_s", 0)),
    Column("waiting %", number("wait_share", 1, 100.0)),
)


def title(shape: str) -> str:
    """The corpus and the batches, as the rows name them."""
    return shape


def measure(settings: Settings) -> Iterator[Group]:
    """One group: numbers of threads."""
    config = settings.config
    subject = material.subject(config)
    utterances = subject.corpus.prepare(Path(config["data_dir"]) / "manifests")[subject.corpus.splits[0]]
    size = config["trainer"]["batch_size"]
    plan = sequential(utterances, Size(size))
    shape = f"{subject.corpus.name}: {len(utterances)} utterances in batches of {size}"
    rows = []
    for workers in progress.counted(WORKERS, len(WORKERS), "numbers of threads"):
        found = _measured(subject, utterances, plan, workers, config["consumer_ms"])
        row = settings.row(f"workers{workers}", "", shape)
        rows.append(row | {"workers": workers, "utterances": len(utterances)} | found)
    yield Group(shape, rows)


def _measured(subject: Subject, utterances: list[Utterance], plan: Plan, workers: int, consumer_ms: float) -> Row:
    """An epoch that reads every file, one that finds what fitted in memory, and a few batches for a slow consumer."""
    corpus, augment = subject.corpus, subject.built.parts.augment
    key_of = functools.partial(batches.key, subject.built.seed, 0)

    def loader() -> batches.Loader:
        return batches.Loader(utterances, corpus.tokens, corpus.sample_rate, workers, augment=augment)

    kept = loader()
    first, second = (
        timing.milliseconds(lambda: sum(1 for _ in kept.batches(plan, 0, key_of)), CPU) / 1e3 for _ in range(2)
    )
    audio_s = sum(each.duration_s for each in utterances)
    return {
        "audio_s": audio_s,
        "seconds": first,
        "audio_s_per_s": audio_s / first,
        "cached_audio_s_per_s": audio_s / second,
        "wait_share": wait_share(loader().batches(plan[:NUM_BATCHES], 0, key_of), consumer_ms / 1e3),
        "consumer_ms": consumer_ms,
    }


def wait_share(items: Iterator[object], consumer_s: float) -> float:
    """The share of the time that a consumer waits which needs `consumer_s` for each item, asleep meanwhile."""
    began = time.perf_counter()
    count = 0
    for _ in items:
        time.sleep(consumer_s)
        count += 1
    return 1.0 - count * consumer_s / (time.perf_counter() - began)
