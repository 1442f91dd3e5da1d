"""Utterances side by side, and the loader that reads those of a plan ahead of their use."""

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from las.data.audio import files, worker_pool
from las.data.augmentation import Augmentation
from las.data.manifest import Utterance
from las.data.sampler import Plan
from las.data.tokenizers import Tokenizer
from las.runtime.errors import DataError


@dataclass(frozen=True)
class Batch:
    """Utterances side by side: waveforms padded with zeros, targets (without boundaries) with id 0.

    `keys` are those of the utterances' augmentation (see `augmentation_seed`); a batch that is not augmented has none.

    >>> import las, torch
    >>> waveforms, targets = torch.zeros(2, 16000), torch.tensor([[4, 7, 2], [5, 0, 0]])
    >>> batch = las.Batch(["u1", "u2"], waveforms, torch.tensor([16000, 9000]), targets, torch.tensor([3, 1]))
    >>> [part.waveforms.shape for part in batch.split(1)]
    [torch.Size([1, 16000]), torch.Size([1, 9000])]
    """

    ids: list[str]
    waveforms: Float[Tensor, "batch samples"]
    num_samples: Int[Tensor, "batch"]
    targets: Int[Tensor, "batch tokens"]
    num_tokens: Int[Tensor, "batch"]
    keys: tuple[int, ...] = ()

    def split(self, most: int | None) -> "list[Batch]":
        """In parts of at most `most` utterances, all at once by default; nothing for a batch of none."""
        if not self.ids:
            return []
        most = len(self.ids) if most is None else most
        if most >= len(self.ids):
            return [self]
        return [self._part(slice(start, start + most)) for start in range(0, len(self.ids), most)]

    def _part(self, rows: slice) -> "Batch":
        """Some of the utterances, without padding that only others need."""
        num_samples, num_tokens = self.num_samples[rows], self.num_tokens[rows]
        waveforms = self.waveforms[rows, : int(num_samples.max())]
        targets = self.targets[rows, : int(num_tokens.max())]
        return Batch(self.ids[rows], waveforms, num_samples, targets, num_tokens, self.keys[rows])

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


def augmentation_seed(seed: int, epoch: int, utterance_id: str) -> int:
    """What one utterance's augmentation in one epoch is drawn from: 63 bits, the same wherever it is computed."""
    digest = hashlib.sha256(
        "\0".join((str(seed), str(epoch), "augment", utterance_id)).encode("utf-8", "surrogatepass")
    )
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def drop_unknown_symbols(utterances: Iterable[Utterance], tokens: Tokenizer) -> list[Utterance]:
    """The utterances without those symbols of their texts that the tokens lack: what a model is evaluated against.

    Scoring is told the whole texts: what a model cannot write counts as an error there.
    """
    return [replace(each, text=tokens.known(each.text)) if tokens.unknown(each.text) else each for each in utterances]


def collate(
    utterances: Sequence[Utterance], waveforms: Sequence[Tensor], tokens: Tokenizer, keys: Sequence[int] = ()
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
        waveforms=pad_sequence(list(waveforms), batch_first=True) if waveforms else torch.zeros(0, 0),
        num_samples=torch.tensor([len(waveform) for waveform in waveforms], dtype=torch.long),
        targets=pad_sequence(targets, batch_first=True) if targets else torch.zeros(0, 0, dtype=torch.long),
        num_tokens=torch.tensor([len(target) for target in targets], dtype=torch.long),
        keys=tuple(keys),
    )


class Loader:
    """Reads the batches of a plan ahead of their use, in threads, and keeps decoded audio up to `cache_bytes`.

    Each thread has a process that reads its files; without workers they are read where they are used.
    With `augment`, the waveforms of an epoch with keys are perturbed in the same threads.

    The number of workers changes how fast batches come, never which or in which order.

    >>> import las
    >>> from las.data.sampler import BatchSize
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
        tokens: Tokenizer,
        sample_rate: int,
        num_workers: int = 2,
        prefetch: int = 4,
        cache_bytes: int = 2 << 30,
        augment: Augmentation | None = None,
    ) -> None:
        self._utterances = utterances
        self._tokens = tokens
        self._sample_rate = sample_rate
        self._num_workers = num_workers
        self._prefetch = max(prefetch, 1)
        self._cache: dict[int, Tensor] = {}
        self._room = cache_bytes
        self._augment = augment
        self._where = worker_pool.run_in_worker if num_workers else worker_pool.run_here
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
            waveform = read(self._utterances[index], self._sample_rate, self._where)
            num_bytes = waveform.numel() * waveform.element_size()
            with self._lock:
                if index not in self._cache and num_bytes <= self._room:
                    self._cache[index] = waveform
                    self._room -= num_bytes
        return waveform


def read(
    utterance: Utterance, sample_rate: int, where: Callable[..., np.ndarray] = worker_pool.run_here
) -> Float[Tensor, "samples"]:
    """The waveform of an utterance, none for one that is only text, read `reader.here` or `reader.elsewhere`.

    Raises DataError naming the utterance when its audio is damaged or of another rate.
    """
    if not utterance.audio:
        return torch.zeros(0)
    try:
        stretch = (utterance.channel, utterance.start_s, utterance.duration_s)
        return torch.from_numpy(where(utterance.audio, files.load, utterance.audio, *stretch, sample_rate))
    except DataError as error:
        raise DataError(f"utterance {utterance.id}: {error}") from error
