"""Recordings without a key, the runs that a command may mean, and schedules that a training never reaches."""

import os
from pathlib import Path

import pytest
import soundfile
from console import Las
from tiers import rest_slow
from tiny import overrides, wav

from las.cli import sweep, train
from las.config import overrides as config_overrides


@pytest.fixture
def recordings(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Recordings in the working directory, with names that need care."""
    monkeypatch.chdir(tmp_path)
    names = ["talk.wav", "a, b.wav", "it's [one].flac", "./a=b.wav", "größe/x.wav"]
    samples, rate = soundfile.read(wav(trained, "mdab0_sx1"))
    for name in names:
        Path(name).parent.mkdir(exist_ok=True)
        soundfile.write(name, samples, rate)
    return names


@pytest.mark.parametrize("verb", ["transcribe", "decode"])
def test_recordings_need_no_key(verb: str, recordings: list[str], trained: Path, las: Las) -> None:
    checkpoint = f"checkpoint={trained / 'run'}"
    output = [] if verb == "transcribe" else ["output=x.jsonl"]
    for names in (recordings[:1], recordings, ["größe"]):
        answer = las(verb, names[0], checkpoint, "search=greedy", *names[1:], *output)
        assert answer.code == 0 and answer.err == "", answer
        assert len([line for line in answer.out.splitlines() if ".wav: " in line or ".flac: " in line]) == len(names)
    las(verb, checkpoint, "talk.wav", f"{config_overrides.FILES[verb]}=talk.wav").fails(2, "talk.wav: key")
    las(verb, checkpoint, "tlak.wav", *output).fails(3, "tlak.wav:")


def test_the_message_without_a_checkpoint_names_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, las: Las
) -> None:
    monkeypatch.chdir(tmp_path)
    las("decode", "talk.wav").fails(2, "checkpoint=... runs +experiment=ln_encoder_only")
    for number in range(7):
        folder = Path(f"runs/x/an4/seed{number}")
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "metrics.jsonl").touch()
        os.utime(folder / "checkpoints", (1000 + number, 1000 + number))
    for verb, key in (("decode", "checkpoint"), ("export", "checkpoint"), ("average", "run")):
        lines = las(verb).err.splitlines()
        assert lines[1:3] == [f"  {key}=runs/x/an4/seed6", f"  {key}=runs/x/an4/seed5"]
        assert "2 more" in lines[-1] and len(lines) == 7
    assert "runs" not in las("train_lm", "corpus=files").err


UNREACHED = {
    "schedule=park_b trainer.max_steps=500": ["warmup_steps=500:", "start_step=20000:"],
    "schedule.start_step=100 trainer.max_steps=99 schedule.warmup_steps=9": ["start_step=100:"],
    "schedule=constant schedule.warmup_steps=300 trainer.max_steps=300": ["warmup_steps=300:"],
    "trainer.max_steps=10": [],
    "schedule=park_b trainer.max_steps=20001": [],
    "schedule=park_b trainer=smoke trainer.max_steps=2": [],
}


@pytest.mark.parametrize("given", rest_slow(UNREACHED))
def test_a_chosen_schedule_that_never_begins_is_warned_about(
    given: str, corpus: Path, monkeypatch: pytest.MonkeyPatch, las: Las
) -> None:
    monkeypatch.setattr(train, "train_config", lambda config: {})
    monkeypatch.setattr(sweep, "train_config", lambda config: {"steps": 1, "splits": {}, "steps_to_converge": 1})
    command = [each for each in overrides(corpus) if not each.startswith(("schedule", "trainer.max_steps", "run_dir"))]
    monkeypatch.chdir(corpus)
    for sweeping in ([], ["-m"]):
        answer = las("train", *sweeping, *command, *given.split())
        warnings = [line for line in answer.out.splitlines() if line.startswith("warning: trainer.max_steps=")]
        assert answer.code == 0 and len(warnings) == len(UNREACHED[given])
        assert all(each in line for each, line in zip(UNREACHED[given], warnings, strict=True))
