"""suite=peers: training and search next to SpeechBrain's, on the same utterances, by turns in one process.

An update of every parameter is measured on a few batches of the corpus, from waveforms on: features, masks, loss,
gradient, clipping, Adam. Speeds are not changed: here that is the work of the threads that read. A search is measured
for hypotheses of as many tokens as the longest transcript of its batch has: the models are untrained and may not end a
sentence before, so that all do the same number of steps. What it begins with, from waveforms to encoded states, is also
measured alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks import inputs, peak, speechbrain_las, timing
from benchmarks.inputs import BenchmarkModel
from benchmarks.records import SPREAD_S, Group, Row, TableColumn, number, text
from benchmarks.settings import Settings
from benchmarks.speechbrain_las import IMPROBABLE, Sizes, SpeechBrainPeer
from las.config.build import build, option
from las.data.loader import Batch, BatchSize, Loader, augmentation_seed, sequential
from las.decoding import evaluation
from las.decoding.base import Search
from las.nn.kernels import choice
from las.nn.kernels.cpp.prepacked import PrepackedWeights
from las.nn.model import Decoder
from las.runtime.errors import ConfigError
from las.runtime.precision import PRECISIONS
from las.training import memory

NUM_BATCHES = 4
BEAM = 8
CTC_WEIGHT = 0.3
SEARCHES = {"greedy": (1, 0.0), f"beam {BEAM}": (BEAM, 0.0), f"beam {BEAM}, CTC": (BEAM, CTC_WEIGHT)}
"""Beam and weight of CTC of each search."""
PEER = speechbrain_las.NAME
"""The toolkit whose times ours are compared with."""
ANY_LENGTH = 1e3
"""Tokens per encoded state that limit nothing."""
ENCODING = "encoding"
"""The work from waveforms to encoded states."""

COLUMNS = (
    TableColumn("toolkit", text("implementation")),
    TableColumn("work", text("work")),
    TableColumn("parameters", number("parameters", 2, 1e-6)),
    TableColumn("s", number("seconds")),
    SPREAD_S,
    TableColumn("audio s per s", number("audio_s_per_s", 0)),
    TableColumn("utterances / s", number("utterances_per_s", 1)),
    TableColumn("listener's products, % of peak", number("peak_share", 0, 100.0)),
    TableColumn(f"time / {PEER}", number("ratio_to_peer")),
    TableColumn(f"its encoding / {PEER}", number("encoding_ratio")),
    TableColumn("resident MiB", number("resident_bytes", 0, 2**-20)),
)


class Las:
    """The model of an experiment, trained and decoded in a precision."""

    def __init__(self, settings: Settings, subject: BenchmarkModel, precision: str) -> None:
        self.model, self.tokens = subject.model.to(settings.device), subject.corpus.tokens
        if self.model.ctc is None:
            raise ConfigError("suite=peers: the model needs CTC, for training and search: try +experiment=an4_ctc")
        self.kernel, self.operands = str(settings.config["kernel"]), PRECISIONS[precision]
        self.update = subject.updates(precision, self.kernel)
        self.weights = PrepackedWeights(self.model)
        self.num_parameters = sum(parameter.numel() for parameter in self.model.parameters())

    def encoder(self, batch: Batch) -> Callable[[], object]:
        """The part of a search that goes from waveforms to encoded states, as `las decode` makes it."""

        @torch.no_grad()
        def run() -> Tensor:
            self.model.operands = self.operands  # the model is that of both precisions
            self.model.eval()
            with choice.use_kernel(self.kernel), self.weights.used():
                return self.model.encode(batch.waveforms, batch.num_samples)[0]

        return run

    def decoder(self, size: int, ctc_weight: float, batch: Batch, num_tokens: int) -> Callable[[], list[list[int]]]:
        """A search of a batch, from waveforms to hypotheses of `num_tokens` tokens, as `las decode` makes it.

        It forbids to end them before.
        """
        name = "greedy" if size == 1 else "beam_ctc" if ctc_weight else "beam"
        config: dict[str, Any] = option("search", name) | {"max_length": num_tokens, "max_length_ratio": ANY_LENGTH}
        if size > 1:
            config["size"] = size
        if ctc_weight:
            config["ctc"] = config["ctc"] | {"weight": ctc_weight}
        search: Search = build(config, where="search")
        search.bind(self.tokens, has_ctc=True)
        with torch.no_grad():
            self.model.speller.output.bias[Decoder.eos] = IMPROBABLE

        def run() -> list[list[int]]:
            self.model.operands = self.operands
            with choice.use_kernel(self.kernel):
                decoded = evaluation.decode(self.model, search, [(0, batch)], self.weights)
                return [each.hypotheses[0].tokens for each in decoded]

        return run


Toolkit = Las | SpeechBrainPeer
"""A Listen-Attend-Spell with CTC that is trained and searched."""

Works = Callable[[Toolkit], list[Callable[[], object]]]
"""Makes the pieces of a toolkit's work, one for each batch."""


