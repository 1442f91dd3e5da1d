"""From a corpus to utterances that can be used: its table, what is wrong with it, what is left out and what stops."""

import json
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from rich.table import Table

from las.data import quality
from las.data.audio_scan import AudioScanCache
from las.data.corpora.base import Corpus
from las.data.loader import Loader
from las.data.manifest import Utterance
from las.data.quality import QualityLimits, QualityProblem
from las.data.sampler import BatchSize, sequential
from las.data.tokenizers import Tokenizer, TrainedSentencePieces
from las.nn.features import Features
from las.nn.model import ListenAttendSpell
from las.runtime import distributed, progress
from las.runtime.errors import ConfigError, DataError, StorageError
from las.storage import atomic, bounded

Splits = dict[str, list[Utterance]]
NumStates = Callable[[int], int]
LEDGER = "bad_utterances.jsonl"
DATA_DIR = "data"
"""What configs/*.yaml have as `data_dir`."""


class PreparedCorpus(NamedTuple):
    """A prepared corpus with what is asked of its utterances and what is known of its audio files."""

    corpus: Corpus
    splits: Splits
    limits: QualityLimits
    readings: AudioScanCache

    @property
    def train(self) -> list[Utterance]:
        return self.splits[self.corpus.splits[0]]

    def problems(self, split: str, num_states: NumStates | None = None) -> list[QualityProblem]:
        """As `Corpus.problems`, of one split, read by as many threads as there are processors."""
        utterances, threads = self.splits[split], os.cpu_count() or 1
        return self.corpus.problems(
            utterances, num_states, threads, self.limits, self.readings, f"{split}: audio files read"
        )

    def unknown(self, split: str) -> quality.Unknown:
        """The symbols of a split's transcripts that the tokens lack."""
        return quality.unknown_symbols(self.splits[split], self.corpus.tokens)

    def remedy(self) -> str:
        """What to type so that the tokens have every symbol of every split."""
        return self.corpus.tokens.remedy(
            {symbol for split in self.splits for symbol in self.unknown(split).utterance_ids}
        )


def prepare(corpus: Corpus, data_dir: Path, limits: QualityLimits) -> PreparedCorpus:
    """The splits of a corpus from their manifests; their table, and what stands out in them, on the screen."""
    if isinstance(corpus.tokens, TrainedSentencePieces) and corpus.metric != "wer":
        raise ConfigError(f"corpus.tokens: pieces of words cannot spell {corpus.name}, which is scored in phones")
    splits = corpus.prepare(data_dir / "manifests")
    data = PreparedCorpus(corpus, splits, limits, AudioScanCache.remembered(readings_path(corpus, data_dir)))
    print_table(data)
    for note in corpus.notes():
        progress.say(note)
    for split in corpus.splits:
        print_outliers(split, splits[split], corpus.tokens)
    return data


def prepared(corpus: Corpus, data_dir: str) -> Splits:
    """The splits of a checkpoint's corpus, for verbs that only read it: their `data_dir` is there, or is the default.

    (In the default one manifests are written, and what a synthesised corpus lacks, as by `las prepare`.)
    Raises ConfigError with the command that prepares it elsewhere.
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


def num_states_of(model: ListenAttendSpell) -> NumStates:
    """The listener's output rows for a number of samples."""
    return lambda num_samples: int(model.num_states(torch.tensor([num_samples]))[0])


def readings_path(corpus: Corpus, data_dir: Path) -> Path:
    """Where readings of a corpus's audio are remembered: beside its manifests, for all settings alike."""
    return data_dir / "manifests" / f"{corpus.name}.audio.jsonl"


def print_table(data: PreparedCorpus) -> None:
    """One row for each split."""
    corpus = data.corpus
    symbols = f"{corpus.tokens.size} symbols (vocabulary {corpus.tokens.vocabulary_hash[:12]})"
    table = Table(title=f"{corpus.name}, {corpus.sample_rate} Hz, {symbols}")
    for heading in ("split", "utterances", "hours", "speakers", "symbols", "shortest s", "longest s"):
        table.add_column(heading, justify="left" if heading == "split" else "right")
    for row in corpus.table(data.splits):
        durations = (f"{row.shortest_s:.2f}", f"{row.longest_s:.2f}")
        table.add_row(
            row.split, str(row.utterances), f"{row.hours:.2f}", str(row.speakers), str(row.symbols), *durations
        )
    progress.console.print(table)


def print_outliers(split: str, utterances: list[Utterance], tokens: Tokenizer, num_listed: int = 5) -> None:
    """The worst utterances whose transcripts are far too long or too short for their audio."""
    found = quality.outliers(utterances, tokens)
    if found:
        progress.say(
            f"{split}: {len(found)} of {len(utterances)} utterances are over 3 times or under a third of the median, "
            f"{found[0].median_rate:.1f} symbols/s:"
        )
    for name, num_symbols, duration_s, _ in found[:num_listed]:
        rate = num_symbols / duration_s
        progress.say(f"  {name}: {num_symbols} symbols in {duration_s:.2f} s, {rate:.1f} symbols/s")


