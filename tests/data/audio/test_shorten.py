"""Every command and predictor of shorten decodes to what was encoded; damage ends in an error, soon."""

import hashlib
import time

import numpy as np
import pytest
import shorten_encoder as encoder
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from las.data.audio import shorten

KINDS = {"ulaw": np.uint8, "pcm8": np.int8, "pcm16": np.int16}


def speech(kind: str, num_samples: int = 700, channels: int = 1, seed: int = 0) -> np.ndarray:
    """Something that predictors can predict, with a mean of its own."""
    generator = np.random.default_rng(seed)
    dtype = KINDS[kind]
    largest = np.iinfo(dtype).max
    slow = np.cumsum(generator.normal(0, 0.06, (num_samples, channels)), axis=0)
    wave = 0.3 * np.sin(slow * 3) + 0.05 * generator.normal(size=slow.shape) + 0.2
    if kind == "ulaw":
        wave = (wave + 1) / 2
    return np.clip(wave * largest, np.iinfo(dtype).min, largest).astype(dtype)


def same(samples: np.ndarray, **encoding: object) -> None:
    kind = {np.dtype(dtype): kind for kind, dtype in KINDS.items()}[samples.dtype]
    decoded = shorten.decode(encoder.encode(samples, **encoding), len(samples), samples.shape[1], kind)
    assert decoded.dtype == samples.dtype
    np.testing.assert_array_equal(decoded, samples)


def stream(*numbers: int, version: int = 2, codes: tuple[tuple[int, int], ...] = (), signed: object = ()) -> bytes:
    """A stream of the header's numbers, codes with their numbers of low bits, and signed numbers (values, low bits)."""
    bits = encoder.Bits()
    for number in numbers:
        bits.number(number)
    for value, low_bits in codes:
        bits.code(value, low_bits)
    for values, low_bits in signed:
        bits.signed(np.array(values, np.int64), low_bits)
    return b"ajkg" + bytes([version]) + bits.packed()


@pytest.mark.parametrize("kind", ["pcm8", "pcm16"])
def test_low_bits_that_are_never_used_are_shifted_away(kind: str) -> None:
    samples = speech(kind, 1024, 2)
    for block, shift in enumerate((0, 3, 1, 5)):
        samples[block * 256 : block * 256 + 256] = samples[block * 256 : block * 256 + 256] >> shift << shift
    for predictor in (encoder.DIFF0, encoder.QLPC):  # means are of numbers without these bits
        same(samples, predictors=[predictor], order=2)


def test_mu_law_codes_are_those_of_robinsons_tables() -> None:
    """The hashes of the published 13 x 256 table, and of it with -1 for the negative zero."""
    hashes = [hashlib.sha256(shorten._law_codes(signed).tobytes()).hexdigest() for signed in (False, True)]
    assert hashes == [
        "0413ef215c96ab0ff04cce21b32171f481b027f4e2515f3c28743170654d4ff8",
        "d3fcfc693bf36a32e5a833de11faaf9de1972659436cc206308e881be65ef5e8",
    ]


def test_blocks_that_reach_past_the_window_of_the_reader() -> None:
    samples = np.random.default_rng(0).integers(-32768, 32768, (150_000, 1)).astype(np.int16)
    assert len(encoder.encode(samples[:, :1], block=65535)) > shorten._WINDOW_BYTES
    same(samples, block=65535, predictors=[encoder.DIFF0])


