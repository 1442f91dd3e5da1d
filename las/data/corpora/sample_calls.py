"""Small trees of Switchboard and the Hub5 evaluations with synthesised speech, true to their formats.

Two-channel mu-law SPHERE at 8 kHz, transcripts with the markup of Mississippi State, STM with NIST's, and a GLM of our
own. `generated.write` is the way in.
"""

import dataclasses
import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from las.data.corpora import hub5, isip_transcripts
from las.data.synthesis import voices
from las.data.synthesis.espeak import Espeak
from las.data.synthesis.voices import Speaker

RATE = 8000
SNR_DB = (20.0, 40.0)
Encode = Callable[[np.ndarray], bytes]
"""mu-law codes [samples, 2] to the SPHERE file that holds them."""

ISIP_MARKUP = (
    "{word}",
    "{head}[{tail}]- {word}",
    "uh {word} [laughter]",
    "[laughter-{word}]",
    "-[{head}]{tail} {word} them_1",
    "[{word}s/{word}]",
    "{{{word}ish}}",
    "[noise] {word}",
    "<b_aside> {word} <e_aside>",
    "TV {word} [vocalized-noise]",
    "uh-huh {word}",
    "because_1 i've {word}",
)
"""What happens to one word of a sentence, in turn."""

NIST_MARKUP = (
    "{word}",
    "(%HESITATION) {word}",
    "({head}-) {word}",
    "{{ {word} / {word}ISH }}",
    "UH-HUH {word}",
    "I'VE {word}",
    "<B_ASIDE> {word} <E_ASIDE>",
    "(({word}))",
    "T V {word}",
)
ALONE = ("yeah", "[laughter]", "uh-huh", "[noise]", "yeah", "[vocalized-noise] [laughter]")
"""Turns without a sentence, in turn: one text in every few is said again and again, and some are no words."""

GLM = """;; Mapping rules for generated trees: a few rules of every kind that NIST's files have
;;
* name "las_generated.glm"
* desc "mapping rules for generated Hub5 trees"
* format = 'NIST1'
* max_nrules = '50'
* copy_no_hit = 'T'
* case_sensitive = 'F'
;; hesitations
UH => %HESITATION / [ ] __ [ ] ;; optional in the reference
UM => %HESITATION / [ ] __ [ ]
;; answers
UHHUH => %BCACK / [ ] __ [ ]
UH-HUH => %BCACK / [ ] __ [ ]
;; contractions
[I'VE] => [{I'VE / I HAVE}] / [ ] __ [ ]
[ISN'T] => [IS NOT] / [ ] __ [ ]
;; compounds
TEAPOT => TEA POT / [ ] __ [ ]
"""


@dataclasses.dataclass(frozen=True)
class Material:
    """What a tree is made from: where, who speaks, what is said (each speaker and sentence once), how much of it, and
    the encoding of CallHome's files."""

    root: Path
    espeak: Espeak
    cast: Iterator[Speaker]
    sentences: Iterator[str]
    size: int
    seed: int
    callhome: Encode

    def say(self, text: str, speaker: Speaker, name: str) -> np.ndarray:
        """16-bit samples at 16 kHz; `name` decides, with the seed, what is random in them."""
        own_seed = int.from_bytes(hashlib.sha256(f"{self.seed} {name}".encode()).digest()[:8])
        voice = f"{speaker.accent}+{speaker.variant}"
        speech = self.espeak.say(text, voice, speaker.rate, speaker.pitch, speaker.pitch_range, own_seed % 2**31)
        return voices.render(speech, speaker, SNR_DB, np.random.default_rng(own_seed)).pcm


@dataclasses.dataclass(frozen=True)
class Turn:
    """What one side says, as it is `written` in the transcript, and when, in seconds of the call."""

    side: str
    written: str
    start_s: float
    end_s: float


