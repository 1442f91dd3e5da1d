"""Corrupt audio: every fault is named with its reason, and training beside it is training without it, bit for bit."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import shorten_encoder
import soundfile
from console import Las
from tiers import rest_slow
from tiny import LABELS, RATE, overrides, sound, steps, utterance, wav


def samples(seconds: float = 0.4, seed: int = 0) -> np.ndarray:
    """A tone in noise, between -1 and 1."""
    times = np.arange(round(seconds * RATE)) / RATE
    noise = np.random.default_rng(seed).standard_normal(len(times))
    return 0.3 * np.sin(2 * np.pi * (200 + 10 * seed) * times) + 0.02 * noise


def write(path: Path, values: np.ndarray, kind: str = "WAV", subtype: str = "PCM_16") -> None:
    path.unlink(missing_ok=True)
    soundfile.write(path, values, RATE, subtype, format=kind)


def header_only(path: Path, index: int) -> None:
    write(path, np.zeros(0), ("WAV", "NIST")[index % 2])


def cut(path: Path, index: int) -> None:
    """A wav, SPHERE or flac file without its end; the fewest samples that are missing are two."""
    write(path, samples(seed=index), ("WAV", "NIST", "FLAC")[index % 3])
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * (index % 7 + 2) // 10] if index % 5 else content[:-4])


def flipped(path: Path, index: int) -> None:
    """One bit of a flac file's frames."""
    write(path, samples(seed=index), "FLAC")
    content = bytearray(path.read_bytes())
    first = len(content) // 3
    place = int(np.random.default_rng(index).integers(first, len(content)))
    content[place] ^= 1 << index % 8
    path.write_bytes(content)


def spoilt(value: float) -> Callable[[Path, int], None]:
    """Some samples of a floating-point file are not numbers."""

    def make(path: Path, index: int) -> None:
        values = samples(seed=index)
        values[100 * index + 7 : 100 * index + 8 + index] = value
        write(path, values, subtype=("FLOAT", "DOUBLE")[index % 2])

    return make


