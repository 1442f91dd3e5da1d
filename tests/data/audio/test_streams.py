"""Files of several recordings, lengths that headers leave open or have wrong: every sample that is there is read."""

import io
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from refusals import refused

from las.data import manifest, packing
from las.data.audio import files, mpeg, sphere
from las.data.audio.worker import measure
from las.data.manifest import Utterance
from las.runtime.errors import DataError

RATE = 16000
JOINED = [
    ("FLAC", "PCM_16"), ("FLAC", "PCM_24"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"),
    ("WAV", "PCM_16"), ("WAV", "MS_ADPCM"), ("WAVEX", "FLOAT"), ("RF64", "PCM_16"), ("W64", "PCM_16"),
    ("AIFF", "PCM_U8"), ("AU", "ULAW"), ("CAF", "PCM_16"),
]  # fmt: skip
ID3V2 = b"ID3\x03\0\0\0\0\x02\0" + b"fLaC\xff\xfb\x90\x64OggS".ljust(256, b"\xff")
ID3V1, APE = b"TAG".ljust(128), b"APETAGEX" + struct.pack("<4I", 2000, 50, 1, 0xA0000000) + bytes(58)


def noise(seconds: float, loud: float = 0.2, seed: int = 0) -> np.ndarray:
    return loud * np.random.default_rng(seed).uniform(-1, 1, round(seconds * RATE))


def encoded(samples: np.ndarray, container: str, subtype: str | None = None, rate: int = RATE, **options: str) -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, subtype, format=container, **options)
    return stream.getvalue()


def decoded(content: bytes) -> np.ndarray:
    """All samples of one recording [samples, channels], as libsndfile alone reads them."""
    samples: np.ndarray = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)[0]
    return samples


def stripped(content: bytes) -> bytes:
    """An mp3 without its header, as `lame -t` writes it."""
    (recording,) = mpeg.recordings(io.BytesIO(content), 0, len(content))
    return b"".join(content[each.start : each.stop] for each in recording.ranges)


