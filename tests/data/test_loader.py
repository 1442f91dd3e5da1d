"""Batches hold what files hold, whoever reads them; their order depends on manifest hash, seed and epoch alone."""

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from las.data.audio import worker_pool
from las.data.loader import (
    BatchSampler,
    BatchSize,
    BucketSampler,
    ChunkedSampler,
    CurriculumSampler,
    Loader,
    Plan,
    collate,
    sequential,
)
from las.data.manifest import Utterance
from las.data.tokenizers import Characters
from las.runtime.errors import ConfigError

RATE = 16000
TOKENS = Characters("abcdefghij")


def test_collating_pads_and_counts() -> None:
    utterances = [
        Utterance("a", "", 0, 0.0, 1.0, "abc", "s"),
        Utterance("b", "", 0, 0.0, 1.0, "j", "s"),
        Utterance("c", "", 0, 0.0, 1.0, "", "s"),
    ]
    batch = collate(utterances, [torch.ones(2), torch.ones(4), torch.ones(1)], TOKENS)
    assert batch.ids == ["a", "b", "c"]
    assert batch.waveforms.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]
    assert batch.num_samples.tolist() == [2, 4, 1]
    assert batch.targets.tolist() == [[1, 2, 3], [10, 0, 0], [0, 0, 0]]
    assert batch.num_tokens.tolist() == [3, 1, 0]
    moved = batch.to("meta")
    assert moved.ids == batch.ids
    assert {t.device.type for t in (moved.waveforms, moved.targets)} == {"meta"}
    assert {t.device.type for t in (moved.num_samples, moved.num_tokens)} == {"cpu"}


def test_collating_names_the_utterance_with_a_bad_text() -> None:
    bad = [Utterance("u0", "", 0, 0.0, 1.0, "z", "s")]
    refused("utterance u0|symbol 'z'", collate, bad, [torch.ones(2)], TOKENS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Utterance]:
    """Stretches of the second channel of twenty files, of different lengths, whose samples hold the file's number."""
    folder, utterances = tmp_path_factory.mktemp("audio"), []
    for index in range(20):
        count, path = 100 + 37 * (index * 7 % 20), folder / f"{index}.wav"
        soundfile.write(path, np.pad(np.full((count, 1), index * 100, np.int16), ((50, 9), (1, 0))), RATE)
        text = TOKENS.decode([1 + index % 10])
        utterances.append(Utterance(f"u{index}", str(path), 1, 50 / RATE, count / RATE, text, "s"))
    return utterances


def noting(names: list[str]) -> Callable[..., np.ndarray]:
    """Reads here, and notes the files."""
    here = worker_pool.run_here
    return lambda name, *call: names.append(name) or here(name, *call)


@pytest.mark.parametrize("num_workers", [0, 1, 2, 4])
@pytest.mark.parametrize("cache_bytes", [0, 4000, 2 << 30])
def test_workers_and_cache_change_nothing(corpus: list[Utterance], num_workers: int, cache_bytes: int) -> None:
    order = BucketSampler().plan(corpus, "hash", 1, 0, BatchSize(3))
    loader = Loader(corpus, TOKENS, RATE, num_workers, cache_bytes=cache_bytes)
    for _ in range(2):
        loaded = list(loader.batches(order))
        assert [index for index, _ in loaded] == list(range(len(order)))
        for (_, batch), indices in zip(loaded, order, strict=True):
            assert batch.ids == [corpus[index].id for index in indices]
            for row, index in enumerate(indices):
                length = round(corpus[index].duration_s * RATE)
                assert batch.num_samples[row] == length
                assert (batch.waveforms[row, :length] == index * 100 / 32768).all()
                assert (batch.waveforms[row, length:] == 0).all()
                assert batch.targets[row].tolist() == [1 + index % 10]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_resuming_gives_the_rest_without_reading_what_came_before(corpus, num_workers: int, monkeypatch) -> None:
    order = BucketSampler().plan(corpus, "hash", 1, 0, BatchSize(3))
    every = list(Loader(corpus, TOKENS, RATE, num_workers).batches(order))
    read: list[str] = []
    monkeypatch.setattr(worker_pool, "run_in_worker" if num_workers else "run_here", noting(read))
    for start in (0, 4, len(order) - 1, len(order)):
        read.clear()
        rest = list(Loader(corpus, TOKENS, RATE, num_workers).batches(order, start))
        assert [index for index, _ in rest] == list(range(start, len(order)))
        for (_, one), (_, other) in zip(rest, every[start:], strict=True):
            assert one.ids == other.ids and one.waveforms.equal(other.waveforms) and one.targets.equal(other.targets)
        assert sorted(read) == sorted(corpus[index].audio for batch in order[start:] for index in batch)


