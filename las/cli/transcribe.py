"""The verb `transcribe`: recordings of any length in, their text, words with times or captions out."""

import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import Parameter
from pathlib import Path
from typing import NamedTuple

from las.cli import transcribe_stream
from las.config.build import Config, build, check_values, checked, require
from las.data.audio import files, streaming
from las.data.audio.streaming import Segmenter
from las.decoding import captions, tuned_search
from las.decoding.evaluation import Search
from las.decoding.transcriber import Transcriber, load
from las.decoding.transcription import SegmentTranscript, Transcription, find_audio
from las.nn.kernels import choice
from las.runtime import devices, distributed, progress
from las.runtime.errors import ConfigError, DataError, suggest
from las.storage import atomic

STDIN = "-"
SAY_EVERY_S = 30.0


class Recordings(NamedTuple):
    """The files to transcribe; `stdin_path` is the temporary file with the audio from standard input, if any."""

    paths: list[Path]
    stdin_path: Path | None = None

    @property
    def ids(self) -> list[str]:
        """Ids of the transcriptions."""
        return [self.display(str(path)) for path in self.paths]

    def display(self, text: str) -> str:
        """Return a text with `stdin` in place of the temporary file's path."""
        return text if self.stdin_path is None else text.replace(str(self.stdin_path), "stdin")


def transcribe(overrides: list[str]) -> list[Transcription]:
    """Transcribe recordings and write the results: see configs/transcribe.yaml. Returns the transcriptions.

    Recordings that cannot be read are named, and the others are written; then DataError is raised, which names them.
    Started by `torchrun`, the processes share the recordings, and each prints those of its own.
    """
    config = tuned_search.compose("transcribe", overrides)
    check_values(config, {"batch_size": int, "output": str | None, "format": str | None, "strict": bool})
    check_values(config, {"stream": bool, "speed": float | None, "sample_rate": int | None, "channels": int})
    require("batch_size", config["batch_size"], 1)
    for key, least in (("speed", 0.01), ("sample_rate", files.LOWEST_RATE), ("channels", 1), ("pause_s", 0.1)):
        require(key, config[key], least)
    streaming.require_channel(config["channel"])
    if config["stream"]:
        with choice.use_kernel(str(config["kernel"])):
            return [_transcribe_stream(config)]
    with _recordings(config["input"]) as recordings:
        output = output_of(config["output"], config["format"], recordings)
        with choice.use_kernel(str(config["kernel"])):
            return _transcribe(config, recordings, output)


def configured(config: Config, device: str) -> Transcriber:
    """Return the transcriber that the keys `checkpoint`, `ensemble`, `search`, `pieces`, `strict` and
    `precision` describe.
    """
    check_values(config, {"ensemble": Sequence[str] | str, "ensemble_mean": str})
    search: Search = build(config["search"], where="search")
    cutter: Callable[[int], Segmenter] = checked(Segmenter, config["pieces"], "pieces", kinds=[Parameter.KEYWORD_ONLY])
    options = config["strict"], config["precision"], config["ensemble"], config["ensemble_mean"]
    return load(config["checkpoint"], search, device, cutter, *options)


def _transcribe_stream(config: Config) -> Transcription:
    """Transcribe standard input or one file while it comes in."""
    paths = [Path(transcribe_stream.STDIN_NAME)] if config["input"] == STDIN else find_audio(config["input"])
    if len(paths) > 1:
        raise ConfigError(f"stream=true transcribes one recording at a time, and input names {len(paths)}")
    output = output_of(config["output"], config["format"], Recordings(paths))
    transcriber = configured(config, str(devices.pick(config["device"])))
    path = None if config["input"] == STDIN else paths[0]
    transcription = transcribe_stream.transcribe_stream(config, transcriber, path)
    output.take(transcription, paths[0])
    output.finish([transcription])
    return transcription


