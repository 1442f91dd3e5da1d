"""What the page of `las demo_app` does with a recording, and the one that it offers to try."""

import copy
import time
from pathlib import Path
from typing import NamedTuple

import torch

from las import manifest, progress, recurrent
from las import transcribe as recogniser
from las.errors import DataError, LasError
from las.reports import examples, transcription
from las.search import Beam
from las.transcribe import Transcriber


class Shown(NamedTuple):
    """What the page shows of a recording: its text, and pieces of HTML."""

    text: str
    status: str
    attention: str = ""
    tokens: str = ""


class Ear:
    """What happens when the button is pressed."""

    def __init__(self, transcriber: Transcriber, kernel: str) -> None:
        self.transcriber, self.kernel = transcriber, kernel
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
                heard = transcriber.transcribe(path)
        except LasError as error:
            return Shown("", transcription.problem(str(error).replace(path, Path(path).name)))
        status = transcription.numbers(heard, time.monotonic() - started)
        return Shown(heard.text, status, transcription.attention(heard), transcription.tokens(heard))


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