@given(
    st.sampled_from(list(KINDS)).flatmap(
        lambda kind: st.tuples(
            st.just(kind),
            st.lists(st.integers(int(np.iinfo(KINDS[kind]).min), int(np.iinfo(KINDS[kind]).max)), max_size=60),
        )
    ),
    st.integers(1, 3),
    st.integers(1, 40),
    st.sets(st.sampled_from([0, 1, 2, 3, 7]), min_size=1),
    st.integers(0, 6),
    st.integers(0, 5),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.integers(0, 12),
)
def test_any_samples_come_back(
    drawn: tuple[str, list[int]],
    channels: int,
    block: int,
    predictors: set[int],
    order: int,
    num_means: int,
    version: int,
    signed_zero: bool,
    shift: int,
) -> None:
    """Also those whose low bits, up to `shift`, are never used."""
    kind, values = drawn
    samples = np.array(values[: len(values) // channels * channels], KINDS[kind]).reshape(-1, channels)
    if kind == "ulaw":
        codes = np.array([code for code in range(256) if encoder.LAW_SHIFTS[code] >= shift], np.uint8)
        samples = codes[samples.astype(int) % len(codes)]
    else:
        samples = samples >> shift % 8 << shift % 8
    same(
        samples,
        block=block,
        predictors=sorted(predictors),
        order=order,
        num_means=num_means,
        version=version,
        signed_zero=signed_zero,
    )


def test_a_lossy_stream_that_overshoots_is_clipped_and_mu_law_codes_are_bytes() -> None:
    values = [32768, -32769, 32767, -32768]
    lossy = stream(5, 1, 4, 0, 0, 0, codes=((encoder.DIFF0, 2), (16, 3)), signed=((values, 16),))
    assert shorten.decode(lossy, 4, 1, "pcm16")[:, 0].tolist() == [32767, -32768, 32767, -32768]
    law = stream(8, 1, 1, 0, 0, 0, codes=((encoder.DIFF0, 2), (8, 3)), signed=(([128], 8),))
    refused("mu-law codes", shorten.decode, law, 1, 1, "ulaw", kind=shorten.Damaged)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_cut_anywhere_says_what_was_promised_and_found(kind: str) -> None:
    samples = speech(kind, 700, 2)
    stream = encoder.encode(samples).rstrip(b"\0")
    found = set()
    for length in range(5, len(stream) - 2, 7):
        with pytest.raises(shorten.Damaged, match=r"promises 700 samples, \d+ could be decoded") as raised:
            shorten.decode(stream[:length], 700, 2, kind)
        found.add(int(str(raised.value).split()[3]))
    assert found == {0, 256, 512}


def commands(*codes: tuple[int, int]) -> bytes:
    return stream(5, 1, 256, 2, 0, 0, codes=codes)


LARGE = (([64], 5), ([1] * 60000, 1))
GROWING = stream(5, 1, 60000, 1, 0, 0, codes=((encoder.QLPC, 2), (1, 3), (1, 2)), signed=LARGE)
DAMAGE = [
    (b"", "shorten mark"),
    (b"ajkg", "shorten mark"),
    (b"RIFF" + bytes(50), "shorten mark"),
    (b"ajkg\2", "middle of a code"),
    (b"ajkg\2" + bytes(1000), "middle of a code"),
    (b"ajkg\2" + bytes(shorten._WINDOW_BYTES * 3), "middle of a code"),
    (stream(5, 1, 256, 0, 4, 0, version=0), "version 0"),
    (stream(5, 1, 256, 0, 4, 0, version=3), "version 3"),
    (stream(2, 1, 256, 0, 4, 0), "type 2"),
    (stream(7, 1, 256, 0, 4, 0), "type 7"),
    (stream(9, 1, 256, 0, 4, 0), "type 9"),
    (stream(1 << 20, 1, 256, 0, 4, 0), "sample type|15"),
    (stream(5, 2, 256, 0, 4, 0), "2 channels|1 of pcm16"),
    (stream(8, 1, 256, 0, 4, 0), "1 channels of ulaw|1 of pcm16"),
    (stream(5, 1, 1 << 40, 0, 4, 0), "block is larger"),
    (stream(5, 1, 256, 65, 4, 0), "order of the predictors"),
    (stream(5, 1, 256, 0, 1 << 30, 0), "number of means"),
    (stream(5, 1, 256, 0, 0, 1 << 30), "bytes to skip"),
    (commands((9, 2)), "command 9"),
    (commands((4, 2)), "stream ends there"),
    (commands((5, 2), (0, 2), (0, 0), (8, 2)), "block of 0"),
    (commands((1, 2), (33, 3)), "33 bits"),
    (commands((7, 2), (1, 3), (3, 2)), "order 3|at most 2"),
    (commands((6, 2), (33, 2), (8, 2)), "shifted by 33"),
    (GROWING, "without bound"),
]


@pytest.mark.parametrize(("stream", "reason"), DAMAGE)
def test_damage_is_named(stream: bytes, reason: str) -> None:
    refused(f"10 samples, 0|{reason}", shorten.decode, stream, 10, 1, "pcm16", kind=shorten.Damaged)


@given(st.integers(0, 2**32), st.sampled_from(list(KINDS)))
def test_garbage_inside_ends_in_samples_or_in_an_error(seed: int, kind: str) -> None:
    generator = np.random.default_rng(seed)
    stream = bytearray(encoder.encode(speech(kind, 600, 2), predictors=[0, 1, 2, 3, 7], order=4))
    for place in generator.integers(5, len(stream), generator.integers(1, 30)):
        stream[place] = generator.integers(256)
    try:
        assert shorten.decode(bytes(stream), 600, 2, kind).shape == (600, 2)
    except shorten.Damaged as error:
        assert "promises 600 samples" in str(error)


def test_a_stream_of_nothing_but_noise_is_given_up_quickly() -> None:
    started = time.monotonic()
    for seed in range(20):
        noise = stream(5, 1, 65535, 64, 1024, 0) + np.random.default_rng(seed).bytes(200_000)
        refused("could be decoded", shorten.decode, noise, 1 << 28, 1, "pcm16", kind=shorten.Damaged)
    assert time.monotonic() - started < 20
