"""Plans of batches, and the loader that reads the batches of a plan ahead of their use.

The composition and order of training batches is a pure function of (manifest hash, seed, epoch). Utterances are
shuffled by sorting hashes, independent of any random generator, whose stream might change.
"""

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from las.config.build import check_value, require
from las.data.audio import files, worker_pool
from las.data.augmentation.augmentation import Augmentation
from las.data.augmentation.distortion import Talkers
from las.data.manifest import Utterance
from las.data.tokenizers import Tokenizer
from las.runtime.errors import ConfigError, DataError

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


@dataclass(frozen=True)
class CurriculumSampler(BatchSampler):
    """Sampler of epochs from short to long in the beginning, then those of another (SortaGrad; Amodei et al. 2016).

    Args:
        then: the sampler of the other epochs.
        sorted_epochs: number of epochs, from the first, whose batches go from the shortest utterances to the longest.
    """

    then: BatchSampler
    sorted_epochs: int = 1

    def __post_init__(self) -> None:
        require("sorted_epochs", self.sorted_epochs, 1)

    def plan(self, utterances: Sequence[Utterance], manifest_hash: str, seed: int, epoch: int, size: BatchSize) -> Plan:
        if epoch < self.sorted_epochs:
            return sequential(utterances, size)
        return self.then.plan(utterances, manifest_hash, seed, epoch, size)


def sequential(utterances: Sequence[Utterance], size: BatchSize) -> Plan:
    """Batches from the shortest utterances to the longest, with little padding."""
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