def silent(path: Path, index: int) -> None:
    write(path, np.zeros(RATE), *(("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("WAV", "FLOAT"), ("WAV", "ULAW"))[index % 4])


def clipped(path: Path, index: int) -> None:
    loud = np.clip((4 + index) * samples(seed=index), -1, 1)
    write(path, loud, *(("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("WAV", "ULAW"), ("WAV", "FLOAT"))[index % 4])


def short(path: Path, index: int) -> None:
    utterance(path.parent, path.stem, 0.01, index, ("h#",))


def endless(path: Path, index: int) -> None:
    """Ten minutes that take little room, the same for every utterance."""
    before = path.with_name("SX1000.WAV")
    if index:
        path.unlink()
        os.link(before, path)
        return
    write(path, 0.1 * np.sign(np.sin(np.arange(600 * RATE) * np.pi / 4000)), "FLAC")


def other_rate(path: Path, index: int) -> None:
    sound(path, 0.5, index, (8000, 11025, 22050, 44100)[index % 4])


def other_channels(path: Path, index: int) -> None:
    sound(path, 0.5, index, channels=2 + index % 3)


def cut_shorten(path: Path, index: int) -> None:
    whole = (20000 * samples(seed=index)).astype(np.int16)[:, None]
    shorten_encoder.write_sphere(path, whole, RATE)
    content = path.read_bytes()
    path.write_bytes(content[: 1024 + (len(content) - 1024) * (index % 8 + 1) // 10])


def no_file(path: Path, index: int) -> None:
    path.unlink()
    (path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to(path.with_name("nowhere")))[index % 3]()


class Fault(NamedTuple):
    """How files are spoilt, and what must be said of them: kind and reason."""

    make: Callable[[Path, int], object]
    kinds: str
    reason: str


FAULTS = {
    "empty": Fault(lambda path, index: path.write_bytes(b""), "empty file", r"is empty \(0 bytes\)"),
    "header only": Fault(header_only, "no samples", "but no samples"),
    "cut": Fault(cut, "cut short|damaged", r"promises 6400 samples, \d+ |damaged or cut"),
    "flipped": Fault(flipped, "damaged|cut short", "damaged or cut|be decoded"),
    "NaN": Fault(spoilt(np.nan), "not finite", r"\d+ samples are"),
    "infinite": Fault(spoilt(np.inf), "not finite", r"\d+ samples are"),
    "silent": Fault(silent, "silent", "silent: "),
    "clipped": Fault(clipped, "clipped", r"clipped: [\d.]+ % of"),
    "0.01 s": Fault(short, "too short", r"too short: 0\.010 s"),
    "600 s": Fault(endless, "too long", r"600\.0 s.*limits\.longest_s=60"),
    "rate": Fault(other_rate, "sample rate", r"at \d+ Hz, .* 16000 Hz"),
    "channels": Fault(other_channels, "channels", "[234] channels, expected 1"),
    "shorten": Fault(cut_shorten, "damaged", "cut short"),
    "no file": Fault(no_file, "not a file|missing", "a folder|regular file|not exist"),
}


def spoil(root: Path, per_fault: int) -> dict[str, Fault]:
    """Add so many utterances with each fault to the tiny corpus; their faults by id."""
    faults = {}
    for number, fault in enumerate(FAULTS.values()):
        for index in range(per_fault):
            sentence = f"SX{100 * (number + 1) + index}"
            fault.make(utterance(root / "TIMIT/TRAIN/DR1/FTR0", sentence, 0.4, index, LABELS), index)
            faults[f"ftr0_{sentence.lower()}"] = fault
    return faults


def require_named(root: Path, faults: dict[str, Fault], las: Las) -> None:
    """`las check` ends, with 3, and names these utterances with the right reasons, and no other."""
    answer = las("check", *overrides(root))
    assert answer.code == 3 and f"timit: {len(faults)} of {len(faults) + 12} utterances" in answer.err, answer.err
    (ledger,) = root.glob("data/checks/timit/bad_utterances.jsonl")
    entries = {entry["utterance_id"]: entry for entry in map(json.loads, ledger.read_text().splitlines())}
    assert entries.keys() == faults.keys()
    for name, fault in faults.items():
        entry = entries[name]
        assert entry["file"] == str(wav(root, name)) and entry["split"] == "train"
        assert re.fullmatch(fault.kinds, entry["kind"]) and re.search(fault.reason, entry["reason"]), entry
        assert f"train {name}: " in answer.out and entry["reason"] in answer.out
    for kind, count in Counter(entry["kind"] for entry in entries.values()).items():
        assert re.search(rf"{kind} +. +{count} ", answer.out), kind


def require_same_training(root: Path, faults: dict[str, Fault], las: Las) -> None:
    """Training with the bad files leaves the bytes that training without them leaves."""
    share = f"trainer.max_bad_fraction={(len(faults) + 0.5) / (len(faults) + 8)}"
    run, clean = root / "run", root / "clean"
    assert las("train", *overrides(root, share)).code == 0
    ledger = [json.loads(line) for line in (run / "bad_utterances.jsonl").read_text().splitlines()]
    assert {entry["utterance_id"] for entry in ledger} == faults.keys()
    for name in faults:
        for file in wav(root, name).parent.glob(f"{wav(root, name).stem}.*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    assert las("train", *overrides(root, share, f"run_dir={clean}")).code == 0
    assert (clean / "bad_utterances.jsonl").read_text() == ""
    names = [path.relative_to(clean) for path in (*clean.glob("checkpoints/*/*.safetensors"), *clean.glob("hypo*"))]
    assert len(names) > 3 and steps(run) == steps(clean)
    for name in names:
        assert (run / name).read_bytes() == (clean / name).read_bytes(), name


@pytest.mark.parametrize("per_fault", rest_slow([1, 20]))
def test_every_fault_is_named_and_training_beside_it_is_training_without_it(
    per_fault: int, corpus: Path, las: Las
) -> None:
    """Up to 280 bad files of 14 kinds."""
    faults = spoil(corpus, per_fault)
    require_named(corpus, faults, las)
    require_same_training(corpus, faults, las)


def test_a_file_that_may_not_be_read_is_named() -> None:
    """Root may read every file, so that somebody else is asked."""
    script = (
        "import os, sys; from las.data.audio import worker as sound\n"
        "os.setuid(65534) if os.geteuid() == 0 else None\n"
        "try: print(sound.measure(sys.argv[1], ['0 0.0 0.4']))\n"
        "except Exception as error: print(error)"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = sound(Path(folder) / "x.wav", 0.4)
        path.chmod(0)
        answer = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
        assert "(Permission denied)" in answer.stdout, answer.stderr
