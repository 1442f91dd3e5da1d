"""Noise, rooms and channels: ratios, times and bands are measured on what comes out."""

import functools
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from refusals import refused

from las.config.build import build, option
from las.data.augmentation.augmentation import Augmentation
from las.data.augmentation.channel import MuLaw, RandomGain, TelephoneBand
from las.data.augmentation.distortion import Talkers, decibels, power
from las.data.augmentation.noise import AdditiveNoise, pink
from las.data.augmentation.room import Reverberation, impulse_response, reverberated
from las.data.loader import BatchSize, Loader, augmentation_seed, sequential
from las.data.manifest import Utterance
from las.data.tokenizers import Characters
from las.runtime.errors import ArgumentError, ConfigError

RATE = 16000


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def speech(seconds: float = 1.0, seed: int = 0) -> np.ndarray:
    """A tone that swells and fades, as words do."""
    times = np.arange(round(seconds * RATE)) / RATE
    return 0.3 * np.sin(2 * np.pi * (180 + 30 * seed) * times) * np.abs(np.sin(2 * np.pi * 1.5 * times))


TALKERS = Talkers(3, lambda index: speech(0.4 + 0.3 * index, index + 1))


def written(folder: Path, name: str, samples: np.ndarray, rate: int = RATE) -> Path:
    folder.mkdir(exist_ok=True)
    soundfile.write(folder / name, samples, rate, subtype="FLOAT")
    return folder


@pytest.mark.parametrize("kind", ["white", "pink", "babble", "files"])
@pytest.mark.parametrize("snr_db", [-5.0, 10.0, 40.0])
def test_the_ratio_of_speech_to_noise_is_the_one_asked_for(kind: str, snr_db: float, tmp_path: Path) -> None:
    folder = written(tmp_path / "noises", "hum.wav", speech(0.3, 9), 8000) if kind == "files" else None
    noise = AdditiveNoise(snr_db=snr_db, kinds=[kind], folder=folder and str(folder))
    clean = speech()
    noisy, drawn = noise(clean, RATE, generator(), TALKERS)
    assert drawn is not None and (drawn["kind"], drawn["snr_db"]) == (kind, snr_db)
    assert decibels(power(clean) / power(noisy - clean)) == pytest.approx(snr_db, abs=1e-9)


def test_ratios_and_kinds_are_drawn_evenly() -> None:
    noise = AdditiveNoise(snr_db=[0.0, 20.0], kinds=["white", "pink", "babble"], share=0.5)
    drawn = [noise(speech(0.01), RATE, generator(seed), TALKERS)[1] for seed in range(600)]
    given = [each for each in drawn if each is not None]
    assert 250 < len(given) < 350
    for kind in noise.kinds:
        assert 60 < sum(each["kind"] == kind for each in given) < 140
    ratios = [each["snr_db"] for each in given]
    assert 0.0 <= min(ratios) < 1.0 and 19.0 < max(ratios) <= 20.0 and 9.0 < np.mean(ratios) < 11.0


def octave_powers(samples: np.ndarray) -> list[float]:
    """Power in the octaves from 125 to 4000 Hz, in dB per Hz."""
    spectrum = np.square(np.abs(np.fft.rfft(samples)))
    frequencies = np.fft.rfftfreq(len(samples), 1 / RATE)
    edges = [125 * 2**octave for octave in range(6)]
    return [decibels(spectrum[(low <= frequencies) & (frequencies < high)].mean()) for low, high in pairwise(edges)]


def test_pink_noise_loses_three_decibels_an_octave_and_white_none() -> None:
    falls = -np.diff(octave_powers(pink(RATE * 8, generator())))
    assert falls == pytest.approx([3.01] * 4, abs=0.5)
    white = AdditiveNoise(snr_db=0.0, kinds=["white"])(speech(8.0), RATE, generator(), TALKERS)[0] - speech(8.0)
    assert np.diff(octave_powers(white)) == pytest.approx([0.0] * 4, abs=0.5)


