"""`las transcribe stream=true`: words while the audio comes in, from standard input or from a file."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from rich.live import Live
from rich.text import Text
from torch import Tensor

from las.config.build import Config
from las.data.audio import files, streaming
from las.decoding import captions
from las.decoding.stream import Stream, StreamResult
from las.decoding.transcriber import Transcriber
from las.decoding.transcription import NOTHING, SegmentTranscript, TimedWord, Transcription
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError

STDIN_NAME = "stdin"
BLOCK_S = 0.1
"""Seconds of audio that are heard together."""
HOW = "ffmpeg -i IN -f s16le -ac 1 -ar 16000 - | las transcribe input=- stream=true sample_rate=16000"
SAMPLE = np.dtype("<i2")
PCM, EXTENSIBLE = 1, 0xFFFE
"""Codes of a wav header: samples as they are, and a longer header in which the code comes later."""
OTHERS = {
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"ID3": "mp3",
    b"NIST": "SPHERE",
    b".snd": "au",
    b"FORM": "aiff",
    b"caff": "caf",
}
"""Files that begin so cannot be raw samples."""


class Source(NamedTuple):
    """Audio that comes in: its name, the sample rate in Hz, and pieces [samples] or [channels, samples]."""

    name: str
    sample_rate: int
    pieces: Iterator[np.ndarray | Tensor]


def transcribe_stream(config: Config, transcriber: Transcriber, path: Path | None) -> Transcription:
    """Transcribe standard input (no path) or a file while it comes in, and print the words as they become final.

    On a terminal the pending words stand below the final ones; elsewhere there are only lines of final words. Ctrl-C
    ends standard input: what was heard by then is the transcription.
    """
    source = from_stdin(config, transcriber) if path is None else from_file(config, transcriber, path)
    stream = Stream(transcriber, sample_rate=source.sample_rate, pause_s=config["pause_s"])
    words: list[TimedWord] = []
    with Lines() as lines:

        def show(result: StreamResult) -> None:
            words.extend(result.final)
            lines.show(result)

        with contextlib.suppress(*([KeyboardInterrupt] if path is None else [])):
            for piece in source.pieces:
                show(stream.feed(piece))
        show(stream.finish())
    score = sum(math.log(max(token.confidence, 1e-30)) for word in words for token in word.tokens)
    pieces = (SegmentTranscript((), (), score, "eos", NOTHING),) if words else ()
    state_ms = transcriber.model.state_ms
    return Transcription(source.name, stream.heard_s, tuple(words), pieces, state_ms, config["channel"])


class Lines:
    """Words on the screen: a line for each phrase when it is complete, and below it on a terminal what is pending."""

    def __init__(self) -> None:
        self.words: list[TimedWord] = []
        self.live = Live(console=progress.console, auto_refresh=False, transient=True)

    def __enter__(self) -> "Lines":
        if progress.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if progress.console.is_terminal:
            self.live.stop()

    def show(self, result: StreamResult) -> None:
        """Print the lines that are complete: those before others, and all of them in a pause."""
        self.words += result.final
        cues = list(captions.cues(self.words))
        complete = cues if not result.pending else cues[:-1]
        self.words = [word for cue in cues[len(complete) :] for word in cue]
        for cue in complete:
            progress.say(" ".join(word.text for word in cue))
        if progress.console.is_terminal:
            self.live.update(Text(StreamResult(tuple(self.words), result.pending).text), refresh=True)


def from_file(config: Config, transcriber: Transcriber, path: Path) -> Source:
    """Return a file as a source, with `speed` at this many times the speed at which it is spoken."""
    _, blocks = streaming.open_blocks(path, transcriber.sample_rate, config["channel"], BLOCK_S)
    return Source(str(path), transcriber.sample_rate, paced(blocks, transcriber.sample_rate, config["speed"]))


def paced(blocks: Iterator[Tensor], sample_rate: int, speed: float | None) -> Iterator[Tensor]:
    """Yield each block when its last sample was spoken; at once without a speed."""
    started, spoken_s = time.monotonic(), 0.0
    for block in blocks:
        spoken_s += len(block) / sample_rate
        if speed is not None:
            time.sleep(max(started + spoken_s / speed - time.monotonic(), 0.0))
        yield block


def from_stdin(config: Config, transcriber: Transcriber) -> Source:
    """Return standard input as a source: a wav of 16 bits, or raw samples of 16 bits, the channels one after another.

    Raises ConfigError for a terminal and several processes, DataError for audio of another kind.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("input=-: several processes cannot share standard input: leave torchrun out")
    if getattr(sys.stdin, "isatty", lambda: False)():
        raise ConfigError(f"input=-: standard input is the keyboard, and there is no audio in it: {HOW}")
    stdin: BinaryIO = sys.stdin.buffer
    begin = stdin.read(4)
    for magic, kind in OTHERS.items():
        if begin.startswith(magic):
            raise DataError(f"stdin: a {kind} file; a stream is a wav of 16 bits, or raw samples: {HOW}")
    sample_rate, channels = config["sample_rate"] or transcriber.sample_rate, config["channels"]
    if begin == b"RIFF":
        sample_rate, channels = wav_header(stdin)
        begin = b""
    if isinstance(config["channel"], int):
        files.require_channel("stdin", config["channel"], channels)
    return Source(STDIN_NAME, sample_rate, _pieces(stdin, begin, sample_rate, channels, config["channel"]))


def _pieces(
    stdin: BinaryIO, begin: bytes, sample_rate: int, channels: int, channel: streaming.Channel
) -> Iterator[np.ndarray]:
    """Yield the samples [channels, samples] that have come, up to BLOCK_S of them at a time."""
    row = channels * SAMPLE.itemsize
    read: Callable[[int], bytes] = getattr(stdin, "read1", stdin.read)  # what is there, without waiting for more
    rest, size = begin, max(round(BLOCK_S * sample_rate), 1) * row
    while content := read(size):
        rest += content
        whole = len(rest) // row * row
        samples = np.frombuffer(rest[:whole], SAMPLE).astype(np.int16).reshape(-1, channels).T
        rest = rest[whole:]
        if whole:
            yield samples[channel] if isinstance(channel, int) else samples
    if rest:
        progress.say(f"stdin: the last {len(rest)} bytes are no whole sample of {row} bytes: left out")


def wav_header(stdin: BinaryIO) -> tuple[int, int]:
    """Read the rest of a wav header, up to its samples; returns the sample rate in Hz and the number of channels.

    Raises DataError for other than 16-bit samples, and a header without an end.
    """
    stdin.read(8)
    form: tuple[int, int, int, int] | None = None
    while len(head := stdin.read(8)) == 8:
        name, size = head[:4], int.from_bytes(head[4:], "little")
        if name == b"data" and form is not None:
            code, channels, sample_rate, bits = form
            if (code, bits) != (PCM, 8 * SAMPLE.itemsize) or not channels or not sample_rate:
                raise DataError(f"stdin: a wav of {bits} bits (code {code}), and a stream has 16 bits: {HOW}")
            return sample_rate, channels
        content = stdin.read(min(size + size % 2, 1 << 20))
        if name == b"fmt " and len(content) >= 16:
            number = [int.from_bytes(content[at : at + 2], "little") for at in (0, 2, 14)]
            if number[0] == EXTENSIBLE and len(content) >= 26:
                number[0] = int.from_bytes(content[24:26], "little")
            form = number[0], number[1], int.from_bytes(content[4:8], "little"), number[2]
    raise DataError("stdin: a wav header that ends before its samples")
