"""Batches of utterances of similar length, in an order that depends on nothing but (manifest hash, seed, epoch)."""

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from las import audio
from las.augment import Augment
from las.errors import DataError
from las.manifest import Utterance
from las.tokens import Tokens

Plan = list[list[int]]


@dataclass(frozen=True)
class Batch:
    """Utterances side by side: waveforms padded with zeros, targets (without boundaries) with id 0.

    `keys` are those of the utterances' augmentation (see `key`); a batch that is not augmented has none.
    """

    ids: list[str]
    waveforms: Float[Tensor, "batch samples"]
    num_samples: Int[Tensor, "batch"]
    targets: Int[Tensor, "batch tokens"]
    num_tokens: Int[Tensor, "batch"]
    keys: tuple[int, ...] = ()

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on a device."""
        return Batch(
            self.ids,
            self.waveforms.to(device, non_blocking=True),
            self.num_samples.to(device, non_blocking=True),
            self.targets.to(device, non_blocking=True),
            self.num_tokens.to(device, non_blocking=True),
            self.keys,
        )


def key(seed: int, epoch: int, utterance_id: str) -> int:
    """What one utterance's augmentation in one epoch is drawn from: 63 bits, the same wherever it is computed."""
    return int.from_bytes(_rank(seed, epoch, "augment", utterance_id)[:8], "big") >> 1


