"""`las listen`: what a training reads, as files; and decoding in noise."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from console import Las
from interrupted_trainings import require_same, stopped_after
from tiny import overrides

from las.cli import train
from las.config.build import build, compose
from las.data.loader import Loader, augmentation_seed


def listening(trained: Path, output: Path, *more: str) -> list[str]:
    return [*overrides(trained), f"output={output}", *more]


def test_files_table_and_json_say_what_a_training_hears(trained: Path, tmp_path: Path, las: Las) -> None:
    out = tmp_path / "out"
    answer = las("listen", *listening(trained, out, "augment=noisy", "count=4", "epoch=3")).succeeds_quietly()
    entries = json.loads((out / "augmentation.json").read_text())
    assert [entry["id"] for entry in entries] == [f"ftr0_sx{index}" for index in (0, 2, 4, 6)]
    assert sorted(path.name for path in out.glob("*.wav")) == [entry["file"] for entry in entries]
    assert "augmentation.json written" in answer.out
    assert "masks and time" in answer.out
    config = compose("listen", listening(trained, out, "augment=noisy"))
    corpus, augment = (build(config[key], where=key) for key in ("corpus", "augment"))
    utterances = corpus.prepare(trained / "data/manifests")["train"]
    loader = Loader(utterances, corpus.tokens, 16000, 0, augment=augment)
    third_epoch = functools.partial(augmentation_seed, 1, 2)
    for entry in entries:
        samples, rate = soundfile.read(out / entry["file"], dtype="float32")
        ((_, batch),) = loader.batches([[int(entry["file"][:5])]], 0, third_epoch)
        assert batch.ids == [entry["id"]] and np.array_equal(batch.waveforms[0].numpy(), samples)
        assert rate == 16000 and entry["seconds"] == len(samples) / rate
        assert entry["peak"] == pytest.approx(np.abs(samples).max())
        assert entry["augmentation"].keys() <= {"speed", "reverberation", "noise", "gain"}
    assert any("noise" in entry["augmentation"] for entry in entries)


def test_a_split_is_decoded_in_noise(trained: Path, trained_copy: Path, las: Las) -> None:
    decode = ["decode", f"checkpoint={trained_copy}", "split=test", f"data_dir={trained / 'data'}", "search=greedy"]
    noisy = [*decode, "augment=noise", "augment.noise.snr_db=10", "augment.noise.kinds=[babble]"]
    answer = las(*noisy).succeeds_quietly()
    assert "babble_10dB, seed 1:" in answer.out
    path = trained_copy / "decoded" / "hypotheses.test.babble_10dB.jsonl"
    first = path.read_text()
    assert len(first.splitlines()) == 2
    las(*decode).succeeds("test: PER ")
    own = (trained_copy / "decoded" / "hypotheses.test.jsonl").read_text()
    assert [json.loads(line)["score"] for line in own.splitlines()] != [
        json.loads(line)["score"] for line in first.splitlines()
    ]
    assert las(*noisy, "batch_size=1").code == 0 and path.read_text() == first


def test_a_training_says_which_noises_it_reads(corpus: Path, tmp_path: Path, las: Las) -> None:
    (tmp_path / "noises").mkdir()
    soundfile.write(tmp_path / "noises" / "hum.wav", np.sin(np.arange(8000)), 8000)
    words = ["augment=noise", "distortion@augment.noise=noise_files", f"augment.noise.folder={tmp_path / 'noises'}"]
    answer = las("train", *overrides(corpus, *words, "trainer.max_steps=1"))
    assert (answer.code, answer.err) == (0, "") and "8000 Hz" in answer.out


@pytest.mark.slow
def test_a_training_in_noise_that_was_stopped_changes_no_bit(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ["augment=noisy", "augment.noise.kinds=[babble]", "augment.noise.share=1", "trainer.num_workers=2"]
    train.train(overrides(corpus, *more, f"run_dir={corpus / 'whole'}"))
    stopped_after(monkeypatch, corpus, 3, *more, f"run_dir={corpus / 'stopped'}")
    train.train(overrides(corpus, *more, "trainer.num_workers=0", f"run_dir={corpus / 'stopped'}"))
    require_same(corpus / "stopped", corpus / "whole")
