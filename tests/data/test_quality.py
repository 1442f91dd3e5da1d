"""What is asked of an utterance, at the limits; audio is read once, and again when a file has changed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tiny
import torch

from las.data import quality
from las.data.audio import files, worker_pool
from las.data.audio.files import AudioInfo
from las.data.audio.worker import FULL_SCALE, AudioLevels, AudioScan, measure
from las.data.manifest import Utterance
from las.data.quality import AudioScanCache, QualityCriteria, QualityLimits, segment_key
from las.data.tokenizers import Characters
from las.nn import ctc
from las.runtime.errors import DataError

RATE = 16000
ASKED = QualityCriteria(Characters(" AB"), 16000, 1, QualityLimits(longest_s=10.0, clipped=0.01), lambda num_samples: 3)


def utterance(duration_s: float = 1.0, text: str = "AB", name: str = "a") -> Utterance:
    return Utterance(name, "x.wav", 0, 0.5, duration_s, text, "speaker")


def reading(of: Utterance, peak: float = 0.5, clipped: float = 0.0) -> AudioScan:
    return AudioScan(AudioInfo(16000, 16000 * 60, 1), {segment_key(of): AudioLevels(peak, clipped)})


def kind_of(require: Callable[[], object]) -> str | None:
    """Kind of the problem that a requirement raises."""
    try:
        require()
    except DataError as error:
        return error.kind
    return None


@pytest.mark.parametrize(
    ("duration_s", "peak", "clipped", "kind"),
    [(0.0249, 0.5, 0.0, "too short"), (0.025, 0.5, 0.0, None), (10.0, 0.5, 0.0, None), (10.01, 0.5, 0.0, "too long"),
     (1.0, 0.0, 0.0, "silent"), (1.0, 1e-9, 0.0, None), (1.0, 1.0, 0.01, None), (1.0, 1.0, 0.0101, "clipped"),
     (59.6, 0.5, 0.0, "ends too early")],
)  # fmt: skip
def test_audio_at_the_limits(duration_s: float, peak: float, clipped: float, kind: str | None) -> None:
    asked = utterance(duration_s)
    assert kind_of(lambda: quality.require_audio(asked, reading(asked, peak, clipped), ASKED)) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [("ABA", None), ("ABAB", "more symbols than states"), (" A ", None), ("A\tB", "control characters")],
)
def test_transcripts_at_the_limits(text: str, kind: str | None) -> None:
    assert kind_of(lambda: quality.require_text(utterance(text=text), ASKED)) == kind
    assert quality.is_well_formed(text) == (kind != "control characters")


@pytest.mark.parametrize(("text", "states"), [("ABAB", 4), ("AAAA", 7), ("AABB", 6), ("A AA", 5), ("AA", 3)])
def test_ctc_needs_a_state_between_equal_neighbours(text: str, states: int) -> None:
    """As `ctc_loss` does: with a state less, an utterance has probability zero, which adds nothing to the loss."""
    asked = ASKED._replace(num_states=lambda num_samples: states)
    quality.require_text(utterance(text=text), asked)
    assert -float(ctc_loss(text, states, asked)) < 0
    fewer = asked._replace(num_states=lambda num_samples: states - 1)
    assert float(ctc_loss(text, states - 1, asked)) == 0
    kind = kind_of(lambda: quality.require_text(utterance(text=text), fewer))
    assert kind in quality.TRAINING_ONLY
    if states > len(text):
        assert kind == "CTC"
        quality.require_text(utterance(text=text), fewer._replace(ctc=False))


def ctc_loss(text: str, states: int, asked: QualityCriteria) -> torch.Tensor:
    torch.manual_seed(1)
    scores = torch.randn(1, states, asked.tokens.size).log_softmax(-1)
    targets = torch.tensor([asked.tokens.encode(text)])
    return ctc.loss(ctc.CTCOutput(scores, torch.tensor([states])), targets, torch.tensor([len(text)]))


def test_outliers_are_further_than_three_times_from_the_median() -> None:
    """The median is 4 symbols per second; the worst comes first, equally bad ones by id."""
    rates = {"m": 4, "n": 4, "o": 4, "slow": 1, "edge": 12, "fast": 13, "fastest": 40, "tardy": 1}
    utterances = [utterance(1.0, "A" * rate, name) for name, rate in rates.items()]
    spoilt = [utterance(1.0, "  ", "no text"), utterance(0.0, "A", "no audio")]
    found = quality.outliers([*utterances, *spoilt], Characters(" A"))
    assert [each.utterance_id for each in found] == ["fastest", "slow", "tardy", "fast"]
    assert found[0] == ("fastest", 40, 1.0, 4.0)
    assert quality.outliers(spoilt, Characters(" A")) == []


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read."""
    names: list[str] = []

    def reading(name: str, *call: Any) -> Any:
        names.append(Path(name).name)
        return worker_pool.run_here(name, *call)

    monkeypatch.setattr(worker_pool, "run_in_worker", reading)
    return names


