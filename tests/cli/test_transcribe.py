"""The verb transcribe: files, folders, patterns and standard input to every format; bad recordings among good ones."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from console import Las
from tiny import RATE, sound, wav

from las.cli import transcribe
from las.decoding import transcriber
from las.runtime import progress
from las.scoring import ctm


@pytest.fixture
def listen(las: Las, trained: Path) -> Las:
    return lambda *more: las("transcribe", f"checkpoint={trained / 'run'}", "search=greedy", *more)


def test_a_recording_on_the_screen(listen: Las, trained: Path) -> None:
    path = wav(trained, "mdab0_sx1")
    answer = listen(f"input={path}")
    assert answer.code == 0 and answer.err == ""
    first, last = answer.out.splitlines()
    assert first == f"{path}: {transcriber.load(trained / 'run').transcribe(path).text}"
    assert last.startswith("1 recording, 0.3 s of audio") and "real-time factor" in last


def test_one_file_for_all(listen: Las, trained: Path, tmp_path: Path) -> None:
    paths = [wav(trained, "mdab0_sx0"), wav(trained, "mdab0_sx1")]
    given = f"input=[{','.join(map(str, paths))}]"
    assert listen(given, f"output={tmp_path / 'x.jsonl'}").code == 0
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [str(path) for path in paths]
    assert listen(given, f"output={tmp_path / 'x.ctm'}").code == 0
    assert [word.text for word in ctm.read(tmp_path / "x.ctm")] == " ".join(line["text"] for line in lines).split()
    assert listen(given, f"output={tmp_path / 'x.txt'}", "format=jsonl").code == 0
    assert (tmp_path / "x.txt").read_text() == (tmp_path / "x.jsonl").read_text()
    listen(given, f"output={tmp_path / 'x.srt'}").fails(2, ".srt 2 folder")


def test_a_file_for_each_keeps_folders_apart(listen: Las, tmp_path: Path) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "b").mkdir()
    for name in ("a/x.wav", "b/x.wav", "b/x.flac"):
        sound(tmp_path / "in" / name, 0.3)
    assert listen(f"input={tmp_path / 'in'}", f"output={tmp_path / 'out'}", "format=vtt").code == 0
    found = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.vtt"))
    assert found == ["a/x.wav.vtt", "b/x.flac.vtt", "b/x.wav.vtt"]
    assert listen(f"input={tmp_path / 'in'}/*/*.flac", f"output={tmp_path / 'plain'}").code == 0
    assert [path.name for path in (tmp_path / "plain").iterdir()] == ["x.flac.txt"]


def test_recordings_of_one_name_stay_apart_in_time_marks(listen: Las, tmp_path: Path) -> None:
    for name in ("s1/0001.wav", "s2/0001.wav"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        sound(tmp_path / "in" / name, 0.5, channels=2)
    given = f"input=[{tmp_path / 'in'},{tmp_path / 'in/s1/0001.wav'}]"  # a recording that is named twice is one
    assert listen(given, f"output={tmp_path / 'x.ctm'}", "channel=1").code == 0
    words = ctm.read(tmp_path / "x.ctm")
    assert {(word.file, word.channel) for word in words} == {("s1-0001", "2"), ("s2-0001", "2")}
    assert listen(given, f"output={tmp_path / 'out'}", "format=ctm", "channel=1").code == 0
    written = [ctm.read(path) for path in sorted((tmp_path / "out").rglob("*.ctm"))]
    assert [word for each in written for word in each] == words


def test_standard_input(listen: Las, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = wav(trained, "mdab0_sx1").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    answer = listen("-", f"output={tmp_path / 'x.jsonl'}")
    assert answer.code == 0 and answer.out.startswith("stdin: 0:00, ")
    assert json.loads((tmp_path / "x.jsonl").read_text())["id"] == "stdin"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"no audio")))
    answer = listen("input=-")
    answer.fails(3, "stdin:")
    assert "stdin:" in answer.out


def test_bad_recordings_are_named_and_the_others_written(listen: Las, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    good = [sound(folder / name, 0.4) for name in ("a.wav", "z.wav")]
    (folder / "empty.wav").touch()
    (folder / "text.wav").write_text("no audio")
    sound(folder / "click.wav", 0.02)
    slow = bytearray(sound(folder / "slow.wav", 2.5).read_bytes())
    slow[24:28] = (1).to_bytes(4, "little")  # 40,000 samples at 1 Hz: 11 hours, if they were heard
    (folder / "slow.wav").write_bytes(slow)
    broken = np.full(RATE, np.nan, dtype=np.float32)
    soundfile.write(folder / "nan.wav", broken, RATE, subtype="FLOAT")
    soundfile.write(folder / "silence.wav", np.zeros(RATE), RATE)
    answer = listen(f"input={folder}", f"output={tmp_path / 'x.jsonl'}")
    assert answer.code == 3
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [Path(line["id"]).name for line in lines] == ["a.wav", "silence.wav", "z.wav"]
    assert lines[1]["text"] == "" and lines[1]["finished_by"] == "silence" and lines[0]["text"] == lines[2]["text"]
    answer.fails(3, "5 8 click.wav: empty.wav: nan.wav: slow.wav: text.wav:")
    for reason in ("click.wav: 0.0200", "empty.wav: ", "nan.wav: 16000", "slow.wav: ", "text.wav: "):
        assert reason in answer.out and reason in answer.err
    assert listen(f"input=[{good[0]}]").code == 0


def test_what_is_transcribed_is_all_that_is_there(listen: Las, tmp_path: Path) -> None:
    """Joined files, a wav from a pipe, and a coding that cannot seek: the last line counts their seconds."""
    tone = 0.3 * np.sin(np.arange(2 * RATE) * 0.1)
    for name, options in (("x.mp3", {}), ("x.ogg", {}), ("x.flac", {}), ("x.wav", {"subtype": "GSM610"})):
        soundfile.write(tmp_path / name, tone, RATE, **options)
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content if name == "x.wav" else content + content)
    piped = bytearray(sound(tmp_path / "piped.wav", 1.5).read_bytes())
    piped[40:44] = (0x7FFFF000).to_bytes(4, "little")
    (tmp_path / "piped.wav").write_bytes(piped)
    answer = listen(f"input={tmp_path}", f"output={tmp_path / 'out.jsonl'}")
    assert answer.code == 0 and answer.err == ""
    assert "5 recordings, 15.5 s" in answer.out
    durations = {Path(line["id"]).name: line["duration_s"] for line in lines_of(tmp_path / "out.jsonl")}
    assert durations == pytest.approx({"x.mp3": 4, "x.ogg": 4, "x.flac": 4, "x.wav": 2, "piped.wav": 1.5}, abs=0.05)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_cannot_be_read_says_what_can(listen: Las, tmp_path: Path) -> None:
    """An m4a named alone, and a FIFO, which nobody writes into."""
    (tmp_path / "talk.m4a").write_bytes(b"\0\0\0\x20ftypM4A \0\0\0\0M4A mp42isom" + bytes(100))
    endings = ".wav, .flac, .sph, .ogg, .opus, .mp3, .aiff, .aif, .au ffmpeg"
    listen(f"input={tmp_path / 'talk.m4a'}").fails(3, endings)
    listen(f"input={tmp_path}").fails(3, ".wav, .flac ffmpeg")
    os.mkfifo(tmp_path / "pipe.wav")
    listen(f"input={tmp_path / 'pipe.wav'}").fails(3, "pipe.wav: regular")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("channel=left", "channel=left"),
        ("format=srd output=x", "format=srd srt"),
        ("format=srt", "format=srt output=x.srt output=folder"),
        ("batch_size=0", "batch_size=0 1"),
        ("pieces.longest_s=1.0", "pieces.longest_s=1.0"),
        ("+pieces.longest=1", "pieces.longest: longest_s"),
        ("search=gready", "gready.yaml. greedy"),
    ],
)
def test_settings_are_checked(listen: Las, trained: Path, given: str, words: str) -> None:
    listen(f"input={wav(trained, 'mdab0_sx1')}", *given.split()).fails(2, words)


def test_long_work_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(transcribe, "SAY_EVERY_S", 0.0)
    with transcribe.DecodingProgress(3600.0) as decoding:
        decoding.advance(200.0)
    line = capsys.readouterr().out
    assert all(each in line for each in ("3:20", "1:00:00", "factor 0.0"))


def test_nothing_heard_has_no_pace(listen: Las, tmp_path: Path) -> None:
    assert transcribe.DecodingProgress(60.0).line() == "0:00 of 1:00 decoded"
    (tmp_path / "empty.wav").touch()
    answer = listen(f"input={tmp_path / 'empty.wav'}")
    assert answer.code == 3
    last = answer.out.splitlines()[-1]
    assert re.fullmatch(r"0 recordings, 0\.0 s of .* \d+\.\d s", last), last


def test_the_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.console, "_force_terminal", True)
    with transcribe.DecodingProgress(10.0) as decoding:
        decoding.advance(10.0)
        (task,) = decoding.live.tasks
        assert task.finished and task.description.startswith("0:10 ") and "factor 0.0" in task.description


def long_recording(path: Path, minutes: int) -> Path:
    """Noise with a soft second in every 5 to 19, so that pieces have all lengths."""
    with soundfile.SoundFile(path, "w", RATE, 1) as file:
        for second in range(60 * minutes):
            draw = np.random.default_rng(second)
            is_soft = second % 60 in (0, 5, 12, 22, 41)
            file.write((0.0005 if is_soft else 0.2) * draw.uniform(-1, 1, RATE))
    return path


MEMORY = """
import resource, sys
from las.cli.main import main
code = main(sys.argv[1:])
peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(code, *peaks)
"""


@pytest.mark.slow
def test_two_hours_take_the_memory_of_ten_minutes(trained: Path, tmp_path: Path) -> None:
    """The samples of two hours alone are 460 MB in single precision. Measured as `las transcribe` itself runs."""
    memory = {}
    for minutes in (10, 120):
        path, output = long_recording(tmp_path / f"{minutes}.flac", minutes), tmp_path / f"{minutes}.jsonl"
        settings = [f"checkpoint={trained / 'run'}", "search=greedy", f"input={path}", f"output={output}"]
        command = [sys.executable, "-c", MEMORY, "transcribe", *settings]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        code, *kilobytes = map(int, answer.stdout.splitlines()[-1].split())
        heard = json.loads(output.read_text())
        assert code == 0 and heard["duration_s"] == 60 * minutes and len(heard["tokens"]) > 300 * minutes
        memory[minutes] = sum(kilobytes) / 1024
    print({minutes: f"{megabytes:.0f} MB" for minutes, megabytes in memory.items()})
    assert memory[120] < memory[10] + 50
