"""SPHERE samples agree with libsndfile and with the decoded twins of real files; damage is named."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import shorten_encoder
import soundfile
from refusals import refused

from las.data.audio import files, shorten, sphere
from las.runtime.errors import DataError


def sphere_bytes(samples: bytes, count: int, **fields: object) -> bytes:
    """A SPHERE file: `fields` override the usual header, None leaves one out."""
    usual = {"channel_count": 1, "sample_count": count, "sample_rate": 16000, "sample_n_bytes": 2}
    lines = ["NIST_1A", "   1024"]
    for name, value in (usual | {"sample_byte_format": "01"} | fields).items():
        if isinstance(value, int):
            lines.append(f"{name} -i {value}")
        elif value is not None:
            lines.append(f"{name} -s{len(str(value))} {value}")
    return ("\n".join([*lines, "end_head", ""])).encode().ljust(1024) + samples


@pytest.mark.parametrize("coding", ["ulaw", "mu-law", "alaw", "pcm"])
def test_every_code_of_one_byte_as_libsndfile_decodes_it(tmp_path, coding: str) -> None:
    path = tmp_path / "x.sph"
    path.write_bytes(
        sphere_bytes(bytes(range(256)), 256, sample_coding=coding, sample_n_bytes=1, sample_byte_format="1")
    )
    decoded = sphere.read(path)[:, 0]
    np.testing.assert_array_equal(decoded, soundfile.read(path, dtype="float32")[0])
    assert 0.97 < np.abs(decoded).max() <= 1


def test_fields_are_typed_and_strings_as_long_as_they_say(tmp_path) -> None:
    path = tmp_path / "x.sph"
    content = sphere_bytes(b"\0\0", 1, utterance_id="two words").replace(b"-s9 two words", b"-s3 two words\nsnr -r 1.5")
    path.write_bytes(content[:1024] + b"\0\0" + b"trailing")
    header = sphere.read_header(path)
    assert header.fields["utterance_id"] == "two"
    assert header.fields["snr"] == 1.5
    assert header.fields["sample_count"] == header.num_samples == 1
    assert (header.sample_rate, header.channels, header.coding, header.header_bytes) == (16000, 1, "pcm", 1024)


@pytest.mark.parametrize("kept", [0, 1, 40, 99])
def test_a_file_cut_short_says_how_much_is_there(tmp_path, kept: int) -> None:
    (tmp_path / "cut.sph").write_bytes(sphere_bytes(bytes(2 * kept), 100))
    refused(f"cut.sph|100 samples|{kept} are there", sphere.read, tmp_path / "cut.sph")


HEADERS = [
    (b"RIFF", "NIST_1A"),
    (b"NIST_1A\n", "header's size"),
    (b"NIST_1A\n     -5\n", "header's size"),
    (b"NIST_1A\n9999999\n", "header's size"),
    (b"NIST_1A\n   1024\nsample_count -i 5\n", "no end_head"),
    (sphere_bytes(b"", 0).replace(b"sample_count -i 0", b"sample_count -i x"), "sample_count"),
    (sphere_bytes(b"", 0), "no samples|sample_count is 0"),
    (sphere_bytes(bytes(40), 0, sample_coding="pcm,embedded-shorten-v2.00"), "no samples|sample_count is 0"),
    (2 * sphere_bytes(bytes(32000), 16000), "another SPHERE file|1.00 s"),
    (sphere_bytes(b"", 0, sample_rate=None), "sample_rate|missing"),
    (sphere_bytes(b"", 0, sample_rate=0), "sample_rate is 0"),
    (sphere_bytes(b"", -1), "sample_count is -1"),
    (sphere_bytes(b"", 0, channel_count="two"), "channel_count is 'two'"),
    (sphere_bytes(b"", 0, sample_n_bytes=3), "pcm|3 bytes"),
    (sphere_bytes(b"", 0, sample_coding="ulaw"), "ulaw|2 bytes"),
    (sphere_bytes(b"", 0, sample_coding="adpcm"), "adpcm"),
    (sphere_bytes(bytes(40), 10, sample_coding="pcm,embedded-wavpack-v1.0"), "compressed|embedded-wavpack-v1.0"),
    (sphere_bytes(bytes(40), 10, sample_coding="pcm,embedded-shorten-v3.00"), "compressed|embedded-shorten-v3.00"),
    (sphere_bytes(bytes(40), 10, sample_coding="alaw,embedded-shorten-v2.00", sample_n_bytes=1), "alaw|shorten"),
    (sphere_bytes(bytes(40), 10, sample_byte_format="shortpack-v0"), "'shortpack-v0'"),
    (sphere_bytes(bytes(40), 1 << 40, sample_coding="pcm,embedded-shorten-v2.00"), "1099511627776 samples"),
    (sphere_bytes(bytes(40), 10, sample_checksum="abc"), "sample_checksum is 'abc'"),
]


@pytest.mark.parametrize(("content", "says"), HEADERS)
def test_a_header_that_is_damaged_or_not_supported_is_named(tmp_path, content: bytes, says: str) -> None:
    (tmp_path / "x.sph").write_bytes(content)
    refused(f"{tmp_path}/x.sph|{says}", sphere.read_header, tmp_path / "x.sph")
    refused("No such file", sphere.read_header, tmp_path / "absent.sph")


def test_real_files_as_libsndfile_reads_them(shared_data) -> None:
    paths = [path for path in sorted(shared_data.glob("sphere_samples/**/*.sph")) if "_shn" not in path.name]
    assert len(paths) == 16
    for path in paths:
        expected, sample_rate = soundfile.read(path, always_2d=True, dtype="float32")
        np.testing.assert_array_equal(sphere.read(path), expected)
        assert sphere.read_header(path).sample_rate == sample_rate


@pytest.mark.parametrize("name", ["123_1pcbe", "123_1ulaw", "123_2pcbe", "123_2pcle"])
def test_shorten_of_a_real_file_is_its_uncompressed_twin(shared_data, name: str) -> None:
    folder = shared_data / "sphere_samples" / "shorten"
    samples = sphere.read(folder / f"{name}_shn.sph")
    np.testing.assert_array_equal(samples, sphere.read(folder / f"{name}.sph"))
    header, twin = sphere.read_header(folder / f"{name}_shn.sph"), sphere.read_header(folder / f"{name}.sph")
    assert (header.compression, twin.compression) == ("shorten", "none")
    assert (header.num_samples, header.channels, header.coding) == (len(samples), samples.shape[1], twin.coding)


def speech(dtype: type, num_samples: int = 3000, channels: int = 2) -> np.ndarray:
    wave = np.random.default_rng(1).normal(0, 12, (num_samples, channels)).cumsum(axis=0)
    return wave.clip(0 if dtype == np.uint8 else -128, 127).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
@pytest.mark.parametrize("version", [1, 2])
def test_shorten_of_every_coding(tmp_path, dtype: type, version: int) -> None:
    values = speech(dtype)
    path, plain = shorten_encoder.write_sphere(tmp_path / "x.sph", values, version=version), tmp_path / "plain.sph"
    header = sphere.read_header(path)
    assert (header.coding, header.compression) == ("ulaw" if dtype == np.uint8 else "pcm", "shorten")
    fields = {"channel_count": 2, "sample_coding": header.coding, "sample_n_bytes": values.dtype.itemsize}
    plain.write_bytes(sphere_bytes(values.tobytes(), len(values), **fields))
    whole = sphere.read(plain)
    np.testing.assert_array_equal(sphere.read(path), whole)
    np.testing.assert_array_equal(sphere.read(path, 100, 50), whole[100:150])
    np.testing.assert_array_equal(files.load(path, channel=1, start_s=0.1, duration_s=0.05), whole[800:1200, 1])
    assert files.info(path) == files.AudioInfo(8000, 3000, 2)


def test_a_promised_number_of_channels_takes_no_memory(tmp_path) -> None:
    fields = {"channel_count": 4_000_000, "sample_coding": "pcm,embedded-shorten-v2.00"}
    (tmp_path / "x.sph").write_bytes(sphere_bytes(shorten_encoder.encode(speech(np.int16)), 1, **fields))
    tracemalloc.start()
    refused("2 channels|4000000 of pcm16", sphere.read, tmp_path / "x.sph")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize("start", [-1, 2999, 3001])
def test_a_stretch_outside_the_file(tmp_path, start: int) -> None:
    path = shorten_encoder.write_sphere(tmp_path / "x.sph", speech(np.uint8))
    refused("not within|3000 samples", sphere.read, path, start, 2)


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the streams that were decoded."""
    sizes: list[int] = []
    decode = shorten.decode

    def counted(data: bytes, *arguments: object) -> np.ndarray:
        sizes.append(len(data))
        return decode(data, *arguments)

    monkeypatch.setattr(shorten, "decode", counted)
    return sizes