def recording(path: Path) -> list[Utterance]:
    """Two channels of 3 s: silence then speech; speech with clipping. Utterances: each channel's three seconds."""
    draw = np.random.default_rng(0).uniform(-0.5, 0.5, (3 * RATE, 2)).astype(np.float32)
    draw[:RATE, 0] = 0
    draw[RATE : RATE + 800, 1] = 1.0
    draw[5, 1] = -1.0
    soundfile.write(path, draw, RATE, "PCM_16")
    return [
        Utterance(f"{channel}{second}", str(path), channel, float(second), 1.0, "x", "y")
        for channel in (0, 1)
        for second in range(3)
    ]


def test_every_utterance_of_a_file_has_its_own_sound_and_the_file_is_read_once(
    tmp_path: Path, calls: list[str]
) -> None:
    utterances, cache = recording(tmp_path / "x.wav"), AudioScanCache()
    audio = utterances[0].audio
    outside = [Utterance(f"outside{n}", audio, n, 9.0 - n, 1.0, "x", "y") for n in (0, 5)]
    reading = cache.read([*utterances, *outside], 2, "files")[audio]
    assert calls == ["x.wav"]
    assert isinstance(reading, AudioScan) and reading.info == files.AudioInfo(RATE, 3 * RATE, 2)
    sounds = {each.id: reading.sounds[segment_key(each)] for each in (*utterances, *outside)}
    assert sounds["00"] == sounds["outside0"] == sounds["outside5"] == AudioLevels(0.0, 0.0)
    assert sounds["01"].clipped == sounds["12"].clipped == 0.0 < sounds["01"].peak < 0.51
    assert sounds["10"] == AudioLevels(1.0, 1 / RATE)
    assert sounds["11"].clipped == 800 / RATE
    cache.read([Utterance("other", audio, 0, 0.5, 0.5, "x", "y")], 2, "files")
    assert calls == ["x.wav", "x.wav"]


