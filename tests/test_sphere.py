"""SPHERE samples agree with libsndfile and with the decoded twins of real files; damage is named."""

import numpy as np
import pytest
import soundfile

from las import sphere
from las.errors import DataError


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


@pytest.mark.parametrize(("dtype", "order"), [("<i2", "01"), (">i2", "10")])
@pytest.mark.parametrize("channels", [1, 2])
def test_16_bit_samples_in_both_byte_orders(tmp_path, dtype: str, order: str, channels: int) -> None:
    values = np.random.default_rng(0).integers(-32768, 32768, (50, channels))
    values[:2] = [[-32768] * channels, [32767] * channels]
    path = tmp_path / "x.sph"
    path.write_bytes(sphere_bytes(values.astype(dtype).tobytes(), 50, channel_count=channels, sample_byte_format=order))
    np.testing.assert_array_equal(sphere.read(path), (values / 32768).astype(np.float32))
    np.testing.assert_array_equal(sphere.read(path, 10, 5), (values[10:15] / 32768).astype(np.float32))
    np.testing.assert_array_equal(sphere.read(path), soundfile.read(path, always_2d=True, dtype="float32")[0])


@pytest.mark.parametrize("coding", ["ulaw", "mu-law", "alaw"])
def test_every_code_of_g711_as_libsndfile_decodes_it(tmp_path, coding: str) -> None:
    path = tmp_path / "x.sph"
    path.write_bytes(
        sphere_bytes(bytes(range(256)), 256, sample_coding=coding, sample_n_bytes=1, sample_byte_format="1")
    )
    decoded = sphere.read(path)[:, 0]
    np.testing.assert_array_equal(decoded, soundfile.read(path, dtype="float32")[0])
    np.testing.assert_allclose(decoded[:128], -decoded[128:], atol=1e-9)
    assert 0.97 < np.abs(decoded).max() < 1


def test_8_bit_samples_are_signed(tmp_path) -> None:
    path = tmp_path / "x.sph"
    values = np.array([-128, -1, 0, 127], np.int8)
    path.write_bytes(sphere_bytes(values.tobytes(), 4, sample_n_bytes=1, sample_coding="pcm", sample_byte_format="1"))
    np.testing.assert_array_equal(sphere.read(path)[:, 0], values / np.float32(128))


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
    path = tmp_path / "cut.sph"
    path.write_bytes(sphere_bytes(bytes(2 * kept), 100))
    with pytest.raises(DataError, match=rf"cut\.sph.*promises 100 samples, {kept} are there"):
        sphere.read(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"RIFF", "does not begin with NIST_1A"),
        (b"NIST_1A\n", "header's size"),
        (b"NIST_1A\n     -5\n", "header's size"),
        (b"NIST_1A\n9999999\n", "header's size"),
        (b"NIST_1A\n   1024\nsample_count -i 5\n", "no end_head"),
        (
            sphere_bytes(b"", 0).replace(b"sample_count -i 0", b"sample_count -i x"),
            "damaged SPHERE header: 'sample_count",
        ),
        (sphere_bytes(b"", 0, sample_rate=None), "sample_rate is missing"),
        (sphere_bytes(b"", 0, sample_rate=0), "sample_rate is 0"),
        (sphere_bytes(b"", -1), "sample_count is -1"),
        (sphere_bytes(b"", 0, channel_count="two"), "channel_count is 'two'"),
        (sphere_bytes(b"", 0, sample_n_bytes=3), "pcm samples of 3 bytes"),
        (sphere_bytes(b"", 0, sample_coding="ulaw"), "ulaw samples of 2 bytes"),
        (sphere_bytes(b"", 0, sample_coding="adpcm"), "adpcm samples"),
    ],
)
def test_a_damaged_header_is_named(tmp_path, content: bytes, says: str) -> None:
    path = tmp_path / "x.sph"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says) as raised:
        sphere.read_header(path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there(tmp_path) -> None:
    with pytest.raises(DataError, match="No such file"):
        sphere.read_header(tmp_path / "absent.sph")


def test_real_files_as_libsndfile_reads_them(shared_data) -> None:
    paths = [path for path in sorted(shared_data.glob("sphere_samples/**/*.sph")) if "_shn" not in path.name]
    assert len(paths) == 16
    for path in paths:
        expected, sample_rate = soundfile.read(path, always_2d=True, dtype="float32")
        np.testing.assert_array_equal(sphere.read(path), expected)
        assert sphere.read_header(path).sample_rate == sample_rate


def test_mu_law_of_a_real_file_is_its_pcm_twin_within_a_step(shared_data) -> None:
    folder = shared_data / "sphere_samples" / "shorten"
    law, pcm = sphere.read(folder / "123_1ulaw.sph"), sphere.read(folder / "123_1pcbe.sph")
    assert np.abs(law - pcm).max() <= 2**-5 * np.abs(pcm).max() + 2**-12
    for channel in (1, 2):
        twin, _ = soundfile.read(folder / f"123_2ulaw_pcm_ch{channel}.wav", dtype="float32")
        np.testing.assert_allclose(sphere.read(folder / "123_2ulaw.sph")[:, channel - 1], twin, atol=1e-4)


def test_shorten_is_refused_by_name(shared_data) -> None:
    paths = sorted(shared_data.glob("sphere_samples/shorten/*_shn.sph"))
    assert len(paths) == 4
    for path in paths:
        with pytest.raises(DataError, match=r"_shn\.sph.*embedded-shorten-v2\.00.*sph2pipe"):
            sphere.read(path)
