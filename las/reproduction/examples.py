"""One test utterance by every row of a recipe: teacher-forced attention, hypothesis, and the audio."""

import base64
import io
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import soundfile

from las.config.build import build
from las.data import manifest
from las.data.corpora.base import Corpus
from las.data.loader import Loader, drop_unknown_symbols, read
from las.data.manifest import Utterance
from las.decoding import evaluation
from las.decoding.recordings import find_audio
from las.decoding.transcriber import Transcriber, load
from las.nn.acoustic_model import FrameModel
from las.nn.attention import diagnostics
from las.nn.attention.diagnostics import Alignment
from las.nn.kernels import choice
from las.reproduction.jobs import Job
from las.runtime import progress
from las.runtime.errors import DataError, StorageError
from las.storage import bounded

SHORTEST_S, LONGEST_S = 1.5, 8.0
"""An example is long enough to show something and short enough for a phone's screen."""


@dataclass(frozen=True)
class AttentionExample:
    """Attention for the example: weights [tokens + 1, states] as lists, what was spelt, diagnostics."""

    weights: Any
    symbols: Sequence[str]
    numbers: Alignment


@dataclass(frozen=True)
class RowTranscript:
    """One row's output for the example; an acoustic model has no attention."""

    label: str
    hypothesis: str
    attention: AttentionExample | None


@dataclass(frozen=True)
class DecodedExample:
    """The utterance, its audio as a data URI (empty where it may not be passed on), and each row's output."""

    utterance: Utterance
    audio: str
    rows: tuple[RowTranscript, ...]


def example(jobs: Sequence[Job], with_audio: bool) -> DecodedExample | None:
    """The first test utterance of a good length, by the first seed of each row; None before any training has ended.

    Rows whose checkpoint cannot be read are left out.
    """
    chosen: dict[str, Job] = {}
    for job in jobs:
        if job.result is not None and "broken" not in job.result:
            chosen.setdefault(job.row.name, job)
    if not chosen:
        return None
    utterance, split = _utterance(next(iter(chosen.values())).config)
    rows = [each for job in chosen.values() if (each := _row(job, utterance, split)) is not None]
    config = next(iter(chosen.values())).config
    rate = int(build(config["corpus"], where="corpus").sample_rate)
    return DecodedExample(utterance, sound(utterance, rate) if with_audio else "", tuple(rows))


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
        utterance = fitting(manifest.read(manifests[-1]))
        path = folder / f"{utterance.id}.wav"
        path.write_bytes(wav(utterance, transcriber.sample_rate))
    except (IndexError, DataError) as error:
        progress.say(f"the page has no example, because the corpus is not here ({error}): example=x.wav sets one")
        return None
    return path, utterance.text


def sound(utterance: Utterance, sample_rate: int) -> str:
    """The utterance as a wav in a data URI, 16 bit."""
    return f"data:audio/wav;base64,{base64.b64encode(wav(utterance, sample_rate)).decode()}"


def wav(utterance: Utterance, sample_rate: int) -> bytes:
    """The utterance as a wav file of 16 bit."""
    file = io.BytesIO()
    soundfile.write(file, read(utterance, sample_rate).numpy(), sample_rate, "PCM_16", format="WAV")
    return file.getvalue()


def _utterance(config: Mapping[str, Any]) -> tuple[Utterance, str]:
    """An utterance of the first split after the dev part, and that split."""
    corpus: Corpus = build(config["corpus"], where="corpus")
    split = corpus.splits[min(2, len(corpus.splits) - 1)]
    return fitting(corpus.prepare(Path(config["data_dir"]) / "manifests")[split]), split


def fitting(utterances: Sequence[Utterance]) -> Utterance:
    """The first of a good length, or the first."""
    return next((each for each in utterances if SHORTEST_S <= each.duration_s <= LONGEST_S), utterances[0])


def _row(job: Job, utterance: Utterance, split: str) -> RowTranscript | None:
    try:
        transcriber = load(job.directory)
    except StorageError:
        return None
    hypothesis = _decoded(job.directory / f"hypotheses.{split}.jsonl").get(utterance.id, "")
    if isinstance(transcriber.model, FrameModel):
        return RowTranscript(job.row.label, hypothesis, None)
    with choice.use_kernel(str(job.config["kernel"])):
        return RowTranscript(job.row.label, hypothesis, _attention(transcriber, utterance))


def _attention(transcriber: Transcriber, utterance: Utterance) -> AttentionExample | None:
    tokens = transcriber.tokens
    (known,) = drop_unknown_symbols([utterance], tokens)
    loader = Loader([known], tokens, transcriber.sample_rate, num_workers=0)
    ((_, batch),) = loader.batches([[0]])
    weights = evaluation.attention_weights(transcriber.model, batch)
    if weights is None:
        return None
    symbols = [*(tokens.symbols[token] for token in batch.targets[0].tolist()), "(end)"]
    return AttentionExample(weights.tolist(), symbols, diagnostics.measure(weights))


def _decoded(path: Path) -> dict[str, str]:
    return {each["id"]: each["text"] for each in bounded.stored_lines(path)}
