"""eSpeak NG behind its helper process, and its phones as TIMIT labels: reproducible, complete, plausible in sound."""

import importlib.util
import itertools
import os

import numpy as np
import pytest
from refusals import refused

from las.data.synthesis import espeak_phones, sentences, voices
from las.data.synthesis.espeak import Espeak, Phone, Speech
from las.data.synthesis.espeak_phones import ACCENTS, CLOSURES, Label
from las.runtime.errors import ConfigError
from las.scoring import phones

TEXT = "the zebra bought a garage beyond the peach orchard"


def say(espeak: Espeak, text: str = TEXT, voice: str = "en-us+f3", seed: int = 7) -> Speech:
    return espeak.say(text, voice, rate=170, pitch=50, pitch_range=50, seed=seed)


@pytest.fixture(scope="module")
def espeak():
    with Espeak() as running:
        yield running


def test_the_same_request_gives_the_same_bytes_whatever_came_before(espeak: Espeak) -> None:
    first = say(espeak)
    say(espeak, "something else", "en-gb-x-rp+m2", seed=3)
    assert say(espeak) == first
    with Espeak() as another:
        say(another, "nothing of the kind", "en-029+klatt")
        assert say(another) == first
    assert say(espeak, voice="en-us+m3").pcm != first.pcm


def test_an_unknown_voice_is_an_error_and_not_the_voice_before(espeak: Espeak) -> None:
    before = say(espeak)
    refused("voice 'en-gb'", lambda: say(espeak, voice="en-gb"))
    assert say(espeak) == before


def test_a_helper_that_dies_is_an_error() -> None:
    with Espeak() as dying:
        os.kill(dying._process.pid, 9)
        dying._process.wait()
        refused("exit code -9", say, dying)


def test_a_missing_package_and_a_system_without_fork_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        refused("pip install|las-asr[synth]", Espeak)
    monkeypatch.delattr(os, "fork")
    refused("cannot fork", Espeak)


@pytest.fixture(scope="module")
def labelled(espeak: Espeak) -> list[tuple[voices.Rendered, list[Label]]]:
    """104 utterances of all accents, fast and slow."""
    cast = voices.speakers(26, 5, list(ACCENTS), (120, 300), 0.1)
    made = []
    for index, text in enumerate(sentences.sentences(104, 9, 3900, (4, 12))):
        speaker = cast[index % len(cast)]
        speech = espeak.say(text, f"{speaker.accent}+{speaker.variant}", speaker.rate, 50, 50, index)
        rendered = voices.render(speech, speaker, (20.0, 30.0), np.random.default_rng(index))
        parts = (rendered.scale, rendered.offset, rendered.clean, speaker.accent)
        made.append((rendered, espeak_phones.label(speech.phones, *parts)))
    return made


def test_labels_cover_the_audio_without_gap_or_overlap(labelled: list[tuple[voices.Rendered, list[Label]]]) -> None:
    """Every scored phone is among them, and a closure comes before every stop and affricate."""
    releases = 0
    for rendered, labels in labelled:
        assert labels[0].start == 0 and labels[-1].end == len(rendered.pcm)
        assert labels[0].symbol == labels[-1].symbol == "h#"
        assert all(each.start < each.end for each in labels)
        for left, right in itertools.pairwise(labels):
            assert left.end == right.start and CLOSURES.get(right.symbol) == (
                left.symbol if left.symbol in CLOSURES.values() else None
            )
            releases += right.symbol in CLOSURES
    symbols = {each.symbol for _, labels in labelled for each in labels}
    assert releases > 300 and symbols <= set(phones.LABELS)
    assert {phones.fold(symbol, 39) for symbol in symbols} >= set(phones.phone_set(39))


def test_phones_sound_like_their_labels(labelled: list[tuple[voices.Rendered, list[Label]]]) -> None:
    """Mean power, and its share above 3 kHz: what times that are shifted or a wrong table would destroy."""
    power: dict[str, list[float]] = {}
    high: dict[str, list[float]] = {}
    for rendered, labels in labelled:
        clean = rendered.clean / np.sqrt(np.mean(rendered.clean**2))
        for each in labels:
            spectrum = np.abs(np.fft.rfft(clean[each.start : each.end])) ** 2
            frequencies = np.arange(len(spectrum)) * voices.SAMPLE_RATE / (each.end - each.start)
            power.setdefault(each.symbol, []).append(float(np.mean(clean[each.start : each.end] ** 2)))
            high.setdefault(each.symbol, []).append(float(spectrum[frequencies > 3000].sum() / (spectrum.sum() + 1e-9)))
    loud = {symbol: float(np.median(values)) for symbol, values in power.items()}
    hissing = {symbol: float(np.median(values)) for symbol, values in high.items()}
    for vowel in ("aa", "ae", "eh", "iy", "ay", "ow"):
        assert loud[vowel] > 10 * loud["h#"] and loud[vowel] > 3 * loud["f"]
        assert hissing[vowel] < 0.2
    for stop in ("p", "t", "k", "ch"):
        assert loud[CLOSURES[stop]] < loud[stop] / 100
    for stop in ("b", "d", "jh"):
        assert loud[CLOSURES[stop]] < loud[stop] / 2
    assert hissing["s"] > 0.5 and hissing["z"] > hissing["n"] and hissing["sh"] < hissing["s"]