def _transcribe(config: Config, recordings: Recordings, output: "Output") -> list[Transcription]:
    with distributed.process_group(devices.pick(config["device"])) as device:
        with distributed.only_main_prints(), distributed.main_first():
            transcriber = configured(config, str(device))
        own, bad, decoding = _transcribe_share(transcriber, config, recordings, output)
        transcriptions = _in_order(recordings, own)
        bad = [*itertools.chain.from_iterable(distributed.gather(bad))]
        (decoding.decoded_s,) = distributed.total(decoding.decoded_s)
        with distributed.only_main_prints():
            if distributed.is_main():
                output.finish(transcriptions)
            progress.say(decoding.summary(len(transcriptions)))
        if bad:
            listed = "\n  ".join(bad)
            raise DataError(f"{len(bad)} of {len(recordings.paths)} recordings could not be transcribed:\n  {listed}")
    return transcriptions


def _transcribe_share(
    transcriber: Transcriber, config: Config, recordings: Recordings, output: "Output"
) -> tuple[list[Transcription], list[str], "DecodingProgress"]:
    """Transcribe this process's recordings; returns the transcriptions, and what is wrong with the others."""
    own: list[Transcription] = []
    bad: list[str] = []

    def failed(error: DataError) -> None:
        bad.append(recordings.display(str(error)))
        progress.say(f"left out: {bad[-1]}")

    paths = distributed.share(recordings.paths)
    with DecodingProgress(sum(map(duration_s, paths))) as decoding:
        options = config["channel"], config["batch_size"], failed, decoding.advance, SegmentTranscript.outline
        for transcription in transcriber.transcribe_all(paths, *options):
            own.append(dataclasses.replace(transcription, id=recordings.display(transcription.id)))
            progress.say(f"{own[-1].id}: {transcription.text if output.is_screen else _size(transcription)}")
            output.take(own[-1], Path(transcription.id))
    return own, bad, decoding


def _in_order(recordings: Recordings, own: list[Transcription]) -> list[Transcription]:
    """Return the transcriptions of all processes, in the order of the recordings."""
    if distributed.world_size() == 1:
        return own
    states = itertools.chain.from_iterable(distributed.gather([each.to_state() for each in own]))
    place = {name: number for number, name in enumerate(recordings.ids)}
    return sorted(map(Transcription.from_state, states), key=lambda each: place[each.id])


@contextmanager
def _recordings(names: str | Sequence[str]) -> Iterator[Recordings]:
    """Return the files that names, folders and patterns stand for; `-` is what comes in from standard input."""
    if names == STDIN:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ConfigError("input=-: several processes cannot share standard input: leave torchrun out")
        with streaming.spooled(sys.stdin.buffer) as path:
            yield Recordings([path], path)
        return
    yield Recordings(find_audio(names))


def duration_s(path: Path) -> float:
    """Return the duration in the header in seconds, 0 without one."""
    try:
        return files.info(path).duration_s
    except DataError:
        return 0.0


def _size(transcription: Transcription) -> str:
    """Return the duration, words and pieces of a transcription: `3:20, 451 words, decoded in 12 pieces`."""
    length, pieces = progress.duration(transcription.duration_s), len(transcription.pieces)
    in_pieces = f", decoded in {pieces} pieces" if pieces > 1 else ""
    return f"{length}, {len(transcription.words):,} words{in_pieces}"


class Output:
    """A destination of transcriptions; this one only prints them."""

    is_screen = True

    def take(self, transcription: Transcription, path: Path) -> None:
        """Accept the transcription of the recording at `path`."""

    def finish(self, transcriptions: Sequence[Transcription]) -> None:
        """Write what is still to be written, of the transcriptions of all recordings, and close."""


class OneFile(Output):
    """All transcriptions in one file."""

    is_screen = False

    def __init__(self, path: Path, kind: str, recordings: Recordings) -> None:
        atomic.require_place(path)
        self.path, self.render = path, captions.writer(kind, recordings.ids)

    def finish(self, transcriptions: Sequence[Transcription]) -> None:
        if transcriptions:
            atomic.write(self.path, self.render(transcriptions))
            progress.say(f"written to {self.path}")


