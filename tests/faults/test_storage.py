"""Disks that fill up and bits that flip: earlier checkpoints are intact, and damage is found."""

import errno
import os
import random
import re
import resource
import shutil
import time
from functools import partial
from pathlib import Path

import pytest
from faults import STEPS, WRITES, Tally, Training, at_phase, phases, sizes

from las.runtime.errors import StorageError
from las.storage import checkpoint
from las.storage.checkpoint import FILES

ROOM = r"it needs about [0-9,]+ bytes, [0-9,]+ bytes"


def full() -> None:
    """What a write says on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def small(size: int) -> None:
    """From now on no file can grow beyond so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def require_intact(training: Training) -> None:
    """Every checkpoint that is there is whole, and of those that are not at most one is left."""
    folder = training.run / "checkpoints"
    for directory in folder.glob("step-*"):
        checkpoint.verify(directory)
    assert len(list(folder.glob(".tmp-*"))) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(3, 100))
def test_full_at_a_write(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    """Once, at the n-th change of the disk: training goes on, and ends as it would have."""
    total = phases(Training(quiet.root, tmp_path / "counted"), WRITES)
    for number in sorted(random.Random(6).sample(range(1, total + 1), min(count, total))):
        with tally.training(quiet, tmp_path, f"phase {number}") as training:
            code, said = training.wait(training.start(partial(at_phase, number, full, WRITES)))
            require_intact(training)
            unwritten = "could not be written" in said
            refused = unwritten or "cannot name" in said
            assert code in (0, 5) and refused == ("Training goes on" in said), said
            assert not unwritten or re.search(rf"No space left.*\); {ROOM}", said), said
            if code:
                training.ends(0)
            if not (training.run / "checkpoints" / f"step-{STEPS:08d}").exists():  # it was the last one that failed
                assert unwritten
            else:  # the best checkpoint may be the one that failed: then another is the best
                training.require_same(quiet, "best", "latest", "hypotheses.dev.jsonl", "hypotheses.test.jsonl")
                latest = (training.run / "checkpoints" / "latest").read_text(encoding="utf-8").strip()
                # The last pointer may be what failed; nothing reads it, and the next save or resume mends it.
                assert latest == f"step-{STEPS:08d}" or refused
    tally.close("F5 full disk at each write of a save (ENOSPC)")


@pytest.mark.parametrize("count", sizes(1, 20))
def test_full_from_a_save_on(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    """A limit below what the parameters need: three checkpoints fail, code 5; with room again training ends well."""
    tensors = (quiet.run / "checkpoints" / f"step-{STEPS:08d}" / "model.safetensors").stat().st_size
    draw = random.Random(7)
    for size in (draw.randint(tensors // 2, tensors - 1) for _ in range(count)):
        with tally.training(quiet, tmp_path, size) as training:
            said = training.ends(5, partial(small, size))
            assert said.count("Training goes on") == 2 and said.count("bytes are free") == 3, said
            assert "run_dir=/another/disk/run" in said[-60:], said
            require_intact(training)
            training.ends(0)
            training.require_same(quiet)
    tally.close("F5 no room for a checkpoint (RLIMIT_FSIZE): tried three times, then code 5")


@pytest.mark.slow
def test_full_at_every_checkpoint_of_a_short_training(quiet: Training, tmp_path: Path) -> None:
    """Too few saves for a third refusal: the end says what was refused and what to type; with room it works."""
    training = Training(quiet.root, tmp_path / "short", "trainer.max_steps=3")
    said = training.ends(5, partial(small, 4096))
    assert "no checkpoint that" not in said
    last = said.rpartition("las train: ")[2]
    assert re.search(rf"step-00000003: .*File too large.*{ROOM}.* no earlier checkpoint", last), last
    assert "run_dir=/another/disk/run" in last[-60:], last
    training.ends(0)


@pytest.fixture
def two(quiet: Training, tmp_path: Path) -> Path:
    """A folder with the quiet run's last two checkpoints."""
    folder = shutil.copytree(quiet.run / "checkpoints", tmp_path / "checkpoints")
    assert len(list(folder.glob("step-*"))) >= 2
    return folder


def require_noticed(folder: Path, path: Path, damaged: bytes, tally: Tally, what: object) -> None:
    """With the file damaged the checkpoint before is taken, in less than two seconds, and the damaged one named."""
    whole = path.read_bytes()
    path.write_bytes(damaged)
    with tally.trial(what):
        began = time.monotonic()
        found, (noticed,) = checkpoint.newest(folder)
        assert found is not None and found.directory.name == f"step-{STEPS - 3:08d}"
        assert noticed.directory == path.parent and path.parent.name in noticed.reason
        assert time.monotonic() - began < 2
    path.write_bytes(whole)


def flipped(content: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(content)
    damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


@pytest.mark.parametrize("count", sizes(40, 1000))
def test_one_bit(count: int, two: Path, tally: Tally) -> None:
    draw = random.Random(8)
    for number in range(count):
        path = checkpoint.directory(two, STEPS) / draw.choice(FILES)
        require_noticed(two, path, flipped(path.read_bytes(), draw), tally, (path.name, number))
    tally.close("F7 one bit flipped")


@pytest.mark.parametrize("count", sizes(10, 100))
def test_cut(count: int, two: Path, tally: Tally) -> None:
    for name in (*FILES, "MANIFEST.json"):
        path = checkpoint.directory(two, STEPS) / name
        content = path.read_bytes()
        for percent in range(0, 100, 100 // count):
            require_noticed(two, path, content[: len(content) * percent // 100], tally, (name, percent))
    tally.close("F7 each file cut at every per cent")


@pytest.mark.parametrize("count", sizes(20, 1000))
def test_one_bit_of_the_manifest(count: int, two: Path, tally: Tally) -> None:
    """It vouches for the others, and nobody for it: what is loaded is right all the same, or nothing is."""
    path = checkpoint.directory(two, STEPS) / "MANIFEST.json"
    whole, right = path.read_bytes(), checkpoint.load(path.parent)
    draw = random.Random(9)
    for number in range(count):
        path.write_bytes(flipped(whole, draw))
        with tally.trial(number):
            try:
                found = checkpoint.load(path.parent)
            except StorageError:
                continue
            assert found.state == right.state and found.config == right.config
            assert all(bool((found.model[name] == tensor).all()) for name, tensor in right.model.items())
    tally.close("F7 one bit of the manifest flipped: refused, or no difference")
