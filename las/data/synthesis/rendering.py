"""Synthesis of a tree of TIMIT's layout with eSpeak NG: .WAV, .PHN, .WRD and .TXT files of planned utterances.

Each utterance has its own random seed, so that neither order nor number of workers changes a byte (on one platform).
Files are written atomically; an incomplete tree, as after a kill, is completed.
"""

import dataclasses
import fcntl
import hashlib
import io
import json
import os
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from las.data.synthesis import espeak_phones, voices
from las.data.synthesis.espeak import Espeak
from las.runtime import progress
from las.runtime.errors import DataError
from las.storage import atomic, bounded

EXTENSIONS = ("WAV", "PHN", "WRD", "TXT")
RECORD = "corpus.json"
QUESTIONS = ("does", "why")
LICENCE = "speech synthesis: eSpeak NG (GPL-3.0-or-later), in a process of its own"


@dataclasses.dataclass(frozen=True)
class Planned:
    """Planned utterance: sentence, speaker, and path of its files relative to the root, without extension."""

    path: str
    sentence: str
    speaker: voices.Speaker


@dataclasses.dataclass(frozen=True)
class RenderedSpeech:
    """Settings of the audio. seed: seed of all random numbers. snr_db: range of signal-to-noise ratios in dB."""

    seed: int
    snr_db: tuple[float, float]


def complete(root: Path, plan: list[Planned], sound: RenderedSpeech, settings: dict[str, Any], workers: int) -> None:
    """Make the missing files of the tree in `root`, one process at a time.

    settings: plain JSON values that determine every byte of the tree; they are stored in `corpus.json` with eSpeak's
    version and the sha256 of every utterance's four files. workers: number of processes.
    Raises DataError if the root has other content, or eSpeak NG is needed and missing.
    """
    require_own(root, settings)
    if _is_complete(root, plan):
        return
    with _alone(root):
        record = require_own(root, settings)
        if _is_complete(root, plan):  # another process made it meanwhile
            return
        with Espeak() as espeak:
            version = espeak.version
        if record.get("espeak", version) != version:
            raise DataError(
                f"{root}: made with eSpeak NG {record['espeak']}, now {version} is installed: the files it lacks would "
                "sound different. Remove the folder, or set another corpus.root"
            )
        record = {"settings": settings, "espeak": version}
        atomic.write_json(root / RECORD, record)
        progress.say(f"{LICENCE}, version {version}")
        _make_all(root, [planned for planned in plan if not _is_there(root, planned)], sound, workers)
        hashes = {planned.path: _files_hash(root, planned) for planned in plan}
        total = hashlib.sha256(json.dumps(hashes).encode()).hexdigest()
        atomic.write_json(root / RECORD, record | {"sha256": total, "utterances": hashes})


