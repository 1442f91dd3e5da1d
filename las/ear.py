"""What the page of `las demo_app` does with a recording, and the one that it offers to try."""

import copy
import time
from pathlib import Path
from typing import NamedTuple

import torch

from las import audio, manifest, progress, recurrent
from las import transcribe as recogniser
from las.errors import DataError, LasError
from las.reports import examples, transcription
from las.search import Beam
from las.transcribe import Transcriber
from las.transcription import Transcription


class Shown(NamedTuple):
    """What the page shows of a recording: its text, and pieces of HTML."""

    text: str
    status: str
    attention: str = ""
    tokens: str = ""


class Ear:
    """What happens when the button is pressed; longer recordings than `max_duration_s` are not heard."""

    def __init__(self, transcriber: Transcriber, kernel: str, max_duration_s: float = 3600.0) -> None:
        self.transcriber, self.kernel, self.max_duration_s = transcriber, kernel, max_duration_s
        with recurrent.using(kernel):  # compiles what is not yet compiled, so that the first person need not wait
            transcriber.hear([torch.zeros(transcriber.sample_rate)], [0.0])

    def __call__(self, path: str | None, size: int, length_normalisation: float) -> Shown:
        """Hear a file with a beam of this size; what goes wrong is said in words, with the file's own name."""
        if path is None:
            return Shown("", transcription.problem("Record something first, or choose a file."))
        transcriber = copy.copy(self.transcriber)
        if isinstance(transcriber.search, Beam):
            transcriber.search = transcriber.search.reweighted({}, length_normalisation)
            transcriber.search.size, transcriber.search.nbest = size, 1
        started = time.monotonic()
        try:
            with recurrent.using(self.kernel):
                self.require_short(path, audio.info(path).duration_s)
                heard = self.hear(transcriber, path)
        except LasError as error:
            return Shown("", transcription.problem(str(error).replace(path, Path(path).name)))
        status = transcription.numbers(heard, time.monotonic() - started)
        return Shown(heard.text, status, transcription.attention(heard), transcription.tokens(heard))

    def hear(self, transcriber: Transcriber, path: str) -> Transcription:
        """What is heard in a file. It is measured while it is heard: some headers promise less than there is."""
        heard_s = 0.0

        def heard(seconds: float) -> None:
            nonlocal heard_s
            heard_s += seconds
            self.require_short(path, heard_s)

        (found,) = transcriber.transcribe_all([path], heard=heard)
        return found

    def require_short(self, path: str, seconds: float) -> None:
        """Raise DataError for a recording that is too long."""
        if seconds > self.max_duration_s:
            longest = f"a recording may have {progress.duration(self.max_duration_s)}: max_duration_s=... allows more"
            raise DataError(f"{path}: lasts {progress.duration(seconds)}, {longest}", kind="too long")


class Example(NamedTuple):
    """A recording to try, and what was said in it."""

    path: str
    text: str


def example_of(transcriber: Transcriber, given: str | None, folder: Path) -> Example | None:
    """The recording given, or else one of the test split, as a wav in `folder`, if the corpus is still there."""
    if given is not None:
        (path,) = recogniser.find_audio(given)[:1]
        return Example(str(path), path.name)
    config = transcriber.config
    if "corpus" not in config:  # an exported bundle
        return None
    manifests = sorted((Path(config["data_dir"]) / "manifests").glob(f"{config['corpus']['name']}-*/test*.jsonl"))
    try:
        utterance = examples.fitting(manifest.read(manifests[-1]))
        path = folder / f"{utterance.id}.wav"
        path.write_bytes(examples.wav(utterance, transcriber.sample_rate))
    except (IndexError, DataError) as error:
        progress.say(f"no example on the page, which example=x.wav gives: the corpus is not here ({error})")
        return None
    return Example(str(path), utterance.text)