SPEECH_END = Phone("_:", 3000, 0)


def labels_of(*events: Phone, accent: str = "en-us", audio: np.ndarray | None = None) -> list[Label]:
    """Labels of events at their samples, after 100 samples of silence."""
    audio = np.zeros(events[-1].start + 300) if audio is None else audio
    return espeak_phones.label(events, 1.0, 100, audio, accent)


ANSWERS: list[tuple[str, str, str]] = [  # American vowels hold their r once, British ones do not
    ("k:0 'A@:1000 _::3000", "en-us", "h# kcl k aa r h#"),
    ("k:0 'A@:1000 _::3000", "en-gb-x-rp", "h# kcl k aa h#"),
    ("n:0 i@3:1000 r:2000 _::3000", "en-us", "h# n ih r h#"),
    # A phone without time ends the one before it, and silences in pieces are one pause.
    ("'E:0 l:1000 b:1000 _::3000", "en-us", "h#:0 eh:100 l:700 bcl:1100 b h#"),
    ("s:0 _::800 _:900 s:1000 _::2000 _:2000", "en-us", "h#:0 s:100 pau:900 s:1100 h#:2100"),
]


@pytest.mark.parametrize(("events", "accent", "expected"), ANSWERS)
def test_phones_of_espeak_become_labels_of_timit(events: str, accent: str, expected: str) -> None:
    """With their first samples, where these are given."""
    phones = (each.rpartition(":") for each in events.split())
    labels = labels_of(*(Phone(name, int(start), 1) for name, _, start in phones), accent=accent)
    for label, (symbol, _, start) in zip(labels, (each.partition(":") for each in expected.split()), strict=True):
        assert label.symbol == symbol and (not start or label.start == int(start))


def test_the_silence_before_a_stop_is_its_closure() -> None:
    audio = np.sin(np.arange(6000.0))
    audio[:1000] = audio[2000:2800] = audio[5000:] = 0
    events = [Phone("a", 0, 1), Phone("t", 1850, 1), Phone("a", 2500, 1), Phone("_:", 4000, 1)]
    labels = espeak_phones.label(events, 1.0, 1000, audio, "en-us")
    assert [each.symbol for each in labels] == ["h#", "ae", "tcl", "t", "ae", "h#"]
    closure, release = labels[2], labels[3]
    assert closure.start == pytest.approx(2000, abs=espeak_phones.FRAME)
    assert release.start == pytest.approx(2800, abs=espeak_phones.FRAME)
    assert release.end == 3500


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([Phone("q9", 0, 1), SPEECH_END], "'q9'|TIMIT label"),
        ([Phone("s", 0, 1)], "a silence"),
        ([Phone("_:", 0, 1)], "a silence"),
        ([Phone("t", 2999, 1), SPEECH_END], "no length"),
    ],
)
def test_phones_that_cannot_be_labelled_are_an_error(events: list[Phone], says: str) -> None:
    refused(says, labels_of, *events)


def test_speakers_are_distinct_and_balanced() -> None:
    cast = voices.speakers(128, 1, list(ACCENTS), (190, 260), 0.1)
    assert len({speaker.name for speaker in cast}) == 128
    assert len({(speaker.accent, speaker.variant) for speaker in cast}) == 128
    assert sum(speaker.name.startswith("F") for speaker in cast) == 64
    assert {speaker.dialect for speaker in cast} == set(range(1, 9))
    for speaker in cast:
        assert speaker.variant in voices.VARIANTS[speaker.name[0]]
        assert 190 <= speaker.rate <= 260 and 0.9 <= speaker.stretch <= 1.1
    refused("en_us|mean en-us", voices.speakers, 2, 1, ["en_us"], (190, 260), 0.1, kind=ConfigError)


def test_every_voice_exists_and_is_loud_enough(espeak: Espeak) -> None:
    for variant in voices.VARIANTS["F"] + voices.VARIANTS["M"]:
        audio = np.frombuffer(say(espeak, "measure", f"en-us+{variant}").pcm, dtype=np.int16)
        assert np.sqrt(np.mean(np.square(audio / 32768))) > 0.005, variant


def test_rendering_keeps_pitch_and_time_and_adds_the_noise_asked_for() -> None:
    rate, hertz = 22050, 440.0
    tone = (8000 * np.sin(2 * np.pi * hertz * np.arange(2 * rate) / rate)).astype(np.int16)
    speech = Speech(tone.tobytes(), rate, ())
    speaker = voices.Speaker("FABC0", "en-us", "f1", 170, 50, 50, stretch=1.1, tilt_db=0.0)
    rendered = voices.render(speech, speaker, (20.0, 20.0), np.random.default_rng(1))
    assert rendered.scale == pytest.approx(16000 / rate * 1.1, rel=0.02)
    inside = rendered.clean[rendered.offset : rendered.offset + int(rendered.scale * len(tone))]
    peak = np.argmax(np.abs(np.fft.rfft(inside * np.hanning(len(inside))))) * 16000 / len(inside)
    assert peak == pytest.approx(hertz * 16000 / rate / rendered.scale, rel=0.005)
    noise = rendered.pcm / 32767 - rendered.clean
    snr_db = 10 * np.log10(np.mean(inside**2) / np.mean(noise**2))
    assert snr_db == pytest.approx(20, abs=0.5)
    assert np.all(rendered.clean[: rendered.offset] == 0)