def require_own(root: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Read `corpus.json`, empty for a new corpus. Raises DataError if the root has other content or settings."""
    record = _read_record(root)
    if record:
        stored = record.get("settings", {})
        if differing := [key for key, value in settings.items() if stored.get(key) != value]:
            key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
            alternative = root.with_name(f"{root.name}_{key}")
            raise DataError(
                f"{root}: holds a corpus made with other settings (different: {', '.join(differing)}). "
                f"Choose another folder, corpus.root={alternative}, or remove this one to make it again"
            )
    elif root.exists() and (not root.is_dir() or any(path.name != ".lock" for path in root.iterdir())):
        raise DataError(f"{root}: is not empty and holds no {RECORD}. Choose another folder: corpus.root={root}_speech")
    return record


def _make_all(root: Path, plan: list[Planned], sound: RenderedSpeech, workers: int) -> None:
    idle: SimpleQueue[Espeak] = SimpleQueue()

    def work(planned: Planned) -> None:
        espeak = idle.get()
        try:
            make(espeak, root, planned, sound)
        finally:
            idle.put(espeak)

    with ExitStack() as helpers:
        for _ in range(workers):
            idle.put(helpers.enter_context(Espeak()))
        pool = ThreadPoolExecutor(workers)
        try:
            for _ in progress.counted(pool.map(work, plan), len(plan), f"{root.name}: utterances synthesised"):
                pass
        finally:
            pool.shutdown(cancel_futures=True)


def make(espeak: Espeak, root: Path, planned: Planned, sound: RenderedSpeech) -> None:
    """Synthesise one utterance and write its four files, always with the same bytes.

    Raises DataError, naming the utterance, for phones without a TIMIT label.
    """
    own_seed = int.from_bytes(hashlib.sha256(f"{sound.seed} {planned.path}".encode()).digest()[:8])
    speaker, words = planned.speaker, planned.sentence.split()
    voice = f"{speaker.accent}+{speaker.variant}"
    speech = espeak.say(planned.sentence, voice, speaker.rate, speaker.pitch, speaker.pitch_range, own_seed % 2**31)
    rendered = voices.render(speech, speaker, sound.snr_db, np.random.default_rng(own_seed))
    try:
        labels = espeak_phones.label(speech.phones, rendered.scale, rendered.offset, rendered.clean, speaker.accent)
    except DataError as error:
        raise DataError(f"{planned.path} ({planned.sentence!r}): {error}") from error
    spans = [(label.start, label.end, label.symbol) for label in labels]
    text = (0, len(rendered.pcm), planned.sentence.capitalize() + ("?" if words[0] in QUESTIONS else "."))
    contents = [_riff(rendered.pcm), _lines(spans), _lines(word_spans(words, labels)), _lines([text])]
    for path, content in zip(_files(root, planned), contents, strict=True):
        atomic.write(path, content)


def word_spans(words: list[str], labels: list[espeak_phones.Label]) -> list[tuple[int, int, str]]:
    """Start sample, end sample and word for each word, from the text positions of the phones.

    Words that eSpeak joins (the phones have the position of the first) get equal parts of their time.
    """
    spans: list[tuple[int, int, str]] = []
    position, together, shared_labels = 1, list[str](), list[espeak_phones.Label]()
    for word in [*words, ""]:
        starting = [label for label in labels if position <= label.text_position < position + len(word)]
        if together and (starting or not word):
            start, length = shared_labels[0].start, shared_labels[-1].end - shared_labels[0].start
            edges = [start + round(length * share / len(together)) for share in range(len(together) + 1)]
            spans += zip(edges, edges[1:], together, strict=False)
            together = []
        shared_labels = starting or shared_labels
        together.append(word)
        position += len(word) + 1
    return spans


def _riff(pcm: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, voices.SAMPLE_RATE, len(pcm), "NONE", ""))
        file.writeframes(pcm.tobytes())
    return buffer.getvalue()


def _lines(rows: list[tuple[int, int, str]]) -> bytes:
    return "".join(f"{start} {end} {symbol}\n" for start, end, symbol in rows).encode("ascii")


def _read_record(root: Path) -> dict[str, Any]:
    try:
        record = bounded.read_object(root / RECORD)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        why = f"{root / RECORD}: cannot be read ({bounded.reason(error)})"
        raise DataError(f"{why}. Remove {root}: it will be made again") from error
    return record


def _files_hash(root: Path, planned: Planned) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in _files(root, planned))).hexdigest()


def _files(root: Path, planned: Planned) -> list[Path]:
    return [root / f"{planned.path}.{extension}" for extension in EXTENSIONS]


def _is_there(root: Path, planned: Planned) -> bool:
    return all(path.is_file() for path in _files(root, planned))


def _is_complete(root: Path, plan: list[Planned]) -> bool:
    return "utterances" in _read_record(root) and all(_is_there(root, planned) for planned in plan)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Lock a corpus while the body runs; the lock of a dead process is released."""
    root.mkdir(parents=True, exist_ok=True)
    lock = os.open(root / ".lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