def test_the_cache_keeps_what_fits_and_no_more(corpus: list[Utterance], monkeypatch) -> None:
    reads: list[str] = []
    monkeypatch.setattr(worker_pool, "run_here", noting(reads))
    sizes = sorted(4 * round(utterance.duration_s * RATE) for utterance in corpus)
    loader = Loader(corpus, TOKENS, RATE, num_workers=0, cache_bytes=sum(sizes[:5]))
    for expected in (20, 20 + 15):
        list(loader.batches(sequential(corpus, BatchSize(4))))
        assert len(reads) == expected


def test_stopping_early_leaves_no_thread(corpus: list[Utterance]) -> None:
    before = threading.active_count()
    stream: Iterator = Loader(corpus, TOKENS, RATE, num_workers=2).batches(sequential(corpus, BatchSize(2)))
    next(stream)
    assert threading.active_count() > before
    stream.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("name", "says"), [("8k", "8000 Hz"), ("nan", "not finite"), ("absent", "does not exist")])
def test_bad_audio_is_named_with_its_utterance(corpus, tmp_path: Path, num_workers: int, name: str, says: str) -> None:
    soundfile.write(tmp_path / "8k.wav", np.ones(800, np.int16), 8000)
    soundfile.write(tmp_path / "nan.wav", np.full(800, np.nan, np.float32), RATE, "FLOAT")
    mixed = [*corpus, Utterance("bad", str(tmp_path / f"{name}.wav"), 0, 0.0, 0.05, "a", "s")]
    batches = Loader(mixed, TOKENS, RATE, num_workers).batches(sequential(mixed, BatchSize(4)))
    refused(f"utterance bad: |{says}", list, batches)


DURATIONS = [float(duration) for duration in np.random.default_rng(0).uniform(1, 10, 200)]
every_order = pytest.mark.parametrize(
    "kind", [BucketSampler(), ChunkedSampler(50)], ids=lambda kind: type(kind).__name__
)


def listed(durations: list[float]) -> list[Utterance]:
    return [Utterance(f"u{i}", f"{i}.wav", 0, 0.0, duration_s, "abc", "s") for i, duration_s in enumerate(durations)]


def padding_share(plan: Plan, utterances: list[Utterance]) -> float:
    """Share of the seconds that a plan computes which is padding."""
    spoken = sum(utterances[at].duration_s for batch in plan for at in batch)
    computed = sum(len(batch) * max(utterances[at].duration_s for at in batch) for batch in plan)
    return 1.0 - spoken / computed


def flat(plan: Plan) -> list[int]:
    return [index for batch in plan for index in batch]


@given(
    durations=st.lists(st.floats(0.1, 20), max_size=60),
    kind=st.builds(BucketSampler, st.integers(1, 12)) | st.builds(ChunkedSampler, st.integers(1, 40)),
    size=st.builds(BatchSize, st.integers(1, 9), st.none() | st.floats(0.1, 60)),
    seed=st.integers(0, 5),
)
def test_every_utterance_once_and_no_batch_too_large(
    durations: list[float], kind: BatchSampler, size: BatchSize, seed: int
) -> None:
    utterances = listed(durations)
    for plan in (kind.plan(utterances, "hash", seed, 0, size), sequential(utterances, size)):
        assert sorted(flat(plan)) == list(range(len(utterances)))
        for batch in plan:
            assert 1 <= len(batch) <= size.utterances
            padded_s = len(batch) * max(durations[index] for index in batch)
            assert size.seconds is None or len(batch) == 1 or padded_s <= size.seconds


