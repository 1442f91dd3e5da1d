"""The order of the data depends on (manifest hash, seed, epoch) and on nothing else."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from las.data.manifest import Utterance
from las.data.sampler import BatchSampler, BatchSize, BucketSampler, ChunkedSampler, Plan, sequential
from las.runtime.errors import ConfigError

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


def test_evaluation_goes_from_short_to_long() -> None:
    plan = sequential(listed(DURATIONS), BatchSize(8))
    assert [DURATIONS[index] for index in flat(plan)] == sorted(DURATIONS) and [len(batch) for batch in plan] == [
        8
    ] * 25


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
