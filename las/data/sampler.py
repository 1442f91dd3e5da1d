"""Composition and order of training batches: a pure function of (manifest hash, seed, epoch).

Utterances are shuffled by sorting hashes, independent of any random generator, whose stream might change.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from las.config.build import check_value, require
from las.data.manifest import Utterance
from las.runtime.errors import ConfigError

Plan = list[list[int]]
"""Batches of indices into a list of utterances."""


class BatchSize(NamedTuple):
    """Maximum size of a batch: utterances, and seconds with padding (their number times the longest of them).

    A single utterance longer than that is a batch by itself.
    """

    utterances: int
    seconds: float | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "BatchSize":
        """Read the keys `batch_size` and `max_batch_s`. Raises ConfigError for values out of range."""
        utterances, seconds = config["batch_size"], config["max_batch_s"]
        check_value("batch_size", utterances, int)
        check_value("max_batch_s", seconds, float | None)
        if utterances < 1:
            raise ConfigError(f"batch_size={utterances} must be at least 1")
        if seconds is not None and not seconds > 0:
            raise ConfigError(f"max_batch_s={seconds} must be above 0, or null for no limit")
        return cls(utterances, seconds)


DECODED = BatchSize(64, 400.0)
"""Default batch of a search: 64 utterances, or fewer long ones."""


@dataclass(frozen=True)
class BatchSampler:
    """Base class of samplers; a subclass defines `plan`, in which every utterance occurs exactly once in an epoch."""

    def plan(self, utterances: Sequence[Utterance], manifest_hash: str, seed: int, epoch: int, size: BatchSize) -> Plan:
        """Plan the batches of an epoch."""
        raise TypeError(f"{type(self).__name__} must define plan")


@dataclass(frozen=True)
class BucketSampler(BatchSampler):
    """Sampler that sorts utterances by length, cuts them into buckets, shuffles within buckets, then shuffles batches.

    Args:
        num_buckets: number of buckets, of about equal numbers of utterances.
    """

    num_buckets: int = 10

    def __post_init__(self) -> None:
        require("num_buckets", self.num_buckets, 1)

    def plan(self, utterances: Sequence[Utterance], manifest_hash: str, seed: int, epoch: int, size: BatchSize) -> Plan:
        batches_per_bucket = -(-len(utterances) // (size.utterances * self.num_buckets))
        batches: Plan = []
        for bucket in _parts(by_length(utterances), max(batches_per_bucket, 1) * size.utterances):
            batches += cut(_shuffled(bucket, utterances, (manifest_hash, seed, epoch)), utterances, size)
        return sorted(batches, key=lambda batch: _rank(manifest_hash, seed, epoch, "batch", utterances[batch[0]].id))


@dataclass(frozen=True)
class ChunkedSampler(BatchSampler):
    """Sampler that shuffles all utterances, cuts them into chunks, and sorts each chunk by length.

    Batches keep that order (Zeineldeen et al. 2020 with chunks of 6,000).

    Args:
        chunk_size: number of utterances in a chunk.
    """

    chunk_size: int = 6000

    def __post_init__(self) -> None:
        require("chunk_size", self.chunk_size, 1)

    def plan(self, utterances: Sequence[Utterance], manifest_hash: str, seed: int, epoch: int, size: BatchSize) -> Plan:
        shuffled = _shuffled(range(len(utterances)), utterances, (manifest_hash, seed, epoch))
        batches: Plan = []
        for chunk in _parts(shuffled, self.chunk_size):
            batches += cut(by_length(utterances, chunk), utterances, size)
        return batches


def sequential(utterances: Sequence[Utterance], size: BatchSize) -> Plan:
    """Batches in order of length, for evaluation, with little padding."""
    return cut(by_length(utterances), utterances, size)


def by_length(utterances: Sequence[Utterance], indices: Sequence[int] | None = None) -> list[int]:
    """Sort indices of utterances (None: of all), shortest first."""
    listed = range(len(utterances)) if indices is None else indices
    return sorted(listed, key=lambda index: (utterances[index].duration_s, utterances[index].id))


def cut(indices: Sequence[int], utterances: Sequence[Utterance], size: BatchSize) -> Plan:
    """Cut a sequence of indices into batches as large as `size` allows."""
    if size.utterances < 1:
        raise ValueError(f"batches of {size.utterances} utterances, expected at least 1")
    batches: Plan = []
    longest_s = 0.0
    for index in indices:
        duration_s = utterances[index].duration_s
        longest_s = max(longest_s, duration_s)
        too_long = size.seconds is not None and batches and longest_s * (len(batches[-1]) + 1) > size.seconds
        if not batches or len(batches[-1]) == size.utterances or too_long:
            batches.append([])
            longest_s = duration_s
        batches[-1].append(index)
    return batches


def _parts(indices: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(indices), size):
        yield indices[start : start + size]


def _shuffled(indices: Sequence[int], utterances: Sequence[Utterance], key: tuple[str, int, int]) -> list[int]:
    """Sort indices of utterances by hashes of the key (manifest hash, seed, epoch) and the id."""
    return sorted(indices, key=lambda index: _rank(*key, "utterance", utterances[index].id))


def _rank(*key: object) -> bytes:
    return hashlib.sha256("\0".join(map(str, key)).encode("utf-8", "surrogatepass")).digest()