def require_same(path: str | Path, expected: np.ndarray, tolerance: float = 1e-6) -> None:
    """Header, whole file, blocks, and stretches within and across recordings agree."""
    info, samples = files.read(path)
    assert info == files.info(path) and info.num_samples == len(expected) == len(samples)
    np.testing.assert_allclose(samples, expected, atol=tolerance, rtol=0)
    np.testing.assert_allclose(np.concatenate(list(files.blocks(path, 0.13))), samples, atol=1e-6, rtol=0)
    for start in (1, len(samples) // 3, len(samples) - 700):
        stretch = files.load(path, info.channels - 1, start / info.sample_rate, 700 / info.sample_rate)
        np.testing.assert_allclose(stretch, samples[start : start + 700, -1], atol=1e-6, rtol=0)


@pytest.mark.parametrize(("container", "subtype"), JOINED)
def test_joined_files_are_read_to_their_end(tmp_path: Path, container: str, subtype: str) -> None:
    """As `cat a b c` joins them: also two of the same length, and in a shard."""
    parts = [encoded(noise(seconds, seed=3), container, subtype) for seconds in (0.5, 0.5, 0.2001)]
    path = tmp_path / "joined"
    path.write_bytes(b"".join(parts))
    expected = np.concatenate(list(map(decoded, parts)))
    require_same(path, expected)
    assert len(measure(str(path), [])[0].sounds) == 0
    listed = [Utterance("u", str(path), 0, 0.0, 1.0, "a", "")]
    packed = packing.pack("train", listed, tmp_path / "shards", 1 << 30).manifest
    require_same(packed.parent / manifest.read(packed)[0].audio, expected)


@pytest.mark.parametrize("container", ["FLAC", "OGG", "MP3", "WAV"])
def test_joined_recordings_of_several_kinds_are_refused(tmp_path: Path, container: str) -> None:
    path, first, stereo = tmp_path / "a b.x", encoded(noise(0.5), container), np.stack([noise(0.5)] * 2, 1)
    faster = encoded(noise(0.5), container, rate=48000)
    for says, other in (("48000 Hz with 1", faster), ("16000 Hz with 2", encoded(stereo, container))):
        path.write_bytes(first + other)
        refused(f"16000 Hz with 1|0.50 s|{says}|ffmpeg -i '{path}'", files.info, path)


@pytest.mark.parametrize("container", ["FLAC", "OGG", "MP3", "WAV"])
def test_a_part_that_is_cut_short_is_named(tmp_path: Path, container: str) -> None:
    path, part = tmp_path / "joined", encoded(noise(2.0), container)
    for content in (part[: len(part) // 2] + part, part + part[: len(part) // 2], part[: len(part) // 2]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"joined: .*(cut short|damaged|bytes follow)"):
            files.read(path)


@pytest.mark.parametrize("first", [0.001, 1.0])
@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_mp3_of_any_bit_rates_without_a_header_is_read_whole(tmp_path: Path, first: float, rate: int) -> None:
    """The bit rate of the first frame says nothing about the length: soft and loud beginnings."""
    samples = np.concatenate([noise(1.0, first), noise(1.0, 1.001 - first)])
    content = encoded(samples, "MP3", rate=rate, bitrate_mode="VARIABLE")
    path = tmp_path / "x.mp3"
    path.write_bytes(stripped(content))
    found, expected = files.info(path).num_samples, len(samples)
    assert expected <= found <= expected + 4000  # with the encoder's delay and padding
    require_same(path, files.read(path)[1])
    whole, delayed = decoded(content)[:, 0], files.load(path)
    delay = int(np.argmax(np.correlate(delayed, whole, "valid")))
    np.testing.assert_allclose(delayed[delay : delay + expected], whole, atol=1e-4, rtol=0)


@pytest.fixture(scope="module")
def mp3_pieces() -> dict[str, bytes]:
    """Two recordings of 0.7 s with and without (-) their headers, tags and junk."""
    one, two = (encoded(noise(0.7, seed=seed), "MP3") for seed in (1, 2))
    junk = {"text": b"hello " * 100, "zeros": bytes(5000)}
    return junk | {
        "id3v2": ID3V2,
        "id3v1": ID3V1,
        "ape": APE,
        "a": one,
        "b": two,
        "-a": stripped(one),
        "-b": stripped(two),
    }


@pytest.mark.parametrize(
    "names",
    ["a id3v1", "id3v2 a id3v2 b", "a id3v1 b id3v1", "ape a ape b ape", "text a", "zeros a zeros", "a text b", "-a -b",
     "a -b", "-a b", "-a id3v1", "-a id3v2 -b"],
)  # fmt: skip
def test_tags_and_junk_between_mp3_frames_are_no_audio(
    tmp_path: Path, mp3_pieces: dict[str, bytes], names: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.mp3"
    path.write_bytes(b"".join(mp3_pieces[name] for name in names.split()))
    info, samples = files.read(path)
    recordings = [name for name in names.split() if name in ("a", "b", "-a", "-b")]
    delay = 0.13 * len(recordings) if "-" in names else 0  # of the encoder, and padding
    assert 0.7 * len(recordings) <= info.duration_s <= 0.7 * len(recordings) + delay
    if not delay:
        expected = np.concatenate([decoded(mp3_pieces[name]) for name in recordings])
        np.testing.assert_allclose(samples, expected, atol=1e-6, rtol=0)
    require_same(path, samples)
    assert capfd.readouterr() == ("", "")  # libmpg123 writes warnings of its own


def test_mp3_that_goes_on_after_what_is_no_mp3_is_damaged(tmp_path: Path, mp3_pieces: dict[str, bytes]) -> None:
    (tmp_path / "x.mp3").write_bytes(mp3_pieces["a"] + bytes(100_000) + mp3_pieces["b"])
    refused("x.mp3|from byte|65,536 bytes", files.info, tmp_path / "x.mp3")


def test_what_is_only_called_mp3_is_not_taken_for_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.mp3"
    for content in (b"hello there " * 10_000, b"\xff" * 100_000):
        path.write_bytes(content)
        refused("x.mp3|not audio", files.info, path)
    path.write_bytes(encoded(noise(0.1), "WAV"))
    assert files.info(path).num_samples == 1600 and capfd.readouterr().err == ""


@pytest.mark.parametrize("codec", [0x50, 0x55])
def test_mp3_inside_wav_is_counted_too(tmp_path: Path, mp3_pieces: dict[str, bytes], codec: int) -> None:
    path = tmp_path / "x.wav"
    layout = struct.pack("<HHIIHHH", codec, 1, RATE, 4000, 1, 0, 12) + struct.pack("<HIHHH", 1, 2, 418, 1, 1393)
    data = mp3_pieces["-a"] + mp3_pieces["b"]
    for size in (len(data), 0, 0xFFFFFFFF):
        content = b"WAVEfmt " + struct.pack("<I", len(layout)) + layout + b"data" + struct.pack("<I", size) + data
        path.write_bytes(b"RIFF" + struct.pack("<I", len(content)) + content)
        assert 1.4 <= files.info(path).duration_s < 1.53
        require_same(path, files.read(path)[1])


def layer_2(*bit_rates: int) -> bytes:
    """Frames of silence of MPEG 1 layer II at 48 kHz with one channel, 50 of each number of a bit rate."""
    kbps = {3: 56, 5: 80, 9: 160}
    frames = (bytes([0xFF, 0xFD, number << 4 | 4, 0xC0]).ljust(144 * kbps[number] // 48, b"\0") for number in bit_rates)
    return b"".join(50 * frame for frame in frames)


def test_layer_2_is_read_whole_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.mp2"
    for bit_rates in ((5, 5), (3, 9)):
        path.write_bytes(layer_2(*bit_rates) + ID3V1)
        require_same(path, np.zeros((100 * 1152, 1)))
    path.write_bytes(layer_2(9, 3))
    refused("layer 2|several bit rates|x.mp2 converted_x.wav", files.info, path)


@pytest.mark.parametrize("num_samples", [1, 4095, 4096, 4097, 50_000])
def test_a_flac_without_its_length_is_counted(tmp_path: Path, num_samples: int) -> None:
    """As it is written into a pipe; alone and joined."""
    samples = np.random.default_rng(1).integers(-20000, 20000, num_samples).astype(np.int16)
    whole = encoded(samples, "FLAC", "PCM_16")
    content = bytearray(whole)
    content[18:26] = (int.from_bytes(content[18:26], "big") >> 36 << 36).to_bytes(8, "big")
    path = tmp_path / "x.flac"
    for joined, count in ((bytes(content), 1), (bytes(content) + whole + bytes(content), 3)):
        path.write_bytes(joined)
        assert np.array_equal(files.read(path)[1], np.tile(decoded(whole), (count, 1)))
    if num_samples > 5000:
        require_same(path, np.tile(decoded(whole), (3, 1)))


def test_flac_inside_the_metadata_of_flac_is_no_second_stream(tmp_path: Path) -> None:
    """Pictures and application blocks may hold anything."""
    content = encoded(noise(0.5), "FLAC")
    block = b"\x02" + len(content).to_bytes(3, "big") + content
    path = tmp_path / "x.flac"
    path.write_bytes(ID3V2 + content[:42] + block + content[42:])
    require_same(path, decoded(content))


OPEN = (0, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFF - 36, 0x7F000008)
OPEN_64 = (0, 4, (1 << 63) - 1, (1 << 64) - 1, 0x7FFFF000)


@pytest.mark.parametrize(
    ("container", "mark", "skipped", "kind", "sizes"),
    [("WAV", b"data", 4, "<I", OPEN), ("WAVEX", b"data", 4, "<I", OPEN), ("RF64", b"ds64", 16, "<Q", OPEN),
     ("AIFF", b"SSND", 4, ">I", OPEN), ("AU", b".snd", 8, ">I", OPEN),
     ("W64", b"data", 16, "<Q", (*OPEN_64[2:], 0, 24)), ("CAF", b"data", 4, ">Q", OPEN_64)],
)  # fmt: skip
def test_a_size_that_is_left_open_is_counted(
    tmp_path: Path, container: str, mark: bytes, skipped: int, kind: str, sizes: tuple[int, ...]
) -> None:
    """As SoX, ffmpeg, arecord and others write it into a pipe; the size of the file is open too, or right."""
    content = bytearray(encoded(noise(0.3), container, "PCM_16"))
    expected, place = decoded(bytes(content)), content.index(mark) + skipped
    for size in sizes:
        content[place : place + struct.calcsize(kind)] = struct.pack(kind, size)
        file_sizes = [content[4:8]]
        if container not in ("AU", "W64", "CAF"):
            file_sizes.append(struct.pack(kind[0] + "I", min(size + 36, 0xFFFFFFFF)))
        for file_size in file_sizes:
            (tmp_path / "x").write_bytes(content[:4] + file_size + content[8:])
            require_same(tmp_path / "x", expected)


@pytest.mark.parametrize(("container", "subtype"), [pair for pair in JOINED if pair[0] not in ("FLAC", "OGG", "MP3")])
def test_a_file_that_is_cut_short_is_named_in_every_container(tmp_path: Path, container: str, subtype: str) -> None:
    content = encoded(noise(0.3), container, subtype)
    for kept in (len(content) // 2, len(content) - 200):
        (tmp_path / "x").write_bytes(content[:kept])
        refused("x: |cut short|are there", files.info, tmp_path / "x")


def test_what_follows_the_samples_is_not_passed_over(tmp_path: Path) -> None:
    content, path = encoded(noise(0.3), "WAV", "PCM_16"), tmp_path / "x.wav"
    note = b"note\5\0\0\0hello\0"
    for before, harmless in ((note, note), (b"", ID3V1), (b"", bytes(10_000)), (b"", b"\xff\xfe" * 100)):
        path.write_bytes(content[:36] + before + content[36:] + harmless)
        assert files.info(path).num_samples == 4800
    path.write_bytes(content + content[44:])
    refused("x.wav|9,600 bytes follow", files.info, path)


def test_more_than_4_gib_after_an_open_size_are_refused(tmp_path: Path) -> None:
    content, path = bytearray(encoded(noise(0.1), "WAV", "PCM_16")), tmp_path / "x.wav"
    content[40:44] = b"\xff" * 4
    path.write_bytes(content)
    os.truncate(path, 5 << 30)  # a hole, which takes no room
    refused("x.wav|4 GiB|ffmpeg", files.info, path)


def codings() -> Iterator[tuple[str, str]]:
    """Containers and codings that libsndfile writes."""
    for container in sorted(soundfile.available_formats()):
        for subtype in sorted(soundfile.available_subtypes(container)):
            unwritten = subtype in ("DWVW_12", "MPEG_LAYER_I", "MPEG_LAYER_II") or (container, subtype) == (
                "WAV",
                "MPEG_LAYER_III",
            )
            if container not in ("RAW", "SD2", "XI", "NIST") and not unwritten:
                yield container, subtype


@pytest.mark.parametrize("container", sorted({container for container, _ in codings()}))
def test_whole_files_blocks_and_stretches_agree_in_every_coding(tmp_path: Path, container: str) -> None:
    """Among them those that cannot seek, such as GSM 6.10."""
    rate = 44100 if container == "MPC2K" else 8000
    for each, subtype in codings():
        if each == container:
            path = tmp_path / f"{subtype}.{container.lower()}"
            try:
                path.write_bytes(encoded(noise(0.5, 0.3), container, subtype, rate))
            except soundfile.SoundFileError:
                path.unlink(missing_ok=True)
                continue
            info, samples = files.read(path)
            assert info.num_samples >= 8000 and measure(str(path), [])[0].info == info
            require_same(path, samples)


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_what_would_be_waited_for_is_refused_everywhere(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, listener = tmp_path / "x.wav", socket.socket(socket.AF_UNIX)
    if kind == "socket":
        monkeypatch.chdir(tmp_path)  # names of sockets are short
        listener.bind(path.name)
    else:
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "fifo")
    (tmp_path / "x.tar").symlink_to(path)
    for ask in (files.info, files.read, files.load, sphere.read_header, lambda path: next(files.blocks(path))):
        for name in (path, f"{tmp_path}/x.tar#512+100/a.wav"):
            refused("not a regular file", ask, name)
    listener.close()


def test_what_cannot_be_read_names_the_endings_and_the_way_out(tmp_path: Path) -> None:
    contents = {"my talk.m4a": b"\0\0\0\x20ftypM4A \0\0\0\0M4A mp42isom" + bytes(100)}
    for name, content in (contents | dict.fromkeys(("x.raw", "x.txt"), bytes(range(256)) * 10)).items():
        path = tmp_path / name
        path.write_bytes(content)
        words = (f"{path}: not audio", ", ".join(files.SUFFIXES), files.conversion(path))
        refused("|".join(words), files.info, path)
    assert files.conversion(tmp_path / "my talk.m4a") == f"ffmpeg -i '{tmp_path}/my talk.m4a' 'converted_my talk.wav'"
    assert files.conversion("talk.wav") == "ffmpeg -i talk.wav converted_talk.wav"