def test_segments_and_threads_decode_a_file_once(tmp_path, decodings: list[int]) -> None:
    """And again when it has changed."""
    paths = [shorten_encoder.write_sphere(tmp_path / f"{n}.sph", speech(np.uint8) ^ n) for n in range(2)]
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda number: sphere.read(paths[number % 2], number // 2 * 300, 300), range(20)))
    assert len(decodings) == 2
    before = sphere.read(paths[0])
    np.testing.assert_array_equal(np.concatenate(read[::2]), before)
    shorten_encoder.write_sphere(paths[0], speech(np.uint8)[::-1])
    np.testing.assert_array_equal(sphere.read(paths[0]), before[::-1])
    assert len(decodings) == 3


def test_decoded_files_are_kept_up_to_a_limit() -> None:
    kept = sphere._Decoded(max_bytes=250)
    made: list[str] = []

    def get(name: str, size: int = 100) -> None:
        def make() -> np.ndarray:
            made.append(name)
            return np.zeros(size, np.uint8)

        assert len(kept.get((name, 0, 0, 0), make)) == size

    for name in "abacab":  # c pushes out b, b pushes out c
        get(name)
    assert made == ["a", "b", "c", "b"]
    get("large", 1000)
    get("large", 1000)
    assert made[4:] == ["large"]


def test_a_wrong_checksum_is_found_where_the_whole_file_is_read(tmp_path) -> None:
    values = speech(np.int16, 500, 1)
    right = int(values.view(np.uint16).sum()) % 65536
    for checksum, name in ((right, "right"), (right ^ 1, "wrong"), (0, "none")):
        content = sphere_bytes(values.astype("<i2").tobytes(), 500, sample_checksum=checksum)
        (tmp_path / f"{name}.sph").write_bytes(content)
    for name in ("right", "none"):
        assert len(sphere.read(tmp_path / f"{name}.sph")) == 500
    for read in (sphere.read, files.read):
        refused(f"wrong.sph|{right}|{right ^ 1}", read, tmp_path / "wrong.sph")
    assert len(sphere.read(tmp_path / "wrong.sph", 0, 499)) == 499


@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_flipped_bits_in_a_compressed_file_are_found(tmp_path, dtype: type) -> None:
    """By the stream itself or by the checksum: of 60 flips none passes."""
    path = shorten_encoder.write_sphere(tmp_path / "x.sph", speech(dtype))
    content = path.read_bytes()
    generator = np.random.default_rng(3)
    for place in generator.integers(1030, len(content) - 8, 60):
        flipped = bytearray(content)
        flipped[place] ^= 1 << generator.integers(8)
        path.write_bytes(flipped)
        with pytest.raises(DataError, match=r"x\.sph.*(checksum|could be decoded)"):
            files.read(path)