class Folder(Output):
    """A file for each recording, written as soon as it is decoded; folders below the common one are kept."""

    is_screen = False

    def __init__(self, folder: Path, kind: str, recordings: Recordings) -> None:
        atomic.require_folder(folder)
        self.folder, self.kind = folder, kind
        self.render = captions.writer(kind, recordings.ids)
        self.common = os.path.commonpath([path.absolute().parent for path in recordings.paths])

    def take(self, transcription: Transcription, path: Path) -> None:
        inside = Path(os.path.relpath(path.absolute(), self.common))
        target = self.folder / inside.parent / f"{inside.name}.{self.kind}"
        atomic.write(target, self.render([transcription]))
        progress.say(f"  {target}")


def output_of(output: str | None, kind: str | None, recordings: Recordings) -> Output:
    """Return the destination of transcriptions.

    A name that ends in a format's suffix is one file for all recordings; any other is a folder with a file for each,
    in the format `kind`. Raises ConfigError for a format that does not exist, a new folder with the name of a file
    (`x.json`), and captions of many in one file.
    """
    if kind is not None and kind not in captions.FORMATS:
        raise ConfigError(f"format={kind} does not exist.{suggest(kind, captions.FORMATS)}")
    if output is None:
        if kind is not None:
            raise ConfigError(f"format={kind} needs output=..., for example output=x.{kind} or output=folder")
        return Output()
    suffix = Path(output).suffix.removeprefix(".")
    if suffix not in captions.FORMATS:
        if suffix.isalpha() and not output.endswith("/") and not Path(output).is_dir():
            raise ConfigError(
                f"output={output}: no format has this suffix.{suggest(suffix, captions.FORMATS)} If it is to be a "
                f"folder, with a file for each recording: output={output}/"
            )
        return Folder(Path(output), kind or "txt", recordings)
    kind = kind or suffix
    if kind in captions.OF_ONE and len(recordings.paths) > 1:
        raise ConfigError(
            f".{kind} holds one recording, but {len(recordings.paths)} were given: set output to a folder"
        )
    return OneFile(Path(output), kind, recordings)


class DecodingProgress(progress.ProgressLine):
    """Progress in seconds of audio, with the real-time factor: a bar on a terminal, else a line every 30 seconds.

    Use it as a context manager; `total_s` is the length of all recordings.
    """

    def __init__(self, total_s: float) -> None:
        super().__init__(max(total_s, 1e-9))
        self.is_live &= distributed.is_main()
        self.total_s, self.decoded_s = total_s, 0.0
        self.started = self.last_printed = time.monotonic()

    def advance(self, seconds: float) -> None:
        """Count more seconds of audio as transcribed."""
        self.decoded_s += seconds
        self.live.update(self.task, completed=self.decoded_s, description=self.line())
        now = time.monotonic()
        if now - self.last_printed >= SAY_EVERY_S and not progress.console.is_terminal:
            self.last_printed = now
            progress.say(self.line())

    @property
    def real_time_factor(self) -> float | None:
        """Seconds of computation for each second of audio; None before the first audio is decoded."""
        elapsed_s = time.monotonic() - self.started
        return elapsed_s / self.decoded_s if self.decoded_s else None

    def line(self) -> str:
        """Return the progress so far: `3:20 of 1:00:00 decoded, real-time factor 0.041`."""
        duration = f"{progress.duration(self.decoded_s)} of {progress.duration(self.total_s)} decoded"
        factor = self.real_time_factor
        return duration if factor is None else f"{duration}, real-time factor {factor:.3f}"

    def summary(self, num_recordings: int) -> str:
        """Return the last line: recordings, duration and speed."""
        elapsed_s = time.monotonic() - self.started
        plural = "" if num_recordings == 1 else "s"
        text = f"{num_recordings} recording{plural}, {self.decoded_s:.1f} s of audio in {elapsed_s:.1f} s"
        if (factor := self.real_time_factor) is None:
            return text
        return f"{text}: real-time factor {factor:.3f}, {1 / factor:.0f} times real time"
