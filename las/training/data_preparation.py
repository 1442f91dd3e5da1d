"""Preparation of a corpus: its table, its problems, the filtered training utterances, the checks that stop a run."""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from rich.table import Table

from las.data import quality
from las.data.corpora.base import Corpus
from las.data.loader import BatchSize, Loader, sequential
from las.data.manifest import Utterance
from las.data.quality import AudioScanCache, QualityLimits, QualityProblem
from las.data.tokenizers import Tokenizer, TrainedSentencePieces
from las.nn.features import FITTED, Features
from las.nn.model import SpeechModel
from las.runtime import devices, distributed, progress
from las.runtime.errors import ConfigError, DataError, StorageError
from las.storage import atomic, bounded

Splits = dict[str, list[Utterance]]
LEDGER = "bad_utterances.jsonl"
DATA_DIR = "data"
"""The default `data_dir` of configs/*.yaml."""


class PreparedCorpus(NamedTuple):
    """A prepared corpus, the quality limits for its utterances, and the cached scans (`readings`) of its audio."""

    corpus: Corpus
    splits: Splits
    limits: QualityLimits
    readings: AudioScanCache

    @property
    def train(self) -> list[Utterance]:
        return self.splits[self.corpus.splits[0]]

    @devices.garbage_paused()
    def problems(self, split: str, model: SpeechModel | None = None) -> list[QualityProblem]:
        """Return the problems of a split (`Corpus.problems`), read by as many threads as there are processors.

        With a model, those of utterances that are too short for it are among them.
        """
        utterances, threads = self.splits[split], os.cpu_count() or 1
        num_states = None
        if model is not None:
            lengths = sorted({quality.num_samples(each, self.corpus.sample_rate) for each in utterances})
            states = model.num_states(torch.tensor(lengths, dtype=torch.int64)).tolist()
            num_states = dict(zip(lengths, states, strict=True)).__getitem__
        title, ctc = f"{split}: audio files read", model is not None and model.ctc is not None
        return self.corpus.problems(utterances, num_states, threads, self.limits, self.readings, title, ctc)

    def unknown(self, split: str) -> quality.Unknown:
        """Return the symbols of a split's transcripts that the tokens lack."""
        return quality.unknown_symbols(self.splits[split], self.corpus.tokens)

    def remedy(self) -> str:
        """Return the command or setting that gives the tokenizer every symbol of every split."""
        return self.corpus.tokens.remedy(
            {symbol for split in self.splits for symbol in self.unknown(split).utterance_ids}
        )


@devices.garbage_paused()
def prepare(corpus: Corpus, data_dir: Path, limits: QualityLimits) -> PreparedCorpus:
    """Prepare a corpus: write or read its manifests, print its table, its notes and its outliers.

    Raises ConfigError for word pieces on a corpus that is scored in phones.
    """
    if corpus.metric == "phone_error_rate" and isinstance(corpus.tokens, TrainedSentencePieces):
        raise ConfigError(f"corpus.tokens: pieces of words cannot spell {corpus.name}, which is scored in phones")
    splits = corpus.prepare(data_dir / "manifests")
    data = PreparedCorpus(corpus, splits, limits, AudioScanCache.remembered(readings_path(corpus, data_dir)))
    print_table(data)
    notes = corpus.notes() if corpus.packed is None else [f"audio from the shards in {corpus.packed}"]
    for note in notes:
        progress.say(note)
    for split in corpus.splits:
        print_outliers(split, splits[split], corpus.tokens)
    return data


def prepared(corpus: Corpus, data_dir: str) -> Splits:
    """Return the splits of a checkpoint's corpus, for verbs that do not train.

    The default `data_dir` is created if it is missing, and missing parts are prepared in it as by `las prepare`.
    Raises ConfigError for any other `data_dir` that does not exist, with the command that prepares the corpus there.
    """
    if data_dir != DATA_DIR and not Path(data_dir).is_dir():
        words = [f"corpus={corpus.name}", f"data_dir={data_dir}"]
        root = getattr(corpus, "root", None)
        words[1:1] = [] if root is None else [f"corpus.root={root}"]
        raise ConfigError(
            f"data_dir={data_dir}: there is no such folder. Name the one that the corpus was prepared in, or prepare "
            f"it there: las prepare {shlex.join(words)}"
        )
    return corpus.prepare(Path(data_dir) / "manifests")


