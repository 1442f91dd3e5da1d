"""Parts of the page of `demo_app`: a recording to try; status, attention and tokens of a transcription."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from las.data import manifest
from las.decoding.transcriber import Transcriber
from las.decoding.transcription import SegmentTranscript, Transcription, find_audio
from las.reproduction import charts, excerpts
from las.runtime import progress, templates
from las.runtime.errors import DataError
from las.training import plots

TEMPLATE = "transcription.html"
ENDS = {
    "max_length": "cut off at the length limit of the search",
    "dead_end": "given up: the search found no way to go on",
}
STYLE = templates.render("transcription.css")
"""Colours are those of the page around the parts."""


class Parts(NamedTuple):
    """The text of a recording, and three parts of HTML."""

    text: str
    status: str
    attention: str = ""
    tokens: str = ""


def parts(transcription: Transcription, seconds: float) -> Parts:
    """All parts for a recording that was transcribed in `seconds`."""
    return Parts(transcription.text, status(transcription, seconds), attention(transcription), tokens(transcription))


def problem(message: str) -> Parts:
    """A paragraph that says why a recording has no transcription."""
    return Parts("", templates.macro(TEMPLATE, "problem", message=message))


def status(transcription: Transcription, seconds: float) -> str:
    """A paragraph: the recording's duration, the real-time factor after `seconds` of work, and how the search ended."""
    duration_s = transcription.duration_s
    sentences = [f"{duration_s:.2f} s of audio in {seconds:.2f} s: real-time factor {seconds / duration_s:.3f}"]
    if not transcription.pieces:
        sentences.append("it is silence: nothing was heard in it")
    else:
        pieces, ending = len(transcription.pieces), transcription.finished_by
        sentences.append(f"log-probability {transcription.score:.2f}")
        sentences += [f"heard in {pieces} pieces"] if pieces > 1 else []
        sentences += [ENDS[ending]] if ending in ENDS else []
    return templates.macro(TEMPLATE, "status", sentences=sentences)


def tokens(transcription: Transcription) -> str:
    """A table with a row for each token: start and end in seconds, confidence. Empty for silence."""
    rows = [(plots.shown(token.symbol), token) for token in transcription.tokens]
    return templates.macro(TEMPLATE, "tokens", rows=rows) if rows else ""


def attention(transcription: Transcription) -> str:
    """A heat map for each segment that was decoded. Empty for silence."""
    pictures = [charts.missing()] if charts.missing() else list(_pictures(transcription))
    return templates.macro(TEMPLATE, "attention", pictures=pictures) if pictures else ""


def _pictures(transcription: Transcription) -> Iterator[Markup]:
    for number, piece in enumerate(transcription.pieces, start=1):
        if not piece.half_weights.numel():  # an acoustic model has no attention
            continue
        whole = len(transcription.pieces) == 1
        title = "attention of each token" if whole else f"piece {number}{_place(piece)}"
        seconds = piece.half_weights.shape[1] * transcription.state_ms / 1000
        yield charts.heat_map(piece.weights.numpy(), piece.symbols, seconds, title)


def _place(piece: SegmentTranscript) -> str:
    return f", which begins at {piece.tokens[0].start_s:.1f} s" if piece.tokens else ""


def to_try(transcriber: Transcriber, chosen: str | None, folder: Path) -> tuple[Path, str] | None:
    """A recording for a page, in `folder`, and its label: a file, or else an utterance of the test split with its text.

    None if no file is chosen and the corpus is not here.
    """
    if chosen is not None:
        (source,) = find_audio(chosen)[:1]
        return Path(shutil.copy(source, folder)), source.name
    config = transcriber.config
    if "corpus" not in config:  # an exported bundle
        return None
    manifests = sorted((Path(config["data_dir"]) / "manifests").glob(f"{config['corpus']['name']}-*/test*.jsonl"))
    try:
        utterance = excerpts.fitting(manifest.read(manifests[-1]))
        path = folder / f"{utterance.id}.wav"
        path.write_bytes(excerpts.wav(utterance, transcriber.sample_rate))
    except (IndexError, DataError) as error:
        progress.say(f"the page has no example, because the corpus is not here ({error}): example=x.wav sets one")
        return None
    return path, utterance.text