def plan(
    utterances: Sequence[Utterance],
    manifest_hash: str,
    seed: int,
    epoch: int,
    batch_size: int,
    num_buckets: int = 10,
    max_batch_s: float | None = None,
) -> Plan:
    """One epoch: batches of indices into `utterances`, each utterance exactly once.

    Utterances sorted by length are cut into `num_buckets` buckets of neighbours, shuffled within their bucket, cut
    into batches of at most `batch_size`, and the batches of all buckets shuffled. `max_batch_s` caps the seconds of a
    padded batch, its size times its longest utterance (an utterance longer than that is a batch of its own).
    Shuffling is sorting by a hash of (manifest hash, seed, epoch, id): no random generator whose stream might change.
    """
    by_length = _by_length(utterances)
    batches_per_bucket = -(-len(by_length) // (batch_size * num_buckets))
    bucket_size = max(batches_per_bucket, 1) * batch_size
    batches: Plan = []
    for start in range(0, len(by_length), bucket_size):
        bucket = by_length[start : start + bucket_size]
        shuffled = sorted(
            bucket, key=lambda index: _rank(manifest_hash, seed, epoch, "utterance", utterances[index].id)
        )
        batches += _cut(shuffled, utterances, batch_size, max_batch_s)
    return sorted(batches, key=lambda batch: _rank(manifest_hash, seed, epoch, "batch", utterances[batch[0]].id))


def sequential(utterances: Sequence[Utterance], batch_size: int, max_batch_s: float | None = None) -> Plan:
    """Batches in order of length, for evaluation: least padding, and the same batches every time."""
    return _cut(_by_length(utterances), utterances, batch_size, max_batch_s)


def spellable(utterances: Iterable[Utterance], tokens: Tokens) -> list[Utterance]:
    """The utterances without those symbols of their texts that the tokens lack: what a model is evaluated against.

    Scoring is told the whole texts: what a model cannot write counts as an error there.
    """
    return [replace(each, text=tokens.known(each.text)) if tokens.unknown(each.text) else each for each in utterances]


def collate(
    utterances: Sequence[Utterance], waveforms: Sequence[Tensor], tokens: Tokens, keys: Sequence[int] = ()
) -> Batch:
    """One batch of utterances and their waveforms ([samples] each).

    Raises DataError naming the utterance whose text holds an unknown symbol.
    """
    targets = []
    for utterance in utterances:
        try:
            targets.append(torch.tensor(tokens.encode(utterance.text), dtype=torch.long))
        except DataError as error:
            raise DataError(f"utterance {utterance.id}: {error}") from error
    return Batch(
        ids=[utterance.id for utterance in utterances],
        waveforms=pad_sequence(list(waveforms), batch_first=True),
        num_samples=torch.tensor([len(waveform) for waveform in waveforms]),
        targets=pad_sequence(targets, batch_first=True),
        num_tokens=torch.tensor([len(target) for target in targets]),
        keys=tuple(keys),
    )


class Loader:
    """Reads the batches of a plan ahead of their use, in threads, and keeps decoded audio up to `cache_bytes`.

    With `augment`, the waveforms of an epoch with keys are perturbed in the same threads.

    The number of workers changes how fast batches come, never which or in which order.
    """

    def __init__(
        self,
        utterances: Sequence[Utterance],
        tokens: Tokens,
        sample_rate: int,
        num_workers: int = 2,
        prefetch: int = 4,
        cache_bytes: int = 2 << 30,
        augment: Augment | None = None,
    ) -> None:
        self._utterances = utterances
        self._tokens = tokens
        self._sample_rate = sample_rate
        self._num_workers = num_workers
        self._prefetch = max(prefetch, 1)
        self._cache: dict[int, Tensor] = {}
        self._room = cache_bytes
        self._augment = augment
        self._lock = threading.Lock()

    def batches(
        self, plan: Plan, start: int = 0, key_of: Callable[[str], int] | None = None
    ) -> Iterator[tuple[int, Batch]]:
        """(index of the batch in the plan, batch), from batch `start` on, which costs no more than from the first.

        `key_of` gives the key of an utterance's augmentation; without it nothing is augmented.
        Raises DataError naming the utterance whose audio or text cannot be used.
        """
        if self._num_workers == 0:
            for index in range(start, len(plan)):
                yield index, self._batch(plan[index], key_of)
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
        chosen = [self._utterances[index] for index in indices]
        waveforms = [self._waveform(index) for index in indices]
        if self._augment is None or key_of is None:
            return collate(chosen, waveforms, self._tokens)
        keys = [key_of(utterance.id) for utterance in chosen]
        augmented = [
            self._augment.waveform(waveform, self._sample_rate, key)
            for waveform, key in zip(waveforms, keys, strict=True)
        ]
        return collate(chosen, augmented, self._tokens, keys)

    def _waveform(self, index: int) -> Tensor:
        """Audio is read in any order once per epoch, so what does not fit is read again: evicting would not help."""
        waveform = self._cache.get(index)
        if waveform is None:
            waveform = read(self._utterances[index], self._sample_rate)
            num_bytes = waveform.numel() * waveform.element_size()
            with self._lock:
                if index not in self._cache and num_bytes <= self._room:
                    self._cache[index] = waveform
                    self._room -= num_bytes
        return waveform


def read(utterance: Utterance, sample_rate: int) -> Float[Tensor, "samples"]:
    """The waveform of an utterance. Raises DataError naming it when its audio is damaged or of another rate."""
    try:
        end_s = utterance.start_s + utterance.duration_s
        audio.info(utterance.audio).require(utterance.audio, sample_rate, end_s)
        return audio.load(utterance.audio, utterance.channel, utterance.start_s, utterance.duration_s)
    except DataError as error:
        raise DataError(f"utterance {utterance.id}: {error}") from error


def _by_length(utterances: Sequence[Utterance]) -> list[int]:
    return sorted(range(len(utterances)), key=lambda index: (utterances[index].duration_s, utterances[index].id))


def _rank(*key: object) -> bytes:
    return hashlib.sha256("\0".join(map(str, key)).encode("utf-8", "surrogatepass")).digest()


def _cut(indices: list[int], utterances: Sequence[Utterance], batch_size: int, max_batch_s: float | None) -> Plan:
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, expected at least 1")
    batches: Plan = []
    longest_s = 0.0
    for index in indices:
        duration_s = utterances[index].duration_s
        longest_s = max(longest_s, duration_s)
        too_long = max_batch_s is not None and batches and longest_s * (len(batches[-1]) + 1) > max_batch_s
        if not batches or len(batches[-1]) == batch_size or too_long:
            batches.append([])
            longest_s = duration_s
        batches[-1].append(index)
    return batches