def readings_path(corpus: Corpus, data_dir: Path) -> Path:
    """Return the file that caches the audio scans of a corpus, next to its manifests and shared by all settings."""
    return data_dir / "manifests" / f"{corpus.name}.audio.jsonl"


def print_table(data: PreparedCorpus) -> None:
    """Print a table of the corpus with one row for each split."""
    corpus = data.corpus
    symbols = f"{corpus.tokens.size} symbols (vocabulary {corpus.tokens.vocabulary_hash[:12]})"
    table = Table(title=f"{corpus.name}, {corpus.sample_rate} Hz, {symbols}")
    table.add_column("split", no_wrap=True)
    for heading in ("utterances", "hours", "speakers", "symbols", "shortest s", "longest s"):
        table.add_column(heading, justify="right", overflow="fold")
    for row in corpus.table(data.splits):
        durations = (f"{row.shortest_s:.2f}", f"{row.longest_s:.2f}")
        table.add_row(
            row.split, str(row.utterances), f"{row.hours:.2f}", str(row.speakers), str(row.symbols), *durations
        )
    progress.console.print(table)


def print_outliers(split: str, utterances: list[Utterance], tokens: Tokenizer, num_listed: int = 5) -> None:
    """Print the worst utterances whose transcripts are far too long or too short for their audio."""
    outliers = quality.outliers(utterances, tokens)
    if outliers:
        progress.say(
            f"{split}: {len(outliers)} of {len(utterances)} utterances are over 3 times or under a third of the "
            f"median, {outliers[0].median_rate:.1f} symbols/s:"
        )
    for name, num_symbols, duration_s, _ in outliers[:num_listed]:
        rate = num_symbols / duration_s
        progress.say(f"  {name}: {num_symbols} symbols in {duration_s:.2f} s, {rate:.1f} symbols/s")


def filter_training_utterances(
    data: PreparedCorpus, model: SpeechModel, folder: Path, max_bad_fraction: float
) -> list[Utterance]:
    """Training utterances without problems; the others are printed and listed in bad_utterances.jsonl.

    Utterances of more than `limits.longest_tokens` tokens are left out as well, and their number is printed.

    Raises DataError if more than `max_bad_fraction` of the utterances have problems, for too many unknown symbols, and
    if no utterance remains.
    """
    split, train, log = data.corpus.splits[0], data.train, folder / "log.txt"
    problems = data.problems(split, model)
    ledger = write_ledger(folder / LEDGER, {split: problems})
    for problem in problems[:20]:
        progress.say(f"left out of training: {problem.utterance_id}: {problem.reason}", log)
    if len(problems) > 20:
        progress.say(f"... and {len(problems) - 20} more, all in {ledger}")
    require_known(data, split)
    if len(problems) > max_bad_fraction * len(train):
        raise DataError(
            f"{len(problems)} of {len(train)} training utterances cannot be used, more than the allowed "
            f"{100 * max_bad_fraction:g} %: they are listed in {ledger}. Fix the corpus, or allow more with "
            f"trainer.max_bad_fraction=..."
        )
    return usable_utterances(data, problems, log)


def usable_utterances(data: PreparedCorpus, problems: list[QualityProblem], log: Path | None = None) -> list[Utterance]:
    """Training utterances without problems, of at most `limits.longest_tokens` tokens, `limits.hours` of them.

    Those left out are counted. Raises DataError if none remains.
    """
    bad = {problem.utterance_id for problem in problems}
    remaining = [utterance for utterance in data.train if utterance.id not in bad]
    limit, tokens = data.limits.longest_tokens, data.corpus.tokens
    if limit is not None:
        short = [utterance for utterance in remaining if len(tokens.encode(utterance.text)) <= limit]
        longer, remaining = len(remaining) - len(short), short
        of_all = f"{longer} of {len(data.train)} utterances ({100 * longer / len(data.train):.1f} %)"
        progress.say(f"left out of training: {of_all} have more than limits.longest_tokens={limit} tokens", log)
    if data.limits.hours is not None:
        drawn = data.limits.sample(remaining)
        of_all = f"{len(drawn):,} of {len(remaining):,} utterances, {hours(drawn):.2f} of {hours(remaining):.2f} hours"
        progress.say(f"drawn from the training part by limits.hours={data.limits.hours:g}: {of_all}", log)
        remaining = drawn
    if not remaining:
        raise DataError(
            f"{data.corpus.name}: no training utterance remains, all are left out: las check names each problem"
        )
    return remaining


