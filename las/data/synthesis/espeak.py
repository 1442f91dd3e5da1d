"""eSpeak NG in a helper process: text in, audio with phone events out, the same bytes on every call.

eSpeak NG (https://github.com/espeak-ng/espeak-ng, GPL-3.0-or-later) keeps state from one utterance to the next, is not
thread-safe, and does not forget that state when it is initialised again. So the helper, started as
`python -m las.data.synthesis.espeak`, initialises it once and forks a child for every utterance: each starts from the
same state. The library is found through the optional package `espeakng-loader`, which only the helper imports.

Protocol: one JSON line per request on standard input; for each, one JSON line and `num_bytes` of 16-bit PCM in native
byte order on standard output. The first line is the greeting.
"""

import contextlib
import ctypes
import dataclasses
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from typing import Any, ClassVar

from las.runtime.errors import DataError

# speak_lib.h of eSpeak NG 1.52
AUDIO_OUTPUT_SYNCHRONOUS, INITIALIZE_PHONEME_EVENTS, INITIALIZE_DONT_EXIT = 2, 0x0001, 0x8000
POSITION_CHARACTER, CHARS_UTF8 = 1, 1
RATE, PITCH, RANGE = 1, 3, 4
EVENT_END_OF_LIST, EVENT_PHONEME = 0, 7


@dataclasses.dataclass(frozen=True)
class Phone:
    """Phone event: eSpeak's mnemonic, first sample, and position in the text (from 1) of its word."""

    mnemonic: str
    start: int
    text_position: int


@dataclasses.dataclass(frozen=True)
class Speech:
    """Synthesised speech: 16-bit samples in native byte order, and phone events in order of time."""

    pcm: bytes
    sample_rate: int
    phones: tuple[Phone, ...]


class Espeak:
    """Context manager for a helper process, for one thread.

    Raises DataError when the package is missing or the helper cannot start.
    """

    def __init__(self) -> None:
        if importlib.util.find_spec("espeakng_loader") is None:
            raise DataError("the synthetic corpora need eSpeak NG, which is missing: pip install 'las-asr[synth]'")
        if not hasattr(os, "fork"):
            raise DataError("the synthetic corpora are made on Linux or macOS: this system cannot fork processes")
        command = [sys.executable, "-m", "las.data.synthesis.espeak"]
        # A new session: Ctrl-C would otherwise reach the helper too, but the parent decides when it ends.
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        greeting = self._read_line()
        self.version: str = greeting["version"]
        self.sample_rate: int = greeting["sample_rate"]

    def __enter__(self) -> "Espeak":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def _read_line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise DataError(f"eSpeak NG's helper process ended with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise DataError(answer["error"])
        return answer

    def say(self, text: str, voice: str, rate: int, pitch: int, pitch_range: int, seed: int) -> Speech:
        """Synthesise `text` (words between single spaces): the same arguments always give the same bytes.

        voice: language, `+`, variant, as in `en-us+f3`. rate: words per minute, 80 to 450. pitch, pitch_range: 0 to 99.
        Raises DataError for an unknown voice and when eSpeak fails.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"text": text, "voice": voice, "rate": rate, "pitch": pitch, "range": pitch_range, "seed": seed}
        with contextlib.suppress(BrokenPipeError):  # the missing answer of a dead helper is reported below
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        answer = self._read_line()
        pcm = self._process.stdout.read(answer["num_bytes"])
        if len(pcm) != answer["num_bytes"]:
            raise DataError(f"eSpeak NG's helper process ended in the middle of '{text}'")
        phones = tuple(Phone(*event) for event in answer["phones"])
        return Speech(pcm, self.sample_rate, phones)


class _Event(ctypes.Structure):
    _fields_: ClassVar = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_uint8 * 8),  # of a phone: its name, not always ended by a zero
    ]


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


def _synthesise(library: ctypes.CDLL, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    # in the forked child; eSpeak keeps the old voice when it does not know the new one, so its answer must be read
    if library.espeak_SetVoiceByName(request["voice"].encode()) != 0:
        return {"error": f"eSpeak NG has no voice '{request['voice']}'"}, b""
    for parameter, value in ((RATE, request["rate"]), (PITCH, request["pitch"]), (RANGE, request["range"])):
        library.espeak_SetParameter(parameter, value, 0)
    library.espeak_ng_SetRandSeed(ctypes.c_long(request["seed"]))
    pcm: list[bytes] = []
    phones: list[tuple[str, int, int]] = []

    def collect(audio: Any, num_samples: int, events: Any) -> int:
        """Store samples and phone events."""
        if audio and num_samples > 0:
            pcm.append(ctypes.string_at(audio, 2 * num_samples))
        index = 0
        while events[index].type != EVENT_END_OF_LIST:
            event = events[index]
            if event.type == EVENT_PHONEME:
                mnemonic = bytes(event.id).split(b"\0")[0].decode("latin-1")
                phones.append((mnemonic, event.sample, event.text_position))
            index += 1
        return 0

    callback = _CALLBACK(collect)
    library.espeak_SetSynthCallback(callback)
    text = request["text"].encode() + b"\0"
    code = library.espeak_Synth(text, len(text), 0, POSITION_CHARACTER, 0, CHARS_UTF8, None, None)
    library.espeak_Synchronize()
    audio = b"".join(pcm)
    if code != 0 or not audio or not phones:
        return {"error": f"eSpeak NG made no speech of '{request['text']}' (code {code})"}, b""
    return {"phones": phones, "num_bytes": len(audio)}, audio


def _answer(header: dict[str, Any], audio: bytes = b"") -> None:
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n" + audio)
    sys.stdout.buffer.flush()


def _serve() -> None:
    loader = importlib.import_module("espeakng_loader")
    library = ctypes.CDLL(loader.get_library_path())
    library.espeak_Info.restype = ctypes.c_char_p
    options = INITIALIZE_PHONEME_EVENTS | INITIALIZE_DONT_EXIT
    sample_rate = library.espeak_Initialize(AUDIO_OUTPUT_SYNCHRONOUS, 0, loader.get_data_path().encode(), options)
    if sample_rate <= 0:
        _answer({"error": f"eSpeak NG could not start with the data in {loader.get_data_path()}"})
        return
    _answer({"version": library.espeak_Info(None).decode().split()[0], "sample_rate": sample_rate})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _answer(*_synthesise(library, request))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            _answer({"error": f"eSpeak NG failed on '{request['text']}' with voice '{request['voice']}'"})


if __name__ == "__main__":
    _serve()
