"""suite=loader: the speed of loading batches from a corpus, and the share of time that a training waits for them."""

import functools
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks import inputs, timing
from benchmarks.inputs import BenchmarkModel
from benchmarks.records import Group, Row, TableColumn, number, text
from benchmarks.settings import Settings
from las.config.build import Config
from las.data.loader import BatchSize, Loader, Plan, augmentation_seed, sequential
from las.data.manifest import Utterance
from las.runtime import devices, progress

KEY_OF = functools.partial(augmentation_seed, 1, 0)
CPU = torch.device("cpu")
WORKERS = (0, 1, 2, 4)
MAX_BATCHES = 100  # evenly spread over the corpus
NUM_CONSUMED = 20  # batches, when waiting is measured

COLUMNS = (
    TableColumn("threads that read", text("implementation")),
    TableColumn("corpus", text("corpus")),
    TableColumn("audio s per s", number("audio_s_per_s", 0)),
    TableColumn("from memory", number("cached_audio_s_per_s", 0)),
    TableColumn("waiting %", number("wait_share", 1, 100.0)),
    TableColumn("waiting in training %", number("trained_wait_share", 2, 100.0)),
    TableColumn("training, audio s per s", number("trained_audio_s_per_s", 0)),
)


def measure(settings: Settings) -> Iterator[Group]:
    """Measure each number of threads, in one group; with that of the experiment its model is trained as well."""
    config = settings.config
    subject = inputs.subject(config)
    utterances = subject.corpus.prepare(Path(config["data_dir"]) / "manifests")[subject.corpus.splits[0]]
    size = config["trainer"]["batch_size"]
    plan = sequential(utterances, BatchSize(size))
    plan = plan[:: -(-len(plan) // MAX_BATCHES)]
    count = sum(map(len, plan))
    place = ", from shards" if subject.corpus.packed else ""
    shape = f"{subject.corpus.name}{place}: {count} utterances in batches of {size}"
    _milliseconds(_loader(subject, utterances, max(WORKERS)), plan)  # fills the system's file cache for all
    rows = []
    for workers in progress.counted(WORKERS, len(WORKERS), "numbers of threads"):
        results = _measured(subject, utterances, plan, workers, float(config["consumer_ms"]))
        if workers == devices.reading_workers(config["trainer"]["num_workers"]):
            results |= _trained(
                subject, utterances, plan[:: -(-len(plan) // config["trained_batches"])], workers, config
            )
        row = settings.row(f"workers{workers}", "", shape)
        rows.append(row | {"corpus": subject.corpus.name, "workers": workers, "utterances": count} | results)
    yield Group(shape, rows)


def _loader(subject: BenchmarkModel, utterances: list[Utterance], workers: int) -> Loader:
    corpus, augment = subject.corpus, subject.parts.augment
    return Loader(utterances, corpus.tokens, corpus.sample_rate, workers, augment=augment)


def _milliseconds(loader: Loader, plan: Plan) -> float:
    return timing.milliseconds(lambda: sum(1 for _ in loader.batches(plan, 0, KEY_OF)), CPU)


def _measured(
    subject: BenchmarkModel, utterances: list[Utterance], plan: Plan, workers: int, consumer_ms: float
) -> Row:
    """Measure batches from files, from the cache in memory, and a few for a slow consumer."""
    loader = _loader(subject, utterances, workers)
    first_s, second_s = (_milliseconds(loader, plan) / 1e3 for _ in range(2))
    audio_s = sum(utterances[index].duration_s for batch in plan for index in batch)
    consumed = _loader(subject, utterances, workers).batches(plan[:NUM_CONSUMED], 0, KEY_OF)
    return {
        "audio_s": audio_s,
        "seconds": first_s,
        "audio_s_per_s": audio_s / first_s,
        "cached_audio_s_per_s": audio_s / second_s,
        "wait_share": wait_share(consumed, consumer_ms / 1e3),
        "consumer_ms": consumer_ms,
    }


def _trained(subject: BenchmarkModel, utterances: list[Utterance], plan: Plan, workers: int, config: Config) -> Row:
    """Measure the share of its time that a training waits for batches from files, the first batch included."""
    loader = _loader(subject, utterances, workers)
    subject.parts.model.to(subject.parts.device)
    update = subject.updates(config["trainer"]["precision"], str(config["kernel"]))
    waited_s, began = 0.0, time.perf_counter()
    requested_at = began
    for _, batch in loader.batches(plan, 0, KEY_OF):
        waited_s += time.perf_counter() - requested_at
        update(batch.to(subject.parts.device))
        requested_at = time.perf_counter()
    took_s = time.perf_counter() - began
    audio_s = sum(utterances[index].duration_s for batch in plan for index in batch)
    return {
        "trained_batches": len(plan),
        "trained_wait_share": waited_s / took_s,
        "trained_audio_s_per_s": audio_s / took_s,
    }


def wait_share(items: Iterator[object], consumer_s: float) -> float:
    """The share of its time that a consumer waits for items, if it sleeps `consumer_s` seconds after each."""
    began = time.perf_counter()
    count = 0
    for _ in items:
        time.sleep(consumer_s)
        count += 1
    return 1.0 - count * consumer_s / (time.perf_counter() - began)