@dataclass(frozen=True)
class Batch:
    """Batch of utterances: waveforms padded with zeros, targets (without boundaries) padded with id 0.

    `keys` are the seeds of the utterances' augmentation (`augmentation_seed`); without augmentation there are none.

    >>> import las, torch
    >>> waveforms, targets = torch.zeros(2, 16000), torch.tensor([[4, 7, 2], [5, 0, 0]])
    >>> batch = las.Batch(["u1", "u2"], waveforms, torch.tensor([16000, 9000]), targets, torch.tensor([3, 1]))
    >>> [part.waveforms.shape for part in batch.split(1)]
    [torch.Size([1, 16000]), torch.Size([1, 9000])]
    """

    ids: list[str]
    waveforms: Float[Tensor, "batch samples"]
    num_samples: Int[Tensor, " batch"]
    targets: Int[Tensor, "batch tokens"]
    num_tokens: Int[Tensor, " batch"]
    keys: tuple[int, ...] = ()

    def split(self, max_utterances: int | None) -> "list[Batch]":
        """Split into batches of at most `max_utterances` (None: one batch); an empty batch gives an empty list."""
        if not self.ids:
            return []
        if max_utterances is None or max_utterances >= len(self.ids):
            return [self]
        return [self._part(slice(start, start + max_utterances)) for start in range(0, len(self.ids), max_utterances)]

    def _part(self, rows: slice) -> "Batch":
        num_samples, num_tokens = self.num_samples[rows], self.num_tokens[rows]
        waveforms = self.waveforms[rows, : int(num_samples.max())]
        targets = self.targets[rows, : int(num_tokens.max())]
        return Batch(self.ids[rows], waveforms, num_samples, targets, num_tokens, self.keys[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """Copy waveforms and targets to a device; lengths stay on the CPU, where loops are planned by them."""
        waveforms, targets = (each.to(device, non_blocking=True) for each in (self.waveforms, self.targets))
        return replace(self, waveforms=waveforms, targets=targets)

    def pin_memory(self) -> "Batch":
        """Copy waveforms and targets to memory that a GPU reads while the host goes on."""
        return replace(self, waveforms=self.waveforms.pin_memory(), targets=self.targets.pin_memory())


def augmentation_seed(seed: int, epoch: int, utterance_id: str) -> int:
    """Seed of the augmentation of an utterance in an epoch: 63 bits, the same on every machine."""
    key = "\0".join((str(seed), str(epoch), "augment", utterance_id)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 1


def drop_unknown_symbols(utterances: Iterable[Utterance], tokens: Tokenizer) -> list[Utterance]:
    """Remove symbols that the tokens lack from the texts of utterances, for teacher-forced evaluation.

    Scoring uses the whole texts, so that symbols a model cannot write count as errors.
    """
    return [
        replace(utterance, text=tokens.known(utterance.text)) if tokens.unknown(utterance.text) else utterance
        for utterance in utterances
    ]


@runtime_checkable
class Targets(Protocol):
    """Source of the targets of utterances: a tokenizer gives the ids of the symbols of their texts."""

    def targets(self, utterance: Utterance) -> Sequence[int] | np.ndarray:
        """Return the targets of an utterance. Raises DataError where it has none that can be used."""


def collate(
    utterances: Sequence[Utterance], waveforms: Sequence[Tensor], source: Targets, keys: Sequence[int] = ()
) -> Batch:
    """Collate utterances, their waveforms ([samples] each) and the targets that `source` has for them into a batch.

    Raises DataError naming the utterance whose text holds an unknown symbol.
    """
    targets = []
    for utterance in utterances:
        try:
            targets.append(torch.as_tensor(source.targets(utterance), dtype=torch.long))
        except DataError as error:
            raise DataError(f"utterance {utterance.id}: {error}") from error
    return Batch(
        ids=[utterance.id for utterance in utterances],
        waveforms=pad_sequence(list(waveforms), batch_first=True) if waveforms else torch.zeros(0, 0),
        num_samples=torch.tensor([len(waveform) for waveform in waveforms], dtype=torch.long),
        targets=pad_sequence(targets, batch_first=True) if targets else torch.zeros(0, 0, dtype=torch.long),
        num_tokens=torch.tensor([len(target) for target in targets], dtype=torch.long),
        keys=tuple(keys),
    )


class Loader:
    """Loader that reads batches ahead of their use, in threads, and caches decoded audio up to `cache_bytes`.

    Each thread has a process that reads its files; without workers they are read in this process.
    With `augment`, the waveforms of an epoch with keys are perturbed in the same threads. Babble is mixed from the
    utterances of the loader `babble`, or from the other ones of this loader. With `pin_memory`, which needs a GPU, the
    host goes on while a batch is copied there.

    The number of workers changes the speed, never the batches or their order.

    >>> import las
    >>> from las.data.loader import BatchSize
    >>> utterances = [las.Utterance(f"u{n}", "audio.wav", 0, 0.0, 0.1 * n, "ab" * n, "ann") for n in (3, 1, 2)]
    >>> loader = las.Loader(utterances, las.Characters("ab"), sample_rate=16000, num_workers=0)
    >>> plan = las.BucketSampler(num_buckets=1).plan(utterances, "", seed=1, epoch=1, size=BatchSize(2))
    >>> for _, batch in loader.batches(plan):
    ...     print(batch.ids, batch.waveforms.shape, batch.targets.shape)
    ...
    ['u1'] torch.Size([1, 1600]) torch.Size([1, 2])
    ['u2', 'u3'] torch.Size([2, 4800]) torch.Size([2, 6])
    """

    def __init__(
        self,
        utterances: Sequence[Utterance],
        targets: Targets,
        sample_rate: int,
        num_workers: int = 2,
        prefetch: int = 4,
        cache_bytes: int = 2 << 30,
        augment: Augmentation | None = None,
        babble: "Loader | None" = None,
        pin_memory: bool = False,
    ) -> None:
        self._pin_memory = pin_memory
        self._utterances, self._targets, self._sample_rate = utterances, targets, sample_rate
        self._num_workers, self._prefetch = num_workers, max(prefetch, 1)
        self._augment, self._babble = augment, babble
        self._cache: dict[int, Tensor] = {}
        self._free_bytes = cache_bytes
        self._read_audio = worker_pool.run_in_worker if num_workers else worker_pool.run_here
        self._lock = threading.Lock()

    def batches(
        self, plan: Plan, start: int = 0, key_of: Callable[[str], int] | None = None
    ) -> Iterator[tuple[int, Batch]]:
        """Yield (index in the plan, batch) from batch `start` on, without reading the batches before it.

        `key_of` gives the seed of the augmentation of an utterance id; without it nothing is augmented.
        Raises DataError naming the utterance whose audio or text cannot be used.
        """
        if self._num_workers == 0:
            yield from ((index, self._batch(plan[index], key_of)) for index in range(start, len(plan)))
            return
        pool = ThreadPoolExecutor(self._num_workers, thread_name_prefix="las-loader")
        try:
            waiting: deque[tuple[int, Future[Batch]]] = deque()
            for index in range(start, len(plan)):
                waiting.append((index, pool.submit(self._batch, plan[index], key_of)))
                if len(waiting) > self._prefetch:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _batch(self, indices: list[int], key_of: Callable[[str], int] | None) -> Batch:
        made = self._collated(indices, key_of)
        return made.pin_memory() if self._pin_memory else made

    def _collated(self, indices: list[int], key_of: Callable[[str], int] | None) -> Batch:
        chosen = [self._utterances[index] for index in indices]
        waveforms = [self.waveform(index) for index in indices]
        if self._augment is None or key_of is None:
            return collate(chosen, waveforms, self._targets)
        keys = [key_of(utterance.id) for utterance in chosen]
        augmented = [
            self._augment.waveform(waveform, self._sample_rate, key, self.talkers(index))
            for index, waveform, key in zip(indices, waveforms, keys, strict=True)
        ]
        return collate(chosen, augmented, self._targets, keys)

    def talkers(self, index: int) -> Talkers:
        """Return the utterances that babble behind an utterance is mixed from."""
        if (babble := self._babble) is not None:
            return Talkers(len(babble._utterances), lambda other: babble.waveform(other).double().numpy())
        others = len(self._utterances) - 1  # all but itself
        return Talkers(others, lambda other: self.waveform(other + (other >= index)).double().numpy())

    def waveform(self, index: int) -> Float[Tensor, " samples"]:
        """Waveform of an utterance by its place in the list, from the cache if it is there.

        Every utterance is read once an epoch, in any order, so that evicting entries would not help.
        """
        waveform = self._cache.get(index)
        if waveform is None:
            waveform = read(self._utterances[index], self._sample_rate, self._read_audio)
            num_bytes = waveform.numel() * waveform.element_size()
            with self._lock:
                if index not in self._cache and num_bytes <= self._free_bytes:
                    self._cache[index] = waveform
                    self._free_bytes -= num_bytes
        return waveform


def read(
    utterance: Utterance, sample_rate: int, read_audio: Callable[..., np.ndarray] = worker_pool.run_here
) -> Float[Tensor, " samples"]:
    """Read the waveform of an utterance, empty for one that is only text.

    `read_audio` is `worker_pool.run_here` or `worker_pool.run_in_worker`.

    Raises DataError naming the utterance when its audio is damaged or of another rate.
    """
    if not utterance.audio:
        return torch.zeros(0)
    try:
        stretch = (utterance.channel, utterance.start_s, utterance.duration_s)
        return torch.from_numpy(read_audio(utterance.audio, files.load, utterance.audio, *stretch, sample_rate))
    except DataError as error:
        raise DataError(f"utterance {utterance.id}: {error}") from error