def switchboard(material: Material) -> None:
    """LDC97S62 (`swb1_d1/data/sw02001.sph`) and `swb_ms98_transcriptions`: 4 calls for each of `size`."""
    for number in range(2001, 2001 + 4 * material.size):
        call = f"sw{number}"
        written = list(_turns(material.sentences, ISIP_MARKUP, ALONE, 16, call))
        codes, turns = _recorded(material, call, written, isip_transcripts.normalise)
        write_file(material.root / "swb1_d1" / "data" / f"sw0{number}.sph", sphere(codes))
        folder = material.root / "swb_ms98_transcriptions" / str(number // 100) / str(number)
        for side in "AB":
            text = "".join(_isip_lines(call, side, turns, len(codes) / RATE))
            write_file(folder / f"{call}{side}-ms98-a-trans.text", text.encode("ascii"))


def hub5_00(material: Material) -> None:
    """LDC2002S09 (`hub5e_00`) and LDC2002T43 (`2000_hub5_eng_eval_tr`): a Switchboard and a CallHome call for each of
    `size`."""
    english = material.root / "hub5e_00" / "english"
    names = [name for index in range(material.size) for name in (f"sw_{4390 + 7 * index}", f"en_{4156 + 3 * index}")]
    reference, times = [_STM_HEAD], [";; generated\n"]
    for name in names:
        encode = material.callhome if name.startswith("en_") else sphere
        turns = _test_call(material, name, english, encode, reference)
        times += [f"{name} {turn.side} unknown_speaker {turn.start_s:.2f} {turn.end_s:.2f}\n" for turn in turns]
    folder = material.root / "2000_hub5_eng_eval_tr" / "reference"
    write_file(english / "hub5e_00.pem", "".join(times).encode("ascii"))
    write_file(folder / "hub5e00.english.000405.stm", "".join(reference).encode("ascii"))
    write_file(folder / "en20000405_hub5.glm", GLM.encode("ascii"))


def hub5_01(material: Material) -> None:
    """LDC2002S13 (`hub5e_01`): two calls for each of `size`, with their STM and no GLM."""
    reference = [_STM_HEAD]
    data = material.root / "hub5e_01" / "data"
    for number in range(4653, 4653 + 2 * material.size):
        _test_call(material, f"sw{number}", data / "audio", sphere, reference)
    write_file(data / "transcr" / "hub5e01.english.20010402.stm", "".join(reference).encode("ascii"))


def _test_call(material: Material, name: str, folder: Path, encode: Encode, reference: list[str]) -> list[Turn]:
    """Write the audio of a call of a test, add its lines to the reference, and return its turns."""
    written = list(_turns(material.sentences, NIST_MARKUP, ("UH-HUH", "(%HESITATION)"), 10, name))
    codes, turns = _recorded(material, name, written, hub5.plain)
    write_file(folder / f"{name}.sph", encode(codes))
    reference += _stm_lines(name, turns, len(codes) / RATE)
    return turns


def sphere(codes: np.ndarray) -> bytes:
    """A SPHERE file as those of LDC97S62: header of 1024 bytes, then mu-law codes [samples, channels]."""
    fields = [
        f"channel_count -i {codes.shape[1]}",
        f"sample_count -i {len(codes)}",
        f"sample_rate -i {RATE}",
        "sample_n_bytes -i 1",
        "sample_byte_format -s1 1",
        "sample_coding -s4 ulaw",
        f"sample_checksum -i {int(codes.sum()) % 65536}",
        "end_head",
    ]
    return "\n".join(["NIST_1A", "   1024", *fields, ""]).encode("ascii").ljust(1024) + codes.tobytes()


def mu_law(samples: np.ndarray) -> np.ndarray:
    """The codes (ITU-T G.711) of 16-bit samples, of the same shape."""
    magnitude = np.minimum(np.abs(samples.astype(np.int32)), 32635) + 132
    exponent = np.frexp(magnitude)[1] - 8
    mantissa = (magnitude >> (exponent + 3)) & 15
    return (~((samples < 0) << 7 | exponent << 4 | mantissa) & 0xFF).astype(np.uint8)


def _turns(
    sentences: Iterator[str], markup: tuple[str, ...], alone: tuple[str, ...], count: int, name: str
) -> Iterator[tuple[str, str]]:
    """Side and written text of the turns of a call: sentences with one word marked up, and every fourth stands alone.

    NIST's text is in upper case, that of Mississippi State is not.
    """
    draw = random.Random(name)
    offset = draw.randrange(100)
    for index in range(count):
        place = offset + index
        text = alone[place // 4 % len(alone)]
        if place % 4:
            words = next(sentences).split()
            words = [word.upper() for word in words] if markup is NIST_MARKUP else words
            longest = max(range(len(words)), key=lambda at: len(words[at]))
            parts = {"word": words[longest], "head": words[longest][:2], "tail": words[longest][2:]}
            words[longest] = markup[(place - place // 4) % len(markup)].format(**parts)
            text = " ".join(words)
        yield "AB"[index % 2 if draw.random() < 0.8 else (index + 1) % 2], text


def _recorded(
    material: Material, name: str, written: list[tuple[str, str]], plain: Callable[[str], str]
) -> tuple[np.ndarray, list[Turn]]:
    """The mu-law codes [samples, 2] of a call, and its turns with their times; `plain` is what a text says.

    The sides may overlap, the turns of one side do not; where nothing is said there is noise.
    """
    draw = random.Random(f"times {name}")
    speakers = {"A": next(material.cast), "B": next(material.cast)}
    free = {"A": 0, "B": 0}
    at = RATE
    placed, turns = [], []
    for index, (side, text) in enumerate(written):
        samples = _halved(_sound(material, plain(text), speakers[side], f"{name} {index}"))
        start = max(at + round(RATE * draw.uniform(-0.3, 0.8)), free[side] + RATE // 10)
        start -= start % (RATE // 100)
        samples = samples[: len(samples) // (RATE // 100) * (RATE // 100)]
        at = free[side] = start + len(samples)
        placed.append((side, start, samples))
        turns.append(Turn(side, text, start / RATE, at / RATE))
    length = max(free.values()) + RATE
    call = np.random.default_rng(len(placed)).normal(0, 8, (length, 2))
    for side, start, samples in placed:
        call[start : start + len(samples), "AB".index(side)] += samples
    return mu_law(np.clip(np.round(call), -32768, 32767).astype(np.int16)), turns


def _sound(material: Material, text: str, speaker: Speaker, key: str) -> np.ndarray:
    """Half a second of noise for no text, else speech, in which partial words are said as words."""
    if text:
        return material.say(text.replace("-", " "), speaker, key)
    return np.random.default_rng(len(key)).normal(0, 500, RATE).astype(np.int16)


def _halved(samples: np.ndarray) -> np.ndarray:
    """Band-limited to half the sampling rate: float [samples / 2]."""
    half = len(samples) // 2
    spectrum = np.fft.rfft(samples[: 2 * half])[: half // 2 + 1]
    spectrum[round(0.475 * half) :] = 0
    return np.fft.irfft(spectrum, half) / 2


def _isip_lines(call: str, side: str, turns: list[Turn], end_s: float) -> Iterator[str]:
    """The transcript of one side: its turns and the silences between them, from the beginning of the call to its end.

    Times have six decimals, as those of Mississippi State.
    """
    number, at_s = 0, 0.0
    for turn in [*turns, Turn(side, "", end_s, end_s)]:
        if turn.side == side:
            for text, start_s, stop_s in (("[silence]", at_s, turn.start_s), (turn.written, turn.start_s, turn.end_s)):
                if stop_s > start_s:
                    number += 1
                    yield f"{call}{side}-ms98-a-{number:04d} {start_s:.6f} {stop_s:.6f} {text}\n"
            at_s = turn.end_s


_STM_HEAD = """;; CATEGORY "0" "" ""
;; LABEL "O" "Overall" "Overall"
;; CATEGORY "1" "Sex" ""
;; LABEL "F" "Female" ""
;; LABEL "M" "Male" ""
"""


def _stm_lines(name: str, turns: list[Turn], end_s: float) -> Iterator[str]:
    """The reference of a call, side by side; what comes after the last turn of a side is not scored."""
    for side, sex in (("A", "F"), ("B", "M")):
        own = [turn for turn in turns if turn.side == side]
        after = Turn(side, "IGNORE_TIME_SEGMENT_IN_SCORING", own[-1].end_s if own else 0.0, end_s)
        for turn in [*own, after]:
            times = f"{turn.start_s:.2f} {turn.end_s:.2f}"
            yield f"{name} {side} {name}_{side} {times} <O,en,{sex},en-{sex}> {turn.written}\n"


def write_file(path: Path, content: bytes) -> None:
    """Write a file and the folders it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
