"""Recordings of utterances inside HTML pages."""

import base64
import io

import numpy as np
import soundfile

from las.data.audio import files
from las.data.manifest import Utterance
from las.runtime.errors import DataError

LONGEST_S = 15.0
"""Limit of a recording inside a page, in seconds."""


def samples(utterance: Utterance) -> tuple[np.ndarray, int]:
    """Read the samples of an utterance and their rate in Hz. Raises DataError as `las.data.audio.files.read` does."""
    info, read = files.read(utterance.audio)
    start = round(utterance.start_s * info.sample_rate)
    return read[start : start + round(utterance.duration_s * info.sample_rate), utterance.channel], info.sample_rate


def sound(utterance: Utterance) -> str:
    """Return the audio of an utterance as flac in a data URI; empty where it is unreadable or too long for a page."""
    if utterance.duration_s > LONGEST_S:
        return ""
    try:
        read, rate = samples(utterance)
    except DataError:
        return ""
    packed = io.BytesIO()
    soundfile.write(packed, read, rate, format="FLAC")
    return f"data:audio/flac;base64,{base64.b64encode(packed.getvalue()).decode()}"