def test_babble_is_the_sum_of_the_talkers_that_were_drawn() -> None:
    """Each talker hums at a frequency of its own, only these are in the mixture, and none is louder than another."""
    times = np.arange(RATE) / RATE
    tones = Talkers(4, lambda index: (index + 1) * np.sin(2 * np.pi * (500 + 500 * index) * times))
    for seed in range(5):
        noise = AdditiveNoise(snr_db=0.0, kinds=["babble"], talkers=2)
        noisy, drawn = noise(speech(), RATE, generator(seed), tones)
        assert drawn is not None and drawn["talkers"] == 2
        spectrum = np.abs(np.fft.rfft(noisy - speech()))
        (loud,) = np.nonzero(spectrum > 0.01 * spectrum.max())
        assert {*loud.tolist()} <= {500, 1000, 1500, 2000}
        assert spectrum[loud] == pytest.approx([spectrum.max()] * len(loud))
    drawn = AdditiveNoise(kinds=["babble"], talkers=[2, 5])(speech(), RATE, generator(3), tones)[1]
    assert drawn is not None and 2 <= drawn["talkers"] <= 5
    refused("augment.noise|babble", noise, speech(), RATE, generator(), Talkers(0, lambda index: speech()))


def schroeder_rt60(response: np.ndarray) -> float:
    """Reverberation time by the backward integral of the tail, from -5 to -25 dB (ISO 3382's T20)."""
    tail = response[1:]
    decay = 10 * np.log10(np.cumsum(np.square(tail)[::-1])[::-1] / np.square(tail).sum())
    times = np.arange(len(tail)) / RATE
    part = (decay <= -5) & (decay >= -25)
    slope = np.polyfit(times[part], decay[part], 1)[0]
    return float(-60.0 / slope)


