"""Values and places without sense are found before anything is read, written or computed, by the key that was typed."""

from pathlib import Path

import pytest
import tiny
from console import Las
from tiers import rest_slow

from las.runtime import devices
from las.runtime.errors import StorageError
from las.storage import atomic

TRAINING = {
    "trainer.max_steps=many": "whole number",
    "trainer.histograms=1": "true false",
    "seed=1.5": "whole number",
    "schedule.warmup_steps=-1": "0",
    "loss.smoothing=2.0": "0 1",
    "trainer.max_steps=-5": "1",
    "trainer.batch_size=0": "1",
    "trainer.accumulate=0": "1",
    "trainer.validate_every=-1": "1",
    "trainer.patience=0": "1",
    "trainer.keep_checkpoints=0": "1",
    "trainer.threads=0": "1",
    "trainer.num_workers=-1": "0",
    "trainer.broken_after_epochs=-1": "0",
    "trainer.max_batch_s=-0.5": "0, null",
    "trainer.max_batch_s=nan": "number null",
    "trainer.max_bad_fraction=1.5": "0 1",
    "trainer.precision=fp33": "fp32",
    "limits.longest_s=0.0": "0.025",
    "limits.clipped=-0.5": "0 1",
    "limits.unknown=2.5": "0 1",
    "optim.lr=0": "0, optim.lr=0.001",
    "optim.lr=inf": "number optim.lr=0.001",
    "optim.eps=-1": "0",
    "optim.betas=[2.5,0.9]": "0 1",
    "gradients.clip_norm=abc": "number null",
    "model.listener.reduction=con": "concat",
    "model.listener.time_reduction=3": "whole numbers [2,2,1]",
    "model.listener.cell=lstm": "part",
    "gradients.clip_norm=0.0": "0, null",
    "weight_noise.std=inf": "number",
    "model.listener.dropout=nan": "number",
    "model.listener.dropout=[0.1,1.5]": "0 1",
    "model.listener.input_noise=-1.0": "0",
    "model.listener.time_reduction=[2]": "[2,1]",
    "model.speller.num_layers=0": "1",
    "model.speller.embedding_size=-1": "1",
    "model.speller.attention.key_size=0": "1",
    "model.speller.attention.num_filters=0": "1",
    "model.features.num_mels=0": "1",
    "validation_search.max_length=0": "1",
}
"""Wrong values, and what the message has after them."""


@pytest.mark.parametrize("override", rest_slow(TRAINING, keep=8))
def test_a_training_reads_nothing_before_its_values_are_sound(override: str, tmp_path: Path, las: Las) -> None:
    """There is no corpus: whoever looks for it says so."""
    answer = las("train", *tiny.overrides(tmp_path, override))
    key = override.partition("=")[0]
    answer.fails(2, f"train: {key}=")
    said = answer.err.partition(f"{key}=")[2].partition(" ")[2]
    assert all(word in said for word in TRAINING[override].split()), answer
    assert list(tmp_path.iterdir()) == []


def test_a_value_without_sense_is_not_hidden_by_another_run(trained: Path, las: Las) -> None:
    las("train", *tiny.overrides(trained, "trainer.max_steps=-5")).fails(2, "trainer.max_steps=-5")


@pytest.mark.slow
def test_more_threads_than_cores_are_warned_of(corpus: Path, las: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "cores", lambda: 1)
    for threads in (2, 1):
        answer = las("train", *tiny.overrides(corpus, f"trainer.threads={threads}", f"run_dir={corpus / str(threads)}"))
        assert ("threads wait" in answer.out) == (threads == 2)


PLACES = [
    "decode checkpoint=absent audio=x.wav output={}",
    "decode checkpoint=absent audio=x.wav output=ok.jsonl pictures={}",
    "transcribe checkpoint=absent input=x.wav output={}",
    "transcribe checkpoint=absent input=x.wav output={}/folder",
    "score reference=absent.trn hypothesis=absent.trn output={}",
    "score reference=absent.trn hypothesis=absent.trn page={}",
    "score reference=absent.trn hypothesis=absent.trn alignments={}",
    "export checkpoint=absent output={}",
    "export checkpoint=absent output=model.las programs={}",
    "ngram corpus=timit corpus.root=absent output={}",
    "align corpus=timit corpus.root=absent output={}.ctm",
    "tune checkpoint=absent search.lm.path=absent output={}",
    "average run=absent last=2 output={}",
    "benchmark suite=loader corpus=timit corpus.root=absent output={}",
    "benchmark suite=loader corpus=timit corpus.root=absent page={}",
    "analyze checkpoint=absent output={}",
    "train corpus=timit corpus.root=absent run_dir={}",
    "reproduce recipe=bo18_table3 tier=smoke results_dir={}",
]


@pytest.mark.parametrize("command", rest_slow(PLACES, keep=5), ids=lambda command: command.partition("={}")[0])
def test_places_to_write_are_tried_before_anything_else(
    command: str, tmp_path: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is to be read is there, and the place lies below a file."""
    monkeypatch.chdir(tmp_path)
    tiny.sound(tmp_path / "x.wav", 0.3)
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "x.jsonl"
    las(*command.replace("{}", str(place)).split()).fails(5, f"{place} directory")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "x.wav"]


def test_a_place_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    atomic.require_place(tmp_path / "new" / "folders" / "x.json")
    atomic.require_folder(tmp_path / "new" / "folders")
    assert list(tmp_path.iterdir()) == []
    old = tmp_path / "old.json"
    old.write_text("kept")
    atomic.require_place(old)
    assert old.read_text() == "kept" and list(tmp_path.iterdir()) == [old]
    for unfit, says in ((tmp_path, "folder"), (Path("/dev/null"), "regular file")):
        with pytest.raises(StorageError, match=says):
            atomic.require_place(unfit)


@pytest.mark.parametrize("verb", [["decode", "split=test", "output=x.jsonl"], ["analyze"]])
def test_a_data_folder_that_is_not_there_is_not_made(
    verb: list[str], trained: Path, tmp_path: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = las(*verb, f"checkpoint={trained / 'run'}", "data_dir=nowhere")
    prepared = f"las prepare corpus=timit corpus.root={trained / 'TIMIT'} data_dir=nowhere"
    answer.fails(2, "data_dir=nowhere:")
    assert answer.err.endswith(f"{prepared}\n") and list(tmp_path.iterdir()) == []