def hours(utterances: Sequence[Utterance]) -> float:
    """Sum of the durations, in hours."""
    return sum(utterance.duration_s for utterance in utterances) / 3600


def require_decodable(data: PreparedCorpus, split: str, log: Path, num_listed: int = 10) -> None:
    """Raise DataError naming the utterances that cannot be decoded: none is left out of dev and test.

    Utterances that are only unfit for training, such as those with empty references, are decoded and scored; they are
    printed.
    """
    problems = data.problems(split)
    blocking = [problem for problem in problems if problem.kind not in quality.TRAINING_ONLY]
    if blocking:
        beginning = (
            f"{data.corpus.name}: {len(blocking)} of {len(data.splits[split])} {split} utterances cannot be used:"
        )
        scored = " and ".join(data.corpus.splits[1:])
        ending = f"Utterances of {scored} are never left out: fix the corpus and start again"
        raise DataError("\n".join([beginning, *_lines(blocking, num_listed), ending]))
    if problems:
        progress.say(f"{split}: {len(problems)} utterances are decoded and scored, though not fit for training:", log)
        for line in _lines(problems, num_listed):
            progress.say(line, log)
    require_known(data, split, log)


def require_known(data: PreparedCorpus, split: str, log: Path | None = None) -> None:
    """Print the symbols of a split that the tokens lack; raise DataError when their share is more than the limit."""
    unknown = data.unknown(split)
    if unknown.share > data.limits.unknown:
        raise DataError(
            f"{data.corpus.name}: the tokens lack {unknown} of {split}, more than "
            f"limits.unknown={data.limits.unknown:g}. {data.remedy()}"
        )
    if unknown.utterance_ids:
        progress.say(f"{split}: the tokens lack {unknown}: the model cannot write them", log)


def fit_features(
    features: Features, train: Sequence[Utterance], corpus: Corpus, size: BatchSize, num_utterances: int = 500
) -> None:
    """Fit the global mean and variance to evenly spaced training utterances, so that they do not depend on the seed."""
    if features.normalisation not in FITTED:
        return
    chosen = train[:: max(1, len(train) // num_utterances)]
    loader = Loader(chosen, corpus.tokens, corpus.sample_rate)
    features.fit((batch.waveforms, batch.num_samples) for _, batch in loader.batches(sequential(chosen, size)))


def write_ledger(path: Path, problems: dict[str, list[QualityProblem]]) -> Path:
    """Write a JSON line for each problem of each split; returns the path."""
    lines = [
        json.dumps({"split": split, **problem._asdict()}, ensure_ascii=False) + "\n"
        for split, listed in problems.items()
        for problem in listed
    ]
    if distributed.is_main():
        atomic.write(path, "".join(lines))
    return path


def save_vocabulary(tokens: Tokenizer, folder: Path) -> None:
    """Write a run's output symbols into its folder. Raises StorageError if the run has been trained with others."""
    path = folder / "symbols.json"
    vocabulary = {"vocabulary_hash": tokens.vocabulary_hash, "symbols": list(tokens.symbols)}
    if path.exists() and (folder / "checkpoints").exists():
        stored_hash = bounded.stored(path)["vocabulary_hash"]
        if stored_hash != vocabulary["vocabulary_hash"]:
            raise StorageError(
                f"{folder}: this run was trained with other symbols (vocabulary {stored_hash[:12]}) than the corpus "
                f"has now ({vocabulary['vocabulary_hash'][:12]}): restore the corpus, or start another run with "
                "name=..."
            )
        return
    if distributed.is_main():
        atomic.write_json(path, vocabulary, durable=True)


def _lines(problems: list[QualityProblem], num_listed: int) -> list[str]:
    lines = [f"  {problem.utterance_id}: {problem.reason}" for problem in problems[:num_listed]]
    return lines + ([f"  ... and {len(problems) - num_listed} more"] if len(problems) > num_listed else [])
