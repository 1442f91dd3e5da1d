"""`las transcribe stream=true`: a pipe, a wav on a pipe and a file while they come in, and what is no stream."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from console import Las
from tiny import RATE
from tiny_words import overrides, streaming, tree, wav

from las.cli import train


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with CTC alone, whose listener reads in one direction and has learnt to write nothing in silence."""
    root = tree(tmp_path_factory.mktemp("stream"))
    train.train(streaming(root))
    return root


@pytest.fixture
def listen(las: Las, root: Path) -> Las:
    return lambda *more: las("transcribe", f"checkpoint={root / 'run'}", "search=greedy", "stream=true", *more)


@pytest.fixture
def samples(root: Path) -> np.ndarray:
    parts = [soundfile.read(wav(root, name), dtype="int16")[0] for name in ("faaa_0", "faaa_3", "fccc_1")]
    return np.concatenate([part for each in parts for part in (each, np.zeros(RATE, np.int16))])


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))


def header(content: bytes) -> bytes:
    """A wav of 16 bits as programs write it into a pipe: its length is not known."""
    return content[:40] + b"\xff\xff\xff\xff" + content[44:]


def test_a_pipe_a_wav_on_it_and_a_file_give_the_same_words(
    listen: Las, samples: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, samples, RATE)
    answers = [listen(f"input={path}", f"output={tmp_path / 'file.jsonl'}")]
    pipe(monkeypatch, header(path.read_bytes()))
    answers.append(listen("input=-", f"output={tmp_path / 'wav.jsonl'}"))
    pipe(monkeypatch, np.repeat(samples, 2).tobytes())
    answers.append(listen("-", "channels=2", f"sample_rate={RATE}", f"output={tmp_path / 'raw.jsonl'}"))
    pipe(monkeypatch, samples.tobytes() + b"x")
    answers.append(listen("-", f"output={tmp_path / 'odd.jsonl'}"))
    assert all(answer.code == 0 and answer.err == "" for answer in answers)
    assert "1 bytes" in answers[3].out
    of_file, *others = (json.loads((tmp_path / f"{name}.jsonl").read_text()) for name in ("file", "wav", "raw", "odd"))
    assert len(of_file["words"]) > 1 and of_file["duration_s"] == pytest.approx(len(samples) / RATE, abs=1e-3)
    for other in others:
        assert [word["text"] for word in other["words"]] == [word["text"] for word in of_file["words"]]
        assert [word["end_s"] for word in other["words"]] == [word["end_s"] for word in of_file["words"]]
    printed = answers[0].out.partition("written to")[0].split()
    assert printed == [word["text"] for word in of_file["words"]]


def test_a_file_at_a_speed_takes_its_time(listen: Las, samples: np.ndarray, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", samples, RATE)
    started = time.monotonic()
    listen(f"input={tmp_path / 'x.wav'}", "speed=8").succeeds_quietly()
    assert time.monotonic() - started > len(samples) / RATE / 8


def test_a_microphone_that_is_switched_off_ends_the_stream(root: Path, samples: np.ndarray, tmp_path: Path) -> None:
    """Lines come while the pipe is open, and Ctrl-C ends it with what was heard."""
    out = tmp_path / "x.txt"
    command = [sys.executable, "-m", "las", "transcribe", f"checkpoint={root / 'run'}", "search=greedy"]
    process = subprocess.Popen(
        [*command, "stream=true", "input=-", "device=cpu", f"output={out}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(samples.tobytes())
    process.stdin.flush()
    first = process.stdout.readline()  # the pipe is still open
    assert first.strip()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert b"Traceback" not in errors and out.read_text().split()[: len(first.split())] == first.decode().split()


def test_a_model_with_attention_streams_by_its_ctc_and_is_not_analysed(las: Las, tmp_path: Path) -> None:
    root = tree(tmp_path)
    train.train(overrides(root, "model=las_an4_ctc_latency_controlled"))
    given, audio = [f"checkpoint={root / 'run'}", "device=cpu"], wav(root, "faaa_0")
    for search in ("greedy", "beam_ctc"):
        out = root / f"{search}.jsonl"
        las("transcribe", *given, f"search={search}", "stream=true", f"input={audio}", f"output={out}").succeeds()
        assert json.loads(out.read_text())["duration_s"] == pytest.approx(0.5)
    where = [f"data_dir={root / 'data'}", f"output={root / 'analysis'}"]
    las("analyze", *given, "what=[distributions]", *where).fails(2, "latency-controlled")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"fLaC" + bytes(100), "flac ffmpeg"),
        (b"RIFF\0\0\0\0WAVE", "header"),
        (b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\x80\x3e\0\0\1\0\x08\0data\xff\xff\xff\xff", "8 bits 16"),
    ],
)
def test_other_audio_on_a_pipe_says_how_to_convert_it(
    listen: Las, content: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, content)
    listen("-").fails(3, f"stdin: {words}")


def test_an_empty_pipe_is_an_empty_transcription(listen: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"", b"x", bytes(40)):
        pipe(monkeypatch, content)
        listen("-").succeeds_quietly()


def test_what_is_no_stream_says_so(
    listen: Las, las: Las, root: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = wav(root, "faaa_0"), wav(root, "faaa_1")
    listen(f"input=[{one},{other}]").fails(2, "stream=true 2")
    listen(f"input={one}", "speed=0").fails(2, "speed=0")
    listen(f"input={one}", "search=beam", "+scorer@search.coverage=coverage").fails(2, "coverage search=greedy")
    las("transcribe", f"checkpoint={trained / 'run'}", "stream=true", f"input={one}").fails(2, "CTC")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    listen("-").fails(2, "keyboard ffmpeg")