def filter_training_utterances(
    data: PreparedCorpus, num_states: NumStates, folder: Path, max_bad_fraction: float
) -> list[Utterance]:
    """Training utterances without problems; the others go into bad_utterances.jsonl and on the screen.

    Of those without, the ones beyond `limits.longest_tokens` are counted on the screen and left out as well.

    Raises DataError when more than `max_bad_fraction` of them have one, for too many unknown symbols, and when there
    is none left.
    """
    split, train, log = data.corpus.splits[0], data.train, folder / "log.txt"
    problems = data.problems(split, num_states)
    ledger = write_ledger(folder / LEDGER, {split: problems})
    for problem in problems[:20]:
        progress.say(f"left out of training: {problem.utterance_id}: {problem.reason}", log)
    if len(problems) > 20:
        progress.say(f"... and {len(problems) - 20} more, all in {ledger}")
    require_known(data, split)
    if len(problems) > max_bad_fraction * len(train):
        raise DataError(
            f"{len(problems)} of {len(train)} training utterances cannot be used, more than the allowed "
            f"{100 * max_bad_fraction:g} %: they are listed in {ledger}. Mend the corpus, or allow more with "
            f"trainer.max_bad_fraction=..."
        )
    bad = {problem.utterance_id for problem in problems}
    left = short_enough([utterance for utterance in train if utterance.id not in bad], data, log)
    if not left:
        raise DataError(f"{data.corpus.name}: there is no training utterance left")
    return left


def short_enough(utterances: list[Utterance], data: PreparedCorpus, log: Path) -> list[Utterance]:
    """Those with at most `limits.longest_tokens` tokens; how many of the training utterances have more is said."""
    most, tokens = data.limits.longest_tokens, data.corpus.tokens
    if most is None:
        return utterances
    kept = [each for each in utterances if len(tokens.encode(each.text)) <= most]
    longer = len(utterances) - len(kept)
    of_all = f"{longer} of {len(data.train)} utterances ({100 * longer / len(data.train):.1f} %)"
    progress.say(f"left out of training: {of_all} have more than limits.longest_tokens={most} tokens", log)
    return kept


def require_decodable(data: PreparedCorpus, split: str, log: Path, num_listed: int = 10) -> None:
    """Raise DataError naming what cannot be decoded: from dev and test nothing is left out.

    What could only not be trained on, empty references among it, is said and stays: it is decoded and scored.
    """
    problems = data.problems(split)
    blocking = [problem for problem in problems if problem.kind not in quality.TRAINING_ONLY]
    if blocking:
        first = f"{data.corpus.name}: {len(blocking)} of {len(data.splits[split])} {split} utterances cannot be used:"
        scored = " and ".join(data.corpus.splits[1:])
        last = f"Utterances of {scored} are never left out: mend the corpus and start again"
        raise DataError("\n".join([first, *_lines(blocking, num_listed), last]))
    if problems:
        progress.say(f"{split}: {len(problems)} utterances are decoded and scored, though not fit for training:", log)
        for line in _lines(problems, num_listed):
            progress.say(line, log)
    require_known(data, split, log)


def require_known(data: PreparedCorpus, split: str, log: Path | None = None) -> None:
    """Say which symbols of a split the tokens lack; raise DataError when their share is more than the limit."""
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
    """Global mean and variance from evenly spaced training utterances, so that they do not depend on the seed."""
    if features.normalisation != "global":
        return
    chosen = train[:: max(1, len(train) // num_utterances)]
    loader = Loader(chosen, corpus.tokens, corpus.sample_rate)
    features.fit((batch.waveforms, batch.num_samples) for _, batch in loader.batches(sequential(chosen, size)))


def write_ledger(path: Path, problems: dict[str, list[QualityProblem]]) -> Path:
    """One JSON line for each problem of each split; returns the path."""
    lines = [
        json.dumps({"split": split, **problem._asdict()}, ensure_ascii=False) + "\n"
        for split, listed in problems.items()
        for problem in listed
    ]
    if distributed.is_main():
        atomic.write(path, "".join(lines))
    return path


def save_vocabulary(tokens: Tokenizer, folder: Path) -> None:
    """Write a run's output symbols into its folder, or raise StorageError where it has been trained with others."""
    path = folder / "symbols.json"
    own = {"vocabulary_hash": tokens.vocabulary_hash, "symbols": list(tokens.symbols)}
    if path.exists() and (folder / "checkpoints").exists():
        before = bounded.stored(path)["vocabulary_hash"]
        if before != own["vocabulary_hash"]:
            raise StorageError(
                f"{folder}: this run writes other symbols (vocabulary {before[:12]}) than the corpus has now "
                f"({own['vocabulary_hash'][:12]}): restore the corpus, or start a run of its own with name=..."
            )
        return
    if distributed.is_main():
        atomic.write_json(path, own, durable=True)


def _lines(problems: list[QualityProblem], num_listed: int) -> list[str]:
    lines = [f"  {problem.utterance_id}: {problem.reason}" for problem in problems[:num_listed]]
    return lines + ([f"  ... and {len(problems) - num_listed} more"] if len(problems) > num_listed else [])
