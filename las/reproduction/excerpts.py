"""Excerpts of run folders that reports show, small enough to be stored with the table: curves, texts, distributions.

So a page is made of the stored table alone, wherever the run folders are. Audio is not stored.
"""

import base64
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from las.config.build import build
from las.data.corpora.base import Corpus
from las.data.loader import Loader, drop_unknown_symbols, read
from las.data.manifest import Utterance
from las.decoding import evaluation
from las.decoding.transcriber import Transcriber, load
from las.nn.acoustic_model import FrameModel
from las.nn.attention import diagnostics
from las.nn.kernels import choice
from las.reproduction import learning_curves, run_numbers
from las.reproduction.jobs import Job
from las.reproduction.learning_curves import Series
from las.runtime.errors import StorageError
from las.storage import bounded

SHORTEST_S, LONGEST_S = 1.5, 8.0
"""An example is long enough to show something and short enough for a phone's screen."""
LIMIT, DISTRIBUTIONS_LIMIT = 16, 4
"""Rows whose curves and attention are shown, and rows whose distributions are."""
POINTS, STEPS = 48, 20
"""Points of a curve, and steps of a distribution."""
LARGEST = 1_000_000
"""Attention weights of one row that are read back."""
CURVES = {
    "loss": learning_curves.update_values("loss"),
    "gradient_norm": learning_curves.update_values("gradient_norm", learning_curves.log10),
    "loss_range": learning_curves.probe_values(
        lambda probe: max(probe["gradient"]["losses"]) - min(probe["gradient"]["losses"])
    ),
    "beta": learning_curves.probe_values(lambda probe: float(probe["gradient"]["scale_free_beta"])),
}
"""Values of a training that only its run folder has, by name: the logarithm of the gradient's norm, not the norm."""


@dataclass(frozen=True)
class RowExample:
    """One row's output for the example: the hypothesis and, of a model with attention, that of the reference.

    `weights` are teacher-forced, [symbols, states], in 255 levels of the largest (`packed`); `numbers` measure them.
    """

    label: str
    hypothesis: str
    symbols: tuple[str, ...] = ()
    weights: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)

    def levels(self) -> np.ndarray:
        """Return the weights as shares of the largest, [symbols, states]. Raises ValueError for damaged ones."""
        content = zlib.decompressobj().decompress(base64.b64decode(self.weights), LARGEST)
        return np.frombuffer(content, np.uint8).reshape(len(self.symbols), -1) / 255


@dataclass(frozen=True)
class Example:
    """A test utterance, the true times of its tokens in seconds where they are known, and each row's output."""

    id: str
    text: str
    duration_s: float
    intervals: tuple[tuple[float, float], ...]
    rows: tuple[RowExample, ...]