def measure(settings: Settings) -> Iterator[Group]:
    """Measure training and search in batches, in one group, and search one utterance at a time, in another."""
    subject = inputs.subject(settings.config)
    toolkits: dict[str, Toolkit] = {f"las, {each}": Las(settings, subject, each) for each in PRECISIONS}
    sizes = Sizes.of(settings.config, subject.corpus.sample_rate, subject.corpus.tokens.size)
    rate = float(settings.config["optim"]["lr"])
    if not speechbrain_las.unavailable():
        toolkits[PEER] = SpeechBrainPeer(sizes, CTC_WEIGHT, rate, settings.device)
    batches = real_batches(settings, subject)
    compare = Comparison(settings, subject, toolkits)
    size = len(batches[0].ids)
    updates = compare.measured(
        f"update of {size}", batches, lambda toolkit: [partial(toolkit.update, batch) for batch in batches], True
    )
    yield Group(updates[0]["shape"], updates + compare.searched(f"batches of {size}", batches))
    searches = compare.searched("one at a time", batches[len(batches) // 2].split(1))
    yield Group(searches[0]["shape"], searches)


def real_batches(settings: Settings, subject: BenchmarkModel) -> list[Batch]:
    """Batches of the training part, sorted by duration, evenly spread from the shortest to the longest."""
    config, corpus = settings.config, subject.corpus
    utterances = corpus.prepare(Path(config["data_dir"]) / "manifests")[corpus.splits[0]]
    plan = sequential(utterances, BatchSize(config["trainer"]["batch_size"]))
    count = min(NUM_BATCHES, len(plan))
    chosen = [plan[(2 * index + 1) * len(plan) // (2 * count)] for index in range(count)]
    loader = Loader(utterances, corpus.tokens, corpus.sample_rate, num_workers=0)
    return [
        replace(batch, keys=tuple(augmentation_seed(1, 0, name) for name in batch.ids)).to(settings.device)
        for _, batch in loader.batches(chosen)
    ]


class Comparison(NamedTuple):
    """Toolkits by name on the utterances of a corpus."""

    settings: Settings
    subject: BenchmarkModel
    toolkits: Mapping[str, Toolkit]

    def searched(self, how: str, batches: list[Batch]) -> list[Row]:
        """Rows of the encoding and of all searches; of this package's searches, the encoding also as a share of the
        peer's search: what their share would be if all else took no time."""
        rows = self.measured(
            f"{ENCODING}, {how}", batches, lambda toolkit: [toolkit.encoder(batch) for batch in batches]
        )
        encoding_s = {row["implementation"]: row["seconds"] for row in rows if "seconds" in row}
        for name, search in SEARCHES.items():

            def works(toolkit: Toolkit, search: tuple[int, float] = search) -> list[Callable[[], object]]:
                return [toolkit.decoder(*search, batch, int(batch.num_tokens.max())) for batch in batches]

            searched = self.measured(f"{name}, {how}", batches, works)
            for row in searched:
                if "peak_share" in row and "ratio_to_peer" in row:
                    row["encoding_ratio"] = row["ratio_to_peer"] * encoding_s[row["implementation"]] / row["seconds"]
            rows += searched
        return rows

    def measured(self, work: str, batches: list[Batch], make: Works, with_gradients: bool = False) -> list[Row]:
        """Rows of a piece of work by toolkit, their times also as shares of the peer's."""
        settings, toolkits = self.settings, self.toolkits
        works = {name: timing.Work(partial(_run_all, make(toolkit))) for name, toolkit in toolkits.items()}
        times = timing.alternate(works, settings.repeats, settings.budget_s, settings.device, work)
        spreads = {name: timing.spread(each) for name, each in times.items()}
        utterances = sum(len(batch.ids) for batch in batches)
        audio_s = sum(inputs.duration_s(batch, self.subject.corpus) for batch in batches)
        shape = f"{utterances} utterances of {self.subject.corpus.name}, {audio_s:.0f} s of speech"
        rows = []
        for name, spread in spreads.items():
            toolkit = toolkits[name]
            row = settings.row(name, "", shape) | spread.in_seconds()
            row |= {
                "work": work,
                "parameters": toolkit.num_parameters,
                "utterances": utterances,
                "audio_s": audio_s,
                "audio_s_per_s": 1e3 * audio_s / spread.median,
                "utterances_per_s": 1e3 * utterances / spread.median,
                "resident_bytes": memory.resident(works[name].run, settings.device),
            }
            if isinstance(toolkit, Las):
                per_batch = [peak.listener_operations(toolkit.model, batch) for batch in batches]
                operations = sum(sum(each.values()) if with_gradients else each["listener"] for each in per_batch)
                row["peak_share"] = operations / spread.median / peak.per_ms(settings.device, toolkit.operands)
                row["fast_products"] = peak.is_fast(settings.device, toolkit.operands)
            if PEER in spreads:
                row["ratio_to_peer"] = spread.median / spreads[PEER].median
            rows.append(row)
        if PEER not in toolkits:
            rows.append(settings.row(PEER, "", shape) | {"work": work, "refused": speechbrain_las.unavailable()})
        return rows


def _run_all(pieces: list[Callable[[], object]]) -> None:
    for piece in pieces:
        piece()
