"""suite=decode: the duration of a search over a split, in batches and one utterance at a time."""

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks import inputs, timing
from benchmarks.records import SPREAD_S, Group, Row, TableColumn, number, text
from benchmarks.settings import Settings
from las.config.build import build
from las.data.corpora.base import Corpus
from las.data.loader import Batch, BatchSize, Loader, drop_unknown_symbols, sequential
from las.decoding import evaluation
from las.decoding.evaluation import Search
from las.decoding.search import BeamSearch
from las.decoding.transcriber import Transcriber, load
from las.nn.model import ListenAttendSpell
from las.training import data_preparation

NUM_GENERATED = 64

COLUMNS = (
    TableColumn("search", text("implementation")),
    TableColumn("cell", text("cell")),
    TableColumn("utterances", number("utterances", 0)),
    TableColumn("seconds", number("seconds", 4)),
    SPREAD_S,
    TableColumn("/ greedy", number("ratio_to_greedy")),
    TableColumn("utterances / s", number("utterances_per_s", 1)),
    TableColumn("real-time factor", number("rtf", 4)),
    TableColumn("audio s per s", number("audio_s_per_s", 0)),
    TableColumn("tokens / utterance", number("tokens_per_utterance", 1)),
)


class Task(NamedTuple):
    """A model and its input: waveforms in memory, in batches and one by one."""

    model: ListenAttendSpell
    description: str
    batched: list[Batch]
    single: list[Batch]
    audio_s: float


def measure(settings: Settings) -> Iterator[Group]:
    """Measure greedy search in batches, and the search of the config in batches and one utterance at a time."""
    config = settings.config
    greedy: Search = build(config["validation_search"], where="validation_search")
    search: Search = build(config["search"], where="search")
    name = f"beam{config['search']['size']}" if isinstance(search, BeamSearch) else "greedy"
    task = trained(settings) if config["checkpoint"] is not None else untrained(settings)
    passes = {"greedy_batched": DecodingPass(task.model, greedy, task.batched)}
    passes[f"{name}_batched"] = DecodingPass(task.model, search, task.batched)
    passes[f"{name}_single"] = DecodingPass(task.model, search, task.single)
    works = {key: timing.Work(decoding.run) for key, decoding in passes.items()}
    times = timing.alternate(works, settings.repeats, settings.budget_s, settings.device, "passes over the utterances")
    card = inputs.card(task.model)
    rows = [
        settings.row(key, card, task.description) | _result(times[key], decoding, task)
        for key, decoding in passes.items()
    ]
    for row in rows:
        row["ratio_to_greedy"] = row["seconds"] / rows[0]["seconds"]
    yield Group(task.description, rows)


class DecodingPass:
    """A search over all utterances of a task, from waveforms to n-best lists."""

    def __init__(self, model: ListenAttendSpell, search: Search, material: list[Batch]) -> None:
        self.model, self.search, self.material = model, search, material
        self.decoded: list[evaluation.Decoded] = []

    def run(self) -> None:
        """Decode like `las decode`, without reading audio."""
        self.decoded = list(evaluation.decode(self.model, self.search, enumerate(self.material)))


def _result(times: list[float], decoding: DecodingPass, task: Task) -> Row:
    spread = timing.spread(times)
    seconds, count = spread.median / 1e3, len(decoding.decoded)
    return spread.in_seconds() | {
        "utterances": count,
        "batch_size": max(len(batch.ids) for batch in decoding.material),
        "audio_s": task.audio_s,
        "rtf": seconds / task.audio_s,
        "utterances_per_s": count / seconds,
        "tokens_per_utterance": sum(len(utterance.hypotheses[0].tokens) for utterance in decoding.decoded) / count,
    }


def trained(settings: Settings) -> Task:
    """The task of a checkpoint and a split of its corpus."""
    transcriber = load(settings.config["checkpoint"], device=str(settings.device))
    description, batched, single = split_of(transcriber, settings)
    duration_s = sum(len(batch.waveforms[0]) for batch in single) / transcriber.sample_rate
    return Task(transcriber.attention_model, description, batched, single, duration_s)


def split_of(transcriber: Transcriber, settings: Settings) -> tuple[str, list[Batch], list[Batch]]:
    """The split of the corpus that a model was trained on: what it is called, in batches, and one by one."""
    config = settings.config
    corpus: Corpus = build(transcriber.config["corpus"], where="corpus")
    split = corpus.known_split(config["split"])
    utterances = data_preparation.prepared(corpus, config["data_dir"])[split]
    loader = Loader(drop_unknown_symbols(utterances, transcriber.tokens), transcriber.tokens, corpus.sample_rate)
    batched, single = (
        [batch for _, batch in loader.batches(sequential(utterances, size))]
        for size in (BatchSize.from_config(config), BatchSize(1))
    )
    return f"{transcriber.config['name']} on {split} of {corpus.name}", batched, single


def untrained(settings: Settings) -> Task:
    """An untrained model on noise: its hypotheses are as long as allowed, because it predicts no end."""
    subject = inputs.subject(settings.config)
    model = subject.model.to(settings.device)
    size, seconds = settings.config["batch_size"], settings.config["seconds"]
    batched = [inputs.batch(size, seconds, subject.corpus, seed) for seed in range(-(-NUM_GENERATED // size))]
    single = [row for batch in batched for row in batch.split(1)]
    audio_s = sum(inputs.duration_s(batch, subject.corpus) for batch in batched)
    return Task(model, f"{settings.config['name']}, untrained, on noise", batched, single, audio_s)