@pytest.mark.parametrize("rt60_s", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("drr_db", [-5.0, 10.0])
def test_a_generated_room_has_its_reverberation_time_and_direct_sound(rt60_s: float, drr_db: float) -> None:
    response = impulse_response(rt60_s, drr_db, RATE, generator())
    assert schroeder_rt60(response) == pytest.approx(rt60_s, rel=0.05)
    assert decibels(response[0] ** 2 / np.square(response[1:]).sum()) == pytest.approx(drr_db, abs=1e-9)


def test_reverberated_speech_keeps_its_place_length_and_level() -> None:
    """A response whose direct sound comes late delays nothing; the echo comes where it is to come."""
    response = np.zeros(900)
    response[100], response[600] = 1.0, 0.5
    click = np.zeros(2000)
    click[300] = 1.0
    wet = reverberated(click, response)
    assert len(wet) == 2000 and np.abs(wet).argmax() == 300
    assert wet[800] / wet[300] == pytest.approx(0.5)
    assert power(wet) == pytest.approx(power(click))
    room = Reverberation(rt60_s=0.3, drr_db=[0.0, 5.0])
    out, drawn = room(speech(), RATE, generator(), TALKERS)
    assert drawn is not None and drawn["rt60_s"] == 0.3 and 0.0 <= drawn["drr_db"] <= 5.0
    assert len(out) == len(speech()) and power(out) == pytest.approx(power(speech()))


def test_measured_responses_are_read_from_a_folder_and_resampled(tmp_path: Path) -> None:
    echo = np.zeros(4000)
    echo[0], echo[800] = 1.0, 0.4
    room = Reverberation(folder=str(written(tmp_path / "rooms", "hall.wav", echo, 8000)))
    assert room.check(RATE)[1].endswith("16000 Hz: 1 of 8000 Hz")
    click = np.zeros(4000)
    click[100] = 1.0
    wet, drawn = room(click, RATE, generator(), TALKERS)
    assert drawn == {"file": "hall.wav"}
    assert np.abs(wet).argmax() == 100 and wet[1700] / wet[100] == pytest.approx(0.4, rel=0.02)


@pytest.mark.parametrize(("hertz", "passes"), [(100, 0.0), (200, 0.0), (1000, 1.0), (3000, 1.0), (3600, 0.0)])
def test_a_telephone_passes_its_band(hertz: int, passes: float) -> None:
    tone = np.sin(2 * np.pi * hertz * np.arange(RATE) / RATE)
    out, drawn = TelephoneBand()(tone, RATE, generator(), TALKERS)
    assert len(out) == len(tone) and drawn == {"low_hz": 300.0, "high_hz": 3400.0}
    middle = slice(RATE // 4, 3 * RATE // 4)
    assert out[middle] == pytest.approx(passes * tone[middle], abs=0.01)


def test_level_and_codec() -> None:
    louder, drawn = RandomGain(gain_db=[-6.0, 6.0])(speech(), RATE, generator(), TALKERS)
    assert drawn is not None and -6.0 <= drawn["gain_db"] <= 6.0
    assert decibels(power(louder) / power(speech())) == pytest.approx(drawn["gain_db"])
    tone = 0.5 * np.sin(2 * np.pi * 440.3 * np.arange(RATE) / RATE)
    coded, _ = MuLaw()(tone, RATE, generator(), TALKERS)
    assert len(np.unique(coded)) <= 255
    assert 36.0 < decibels(power(tone) / power(coded - tone)) < 40.0  # G.711: about 38 dB
    quiet, _ = MuLaw()(0.01 * tone, RATE, generator(), TALKERS)
    assert decibels(power(0.01 * tone) / power(quiet - 0.01 * tone)) > 25.0  # what companding is for
    clipped, _ = MuLaw()(4.0 * tone, RATE, generator(), TALKERS)
    assert np.abs(clipped).max() == pytest.approx(1.0)


def test_silence_stays_silence() -> None:
    for distortion in (AdditiveNoise(), Reverberation(), TelephoneBand(), RandomGain(), MuLaw()):
        out, drawn = distortion(np.zeros(100), RATE, generator(), TALKERS)
        assert drawn is None and not out.any()


def test_noises_of_a_folder_are_counted_resampled_and_drawn(tmp_path: Path) -> None:
    folder = written(tmp_path / "noises", "b.wav", speech(2.0, 1))
    written(folder / "inner", "a.wav", speech(0.2, 2), 8000)
    noise = AdditiveNoise(snr_db=5, kinds=["files"], folder=str(folder))
    counted, resampled = noise.check(RATE)
    assert f"2 files, 0.0 min, in {folder}" in counted and resampled.endswith("16000 Hz: 1 of 8000 Hz")
    drawn = [noise(speech(), RATE, generator(seed), TALKERS)[1] for seed in range(20)]
    assert {each["file"] for each in drawn if each} == {"b.wav", "inner/a.wav"}
    starts = [each["start_s"] for each in drawn if each and each["file"] == "b.wav"]
    assert len(set(starts)) == len(starts) > 1 and max(starts) < 1.0
    written(folder, "b.wav", np.zeros(RATE * 2))
    refused("b.wav|digital silence", lambda: [noise(speech(), RATE, generator(seed), TALKERS) for seed in range(20)])


REFUSED = [
    (AdditiveNoise, {"snr_db": [20.0, 5.0]}, "snr_db=[20.0,5.0]|from -30|lower first"),
    (AdditiveNoise, {"snr_db": 1000.0}, "snr_db=1000.0|to 100"),
    (AdditiveNoise, {"snr_db": [1.0, 2.0, 3.0]}, "snr_db|lower first"),
    (AdditiveNoise, {"kinds": ["pnik"]}, "kinds|'pnik'|mean pink"),
    (AdditiveNoise, {"kinds": []}, "kinds|white, pink, babble, files"),
    (AdditiveNoise, {"kinds": ["files"]}, "folder=null"),
    (AdditiveNoise, {"folder": "x"}, "folder=x|kinds=[files]"),
    (AdditiveNoise, {"kinds": ["files"], "folder": "nowhere"}, "folder=nowhere|no such folder"),
    (AdditiveNoise, {"share": 2.0}, "share=2.0|0 to 1"),
    (Reverberation, {"rt60_s": 0.0}, "rt60_s=0.0|0.01 to 10"),
    (Reverberation, {"rt60_s": 0.3, "folder": "x"}, "folder=x|rt60_s"),
    (TelephoneBand, {"low_hz": 4000.0}, "low_hz=4000|high_hz=3400"),
    (MuLaw, {"bits": 1}, "bits=1|2 to 16"),
]


@pytest.mark.parametrize(("distortion", "options", "says"), REFUSED)
def test_nonsense_is_refused_by_name(distortion: type, options: dict[str, object], says: str) -> None:
    refused(says, lambda: distortion(**options), kind=ArgumentError)


def test_an_empty_folder_and_a_rate_that_is_too_low(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    make = functools.partial(AdditiveNoise, kinds=["files"], folder=str(tmp_path))
    refused(f"folder={tmp_path}|no audio|.wav, .flac|ffmpeg", make, kind=ArgumentError)
    refused("high_hz=3400|3000", TelephoneBand().check, 6000, kind=ConfigError)


@pytest.mark.parametrize("name", ["noise", "room", "telephone", "noisy"])
def test_options_build_and_are_a_function_of_the_key(name: str) -> None:
    augment: Augmentation = build(option("augment", name), where="augment")
    assert augment.changes_waveforms and augment.changes_features == (name == "noisy")
    waveform = torch.from_numpy(speech()).float()
    first, draws = augment.waveform_and_draws(waveform, RATE, 7, TALKERS)
    other = build(option("augment", name), where="augment")
    other.waveform(waveform, RATE, 8, TALKERS)
    again, same = other.waveform_and_draws(waveform, RATE, 7, TALKERS)
    assert torch.equal(first, again) and draws == same and first.dtype == torch.float32
    assert name == "telephone" or not torch.equal(first, augment.waveform(waveform, RATE, 8, TALKERS))


def test_a_step_that_is_added_leaves_the_draws_of_the_others_and_a_key_gives_what_it_gave() -> None:
    waveform = torch.from_numpy(speech()).float()
    alone = Augmentation(noise=AdditiveNoise())
    more = Augmentation(noise=AdditiveNoise(), gain=RandomGain(), reverberation=Reverberation())
    for key in range(5):
        one, two = (each.waveform_and_draws(waveform, RATE, key, TALKERS)[1] for each in (alone, more))
        assert list(two) == ["reverberation", "noise", "gain"] and one["noise"] == two["noise"]
    drawn = more.waveform_and_draws(waveform, RATE, 7, TALKERS)[1]
    values = (drawn["reverberation"]["rt60_s"], drawn["noise"]["snr_db"], drawn["gain"]["gain_db"])
    assert values == pytest.approx((0.3720441360327842, 15.913777824997673, 4.156397287995759))


def batches(folder: Path, workers: int, plan: Sequence[list[int]], start: int = 0) -> list[torch.Tensor]:
    """Waveforms of a loader that augments with babble, from batch `start` on."""
    utterances = []
    for index in range(5):
        written(folder, f"{index}.wav", speech(0.2 + 0.05 * index, index))
        audio = str(folder / f"{index}.wav")
        utterances.append(Utterance(f"u{index}", audio, 0, 0.0, 0.2 + 0.05 * index, "a", "s"))
    augment = Augmentation(
        noise=AdditiveNoise(kinds=["babble"]), reverberation=Reverberation(rt60_s=0.1), speeds=[0.9, 1.1]
    )
    loader = Loader(utterances, Characters("a"), RATE, workers, augment=augment)
    plan = plan or sequential(utterances, BatchSize(2))
    key_of = functools.partial(augmentation_seed, 1, 2)
    return [batch.waveforms for _, batch in loader.batches(plan, start, key_of)]


def test_workers_order_and_a_restart_change_nothing(tmp_path: Path) -> None:
    plan = [[0, 1], [2, 3], [4]]
    one, two = batches(tmp_path, 0, plan), batches(tmp_path, 2, plan)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert torch.equal(batches(tmp_path, 0, plan, start=2)[0], one[2])
    assert torch.equal(batches(tmp_path, 0, [[3, 2]])[0][1, : one[1].shape[1]], one[1][0][: one[1].shape[1]])