@every_order
def test_hash_seed_and_epoch_each_change_the_order_and_nothing_else_does(kind: BatchSampler) -> None:
    utterances = listed(DURATIONS)
    first = kind.plan(utterances, "hash", 1, 0, BatchSize(8))
    np.random.seed(3)
    torch.manual_seed(3)
    assert kind.plan(utterances, "hash", 1, 0, BatchSize(8)) == first
    keys = (("other", 1, 0), ("hash", 2, 0), ("hash", 1, 1), ("hash", 0, 1))
    others = [kind.plan(utterances, *key, BatchSize(8)) for key in keys]
    for other in others:
        assert sorted(map(sorted, other)) != sorted(map(sorted, first)), "the batches must differ, not only their order"
    assert len({str(plan) for plan in [first, *others]}) == 5


def test_the_order_of_a_published_seed_does_not_drift() -> None:
    """Within any process, whatever its own hashes."""
    six = listed([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert BucketSampler(2).plan(six, "hash", 1, 0, BatchSize(2)) == [[2, 0], [4, 5], [1, 3]]


def test_sorted_chunks_go_from_short_to_long_within_each_chunk_of_random_utterances() -> None:
    plan = ChunkedSampler(50).plan(listed(DURATIONS), "hash", 1, 0, BatchSize(8))
    assert [len(batch) for batch in plan] == 4 * [8, 8, 8, 8, 8, 8, 2]
    chunks = [flat(plan[start : start + 7]) for start in range(0, 28, 7)]
    for chunk in chunks:
        durations = [DURATIONS[index] for index in chunk]
        assert durations == sorted(durations)
    shortest = np.argsort(DURATIONS)[:50]
    assert all(5 < len(set(shortest) & set(chunk)) < 25 for chunk in chunks), "a chunk is a sample of all lengths"
    other = ChunkedSampler(50).plan(listed(DURATIONS), "hash", 1, 1, BatchSize(8))
    assert {frozenset(chunk) for chunk in chunks}.isdisjoint(frozenset(flat(other[i : i + 7])) for i in range(0, 28, 7))


def test_a_curriculum_begins_with_short_utterances_and_goes_on_in_another_order() -> None:
    utterances, size, then = listed(DURATIONS), BatchSize(8), BucketSampler()
    plans = [CurriculumSampler(then, 2).plan(utterances, "hash", 1, epoch, size) for epoch in range(4)]
    assert plans[:2] == [sequential(utterances, size)] * 2
    assert plans[2:] == [then.plan(utterances, "hash", 1, epoch, size) for epoch in (2, 3)]


def test_evaluation_goes_from_short_to_long() -> None:
    plan = sequential(listed(DURATIONS), BatchSize(8))
    assert [DURATIONS[index] for index in flat(plan)] == sorted(DURATIONS) and set(map(len, plan)) == {8}


def test_more_buckets_leave_less_padding() -> None:
    utterances = listed(DURATIONS)
    plans = [BucketSampler(n).plan(utterances, "hash", 1, 0, BatchSize(8)) for n in (1, 5, 25)]
    shares = [padding_share(plan, utterances) for plan in plans]
    assert all(more > less for more, less in pairwise(shares)) and shares[-1] < 0.05


@pytest.mark.parametrize(
    ("utterances", "seconds", "says"),
    [
        (0, None, "batch_size=0"),
        (2.5, None, "batch_size=2.5|whole number"),
        (8, 0.0, "max_batch_s=0.0|null"),
        (8, float("nan"), "max_batch_s=nan"),
        (8, "long", "max_batch_s='long'"),
    ],
)
def test_a_size_of_a_config_is_checked(utterances: object, seconds: object, says: str) -> None:
    assert BatchSize.from_config({"batch_size": 8, "max_batch_s": 60.0}) == (8, 60.0)
    assert BatchSize.from_config({"batch_size": 8, "max_batch_s": None}) == (8, None)
    refused(says, BatchSize.from_config, {"batch_size": utterances, "max_batch_s": seconds}, kind=ConfigError)


def test_sizes_of_nothing_are_refused() -> None:
    refused("0 utterances", sequential, listed([1.0]), BatchSize(0), kind=ValueError)
    refused("num_buckets=0", BucketSampler, 0, kind=ConfigError)
    refused("chunk_size=0", ChunkedSampler, 0, kind=ConfigError)
    refused("sorted_epochs=0", CurriculumSampler, BucketSampler(), 0, kind=ConfigError)