@pytest.mark.parametrize("coding", ["ULAW", "ALAW", "PCM_U8", "PCM_16"])
def test_the_loudest_value_of_every_coding_is_full_scale(coding: str, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", np.full(RATE, 0.9999), RATE, coding)
    (levels,) = measure(str(tmp_path / "x.wav"), ["0 0 1"])[0].sounds.values()
    assert levels.peak >= FULL_SCALE and levels.clipped == 1.0


def test_what_was_read_is_remembered_by_another_process_exactly(tmp_path: Path, calls: list[str]) -> None:
    utterances, place = recording(tmp_path / "x.wav"), tmp_path / "folder" / "audio.jsonl"
    first = AudioScanCache.remembered(place).read(utterances, 1, "files")
    assert AudioScanCache.remembered(place).read(utterances, 1, "files") == first
    assert AudioScanCache.remembered(place).read(utterances[:2], 1, "files").keys() == first.keys()
    assert calls == ["x.wav"]
    assert AudioScanCache().read(utterances, 1, "files") == first
    assert calls == ["x.wav", "x.wav"]


@pytest.mark.parametrize(
    "change",
    [
        lambda path: os.utime(path, ns=(1, 1)),
        lambda path: path.write_bytes(path.read_bytes() + b"more"),
        lambda path: path.unlink(),
    ],
)
def test_a_file_that_changed_is_read_again(change: Callable, tmp_path: Path, calls: list[str]) -> None:
    utterances, place = recording(tmp_path / "x.wav"), tmp_path / "audio.jsonl"
    AudioScanCache.remembered(place).read(utterances, 1, "files")
    change(tmp_path / "x.wav")
    AudioScanCache.remembered(place).read(utterances, 1, "files")
    assert calls == ["x.wav", "x.wav"]


def test_files_that_cannot_be_read_are_tried_again(tmp_path: Path, calls: list[str]) -> None:
    utterances, place = recording(tmp_path / "x.wav"), tmp_path / "audio.jsonl"
    content = (tmp_path / "x.wav").read_bytes()
    (tmp_path / "x.wav").write_bytes(content[:1000])
    (found,) = AudioScanCache.remembered(place).read(utterances, 1, "files").values()
    assert isinstance(found, DataError) and found.kind == "cut short"
    assert not place.exists()
    (tmp_path / "x.wav").write_bytes(content)
    (found,) = AudioScanCache.remembered(place).read(utterances, 1, "files").values()
    assert isinstance(found, AudioScan)
    assert len(calls) == 2


@pytest.mark.parametrize("damage", [b'[2,"half', b"\x00\xff\n", b"{}\n", b"[9]\n", b"[]\n", b"[2,{}]\n", b"5\n"])
def test_lines_that_are_no_entries_are_none(damage: bytes, tmp_path: Path, calls: list[str]) -> None:
    utterances, place = recording(tmp_path / "x.wav"), tmp_path / "audio.jsonl"
    first = AudioScanCache.remembered(place).read(utterances, 1, "files")
    entry = json.loads(place.read_bytes())
    others = ([1, *entry[1:4], RATE, 7, 1, {}], [*entry[:4], RATE, "7", 1, {}], [*entry[:4], [[1]]])  # 1: a version
    stale = (json.dumps(each).encode() for each in others)
    place.write_bytes(b"\n".join([damage, place.read_bytes(), *stale, damage]))
    assert AudioScanCache.remembered(place).read(utterances, 1, "files") == first
    assert len(calls) == 1


def test_a_stopped_check_keeps_what_it_has_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utterances = [each for name in "abc" for each in recording(tmp_path / f"{name}.wav")]

    def stopping(name: str, *call: Any) -> Any:
        if Path(name).name == "c.wav":
            raise KeyboardInterrupt
        return worker_pool.run_here(name, *call)

    place = tmp_path / "audio.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(worker_pool, "run_in_worker", stopping)
        with pytest.raises(KeyboardInterrupt):
            AudioScanCache.remembered(place).read(utterances, 1, "files")
    names = [Path(json.loads(line)[1]).name for line in place.read_text().splitlines()]
    assert names == ["a.wav", "b.wav"]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose headers are read."""
    names: list[str] = []
    info = files.info
    monkeypatch.setattr(files, "info", lambda path: (names.append(Path(path).name), info(path))[1])
    return names


def test_headers_are_read_once_and_again_for_files_that_changed(tmp_path: Path, opened: list[str]) -> None:
    paths = [str(tiny.sound(tmp_path / f"{number}.wav", 0.1 * number, number)) for number in (1, 2, 3)]
    place = tmp_path / "headers.jsonl"
    first = AudioScanCache.remembered(place).headers(paths)
    assert {path: info and info.num_samples for path, info in first.items()} == dict(
        zip(paths, (1600, 3200, 4800), strict=True)
    )
    assert sorted(opened) == ["1.wav", "2.wav", "3.wav"] and AudioScanCache().headers(paths) == first
    opened.clear()
    assert AudioScanCache.remembered(place).headers(paths) == first and not opened
    tiny.sound(Path(paths[1]), 0.7)
    assert AudioScanCache.remembered(place).headers(paths)[paths[1]] == files.AudioInfo(RATE, 11200, 1)
    assert opened == ["2.wav"]
    Path(paths[0]).write_bytes(b"RIFF")
    assert AudioScanCache.remembered(place).headers(paths)[paths[0]] is None


def test_a_disk_that_refuses_entries_stops_nothing(tmp_path: Path) -> None:
    utterances = recording(tmp_path / "x.wav")
    found = AudioScanCache(tmp_path / "x.wav" / "audio.jsonl").read(utterances, 1, "files")
    assert isinstance(found[utterances[0].audio], AudioScan)


def test_the_share_of_unknown_symbols_is_a_number_without_an_exponent() -> None:
    for known, share in ((0, "100 %"), (1, "66.7 %"), (1998, "0.1 %")):
        assert f"2 of {known + 2:,} symbols ({share})" in str(quality.Unknown(known + 2, {"a": ["u1", "u2"]}))
