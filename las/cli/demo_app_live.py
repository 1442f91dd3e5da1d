"""Words while somebody speaks, on the page of `las demo_app`, for a model whose listener does not wait."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from las.data.audio import files
from las.decoding.stream import Stream, StreamResult
from las.decoding.transcriber import Transcriber
from las.decoding.transcription import TimedWord
from las.nn.kernels import choice
from las.runtime import progress, templates
from las.runtime.errors import ConfigError, DataError, LasError

TEMPLATE = "transcription.html"
EVERY_S = 0.3
"""Seconds of speech that the browser sends together."""


class Backend:
    """The model behind the page, the kernel it is computed by, and how many seconds a recording may last."""

    def __init__(self, transcriber: Transcriber, kernel: str, max_duration_s: float) -> None:
        self.transcriber, self.kernel, self.idle = transcriber, kernel, threading.Lock()
        self.max_duration_s = max_duration_s

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """Compute with the kernel that was chosen, for one visitor at a time."""
        with self.idle, choice.use_kernel(self.kernel):
            yield

    def require_short(self, path: str, verb: str, seconds: float) -> None:
        """Raise DataError for a recording that lasts, or takes, too long."""
        if seconds > self.max_duration_s:
            limit = f"{progress.duration(self.max_duration_s)} is the limit: max_duration_s=... allows more"
            raise DataError(f"{path}: {verb} {progress.duration(seconds)}, {limit}", kind="too long")


class Speech:
    """What one visitor has said since the microphone was opened."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.final = stream, list[TimedWord]()

    def add(self, result: StreamResult) -> str:
        """Return a paragraph: the final words, and the pending ones, which may change, in another colour."""
        self.final += result.final
        final, pending = (" ".join(word.text for word in each) for each in (self.final, result.pending))
        return templates.macro(TEMPLATE, "words", final=final, pending=pending, seconds=self.stream.heard_s)


class LiveBackend:
    """The functions behind the microphone, with the model and the limits of those behind the button."""

    def __init__(self, recordings: Backend) -> None:
        self.recordings = recordings

    def hear(self, path: str | None, speech: Speech | None) -> tuple[str, Speech | None]:
        """Hear the next piece, a file; returns the paragraph and what was said so far."""
        if path is None:
            return "", speech
        try:
            info, samples = files.read(path)
            if speech is None:
                speech = Speech(Stream(self.recordings.transcriber, sample_rate=info.sample_rate))
            self.recordings.require_short("the speech", "lasts", speech.stream.heard_s)
            with self.recordings.computing():
                return speech.add(speech.stream.feed(samples.T, info.sample_rate)), speech
        except LasError as error:
            return templates.macro(TEMPLATE, "problem", message=str(error).replace(path, Path(path).name)), speech

    def end(self, speech: Speech | None) -> tuple[str, None]:
        """Return the paragraph of all words; what is said next is another speech."""
        if speech is None:
            return "", None
        with self.recordings.computing():
            return speech.add(speech.stream.finish()), None


def can_stream(transcriber: Transcriber) -> bool:
    """Return True for a model and a search that give words before the end."""
    try:
        Stream(transcriber)
    except ConfigError:
        return False
    return True


def page(gradio: Any, backend: LiveBackend, description: str) -> Any:
    """Return the part of the page with a microphone, and the words below it."""
    with gradio.Blocks() as blocks:
        gradio.Markdown(description)
        options = {"type": "filepath", "sources": ["microphone"], "editable": False, "buttons": []}
        audio = gradio.Audio(streaming=True, label="Microphone: words while you speak", **options)
        words, speech = gradio.HTML(), gradio.State(time_to_live=3600)
        limits = {"time_limit": backend.recordings.max_duration_s, "concurrency_limit": 4}
        audio.stream(
            backend.hear, [audio, speech], [words, speech], stream_every=EVERY_S, show_progress="hidden", **limits
        )
        audio.stop_recording(backend.end, speech, [words, speech], show_progress="hidden")
    return blocks