@dataclass(frozen=True)
class Distribution:
    """Quantiles of a parameter at some steps: 5, 25, 50, 75 and 95 %, each a list over the steps."""

    steps: tuple[int, ...]
    quantiles: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Excerpt:
    """Curves by name (`CURVES`), one for each row; the example; distributions by row and parameter."""

    curves: Mapping[str, tuple[Series, ...]]
    example: Example | None
    distributions: Mapping[str, Mapping[str, Distribution]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        curves = {name: [each._asdict() for each in series] for name, series in self.curves.items()}
        return asdict(self) | {"curves": curves}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Excerpt":
        """Return the inverse of `to_dict`, after JSON. Raises KeyError, TypeError or ValueError for others."""
        example = values["example"]
        if example is not None:
            rows = tuple(RowExample(**row | {"symbols": tuple(row["symbols"])}) for row in example["rows"])
            intervals = tuple((float(start), float(end)) for start, end in example["intervals"])
            example = Example(**example | {"rows": rows, "intervals": intervals})
        distributions = {
            label: {
                name: Distribution(tuple(each["steps"]), tuple(map(tuple, each["quantiles"])))
                for name, each in parameters.items()
            }
            for label, parameters in values["distributions"].items()
        }
        curves = {name: tuple(Series(**each) for each in series) for name, series in values["curves"].items()}
        return cls(curves, example, distributions)


def excerpt(jobs: Sequence[Job], stored: Excerpt | None) -> Excerpt | None:
    """Return the excerpt of finished jobs in the order of rows; for rows without any, what was `stored` of them."""
    by_row: dict[str, list[Job]] = {}
    for job in jobs:
        if job.result is not None:
            by_row.setdefault(job.row.label, []).append(job)
    if not by_row:
        return stored
    before = stored or Excerpt({}, None, {})
    distributions = dict(before.distributions)
    for label, found in by_row.items():
        has_place = len(distributions) < DISTRIBUTIONS_LIMIT or label in distributions
        if has_place and (parameters := _distributions(found[0].directory / "tensorboard")):
            distributions[label] = parameters
    curves = {}
    for name, values in CURVES.items():
        known = {each.name: each for each in before.curves.get(name, ())}
        known |= {
            label: learning_curves.series(label, found, values).thinned(POINTS) for label, found in by_row.items()
        }
        if drawn := [each for each in known.values() if each.x]:
            curves[name] = tuple(drawn[:LIMIT])
    finished = [job for found in by_row.values() for job in found]
    return Excerpt(curves, _with_rows_of(before.example, example(finished)), distributions)


def _with_rows_of(before: Example | None, found: Example | None) -> Example | None:
    """Return an example with the rows that it had before as well, if both are of one utterance."""
    if before is None or found is None:
        return found or before
    if (before.id, before.text) != (found.id, found.text):
        return found
    rows = {row.label: row for row in (*before.rows, *found.rows)}
    return replace(found, rows=tuple(rows.values())[:LIMIT])


def example(jobs: Sequence[Job]) -> Example | None:
    """Return the example by the first seed of each row that is not broken; None before any training has ended.

    Rows whose checkpoint cannot be read are left out.
    """
    chosen: dict[str, Job] = {}
    for job in jobs:
        if job.result is not None and "broken" not in job.result:
            chosen.setdefault(job.row.label, job)
    if not chosen:
        return None
    utterance, split, _ = _utterance(next(iter(chosen.values())))
    rows = [found for job in list(chosen.values())[:LIMIT] if (found := _row(job, utterance, split)) is not None]
    times = tuple((round(each.start_s, 3), round(each.end_s, 3)) for each in utterance.alignment)
    return Example(utterance.id, utterance.text, utterance.duration_s, times, tuple(rows))


def sound(jobs: Sequence[Job]) -> str:
    """Return the example's audio as a wav of 16 bit in a data URI; empty before any training has ended."""
    ended = next((job for job in jobs if job.result is not None and "broken" not in job.result), None)
    if ended is None:
        return ""
    utterance, _, rate = _utterance(ended)
    return f"data:audio/wav;base64,{base64.b64encode(wav(utterance, rate)).decode()}"


def wav(utterance: Utterance, sample_rate: int) -> bytes:
    """Return the utterance as a wav file of 16 bit."""
    file = io.BytesIO()
    soundfile.write(file, read(utterance, sample_rate).numpy(), sample_rate, "PCM_16", format="WAV")
    return file.getvalue()


def fitting(utterances: Sequence[Utterance]) -> Utterance:
    """Return the first of a good length, or the first."""
    return next((each for each in utterances if SHORTEST_S <= each.duration_s <= LONGEST_S), utterances[0])


def packed(weights: np.ndarray) -> str:
    """Weights [symbols, states] in 255 levels of the largest, compressed, as text."""
    levels = np.clip(np.round(255 * weights / (weights.max() or 1.0)), 0, 255).astype(np.uint8)
    return base64.b64encode(zlib.compress(levels.tobytes(), 9)).decode()


def _utterance(job: Job) -> tuple[Utterance, str, int]:
    """Return an utterance of the first split after the dev part, that split, and the sampling rate."""
    corpus: Corpus = build(job.config["corpus"], where="corpus")
    split = corpus.splits[min(2, len(corpus.splits) - 1)]
    utterances = corpus.prepare(Path(job.config["data_dir"]) / "manifests")[split]
    return fitting(utterances), split, int(corpus.sample_rate)


def _row(job: Job, utterance: Utterance, split: str) -> RowExample | None:
    try:
        transcriber = load(job.directory)
    except StorageError:
        return None
    decoded = bounded.stored_lines(job.directory / f"hypotheses.{split}.jsonl")
    hypothesis = next((each["text"] for each in decoded if each["id"] == utterance.id), "")
    if isinstance(transcriber.model, FrameModel):
        return RowExample(job.row.label, hypothesis)
    with choice.use_kernel(str(job.config["kernel"])):
        return _with_attention(RowExample(job.row.label, hypothesis), transcriber, utterance)


def _with_attention(row: RowExample, transcriber: Transcriber, utterance: Utterance) -> RowExample:
    tokens = transcriber.tokens
    (known,) = drop_unknown_symbols([utterance], tokens)
    loader = Loader([known], tokens, transcriber.sample_rate, num_workers=0)
    ((_, batch),) = loader.batches([[0]])
    weights = evaluation.attention_weights(transcriber.model, batch)
    if weights is None:
        return row
    symbols = (*(tokens.symbols[token] for token in batch.targets[0].tolist()), "(end)")
    numbers = {name: round(value, 3) for name, value in diagnostics.measure(weights)._asdict().items()}
    return RowExample(row.label, row.hypothesis, symbols, packed(weights.numpy()), numbers)


def _distributions(board: Path) -> dict[str, Distribution]:
    """Distributions of a training's notable parameters over its steps, where there are several."""
    found = {}
    for name, steps in run_numbers.notable(run_numbers.histograms(board)).items():
        if len(steps) > 1:
            chosen = [steps[round(place)] for place in np.linspace(0, len(steps) - 1, min(STEPS, len(steps)))]
            shares = [run_numbers.SHARES.index(share) for share in (0.05, 0.25, 0.5, 0.75, 0.95)]
            quantiles = tuple(tuple(float(f"{each.quantiles[k]:.4g}") for each in chosen) for k in shares)
            found[name] = Distribution(tuple(each.step for each in chosen), quantiles)
    return found
