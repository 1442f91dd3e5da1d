"""Batches hold what files hold, whoever reads them and however many."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from refusals import refused

from las.data.audio import worker_pool
from las.data.loader import Loader, collate
from las.data.manifest import Utterance
from las.data.sampler import BatchSize, BucketSampler, sequential
from las.data.tokenizers import Characters

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
