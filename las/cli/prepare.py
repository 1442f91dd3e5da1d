"""The verbs `prepare`, `check` and `pack`: manifests of a corpus, the problems of its files, and its shards."""

import shlex
from pathlib import Path

from las.cli import corpus_page
from las.config import overrides as config_overrides
from las.config.build import build, check_value, compose
from las.data import packing, quality
from las.data.corpora.base import Corpus
from las.data.packing import PackedSplit
from las.data.quality import AudioScanCache, QualityLimits, QualityProblem
from las.nn.model import SpeechModel
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError
from las.storage import atomic
from las.training import data_preparation
from las.training.data_preparation import PreparedCorpus, Splits


def check(overrides: list[str]) -> None:
    """Read a corpus completely and print its problems; nothing is trained.

    Raises DataError when a training utterance would be left out, or an utterance of another split cannot be decoded.
    """
    config = compose("train", overrides)
    corpus: Corpus = build(config["corpus"], where="corpus")
    limits = build(config["limits"], where="limits")
    model: SpeechModel = build(config["model"], where="model")(corpus.sample_rate, corpus.tokens.size)
    data_dir = Path(config["data_dir"])
    data = data_preparation.prepare(corpus, data_dir, limits)
    # Cached scans are ignored here, and the new ones are cached for trainings.
    data = data._replace(readings=AudioScanCache(data_preparation.readings_path(corpus, data_dir)))
    problems = {split: data.problems(split, model) for split in corpus.splits}
    ledger = data_preparation.write_ledger(data_dir / "checks" / corpus.name / data_preparation.LEDGER, problems)
    for split, listed in problems.items():
        for problem in listed:
            progress.say(f"{split} {problem.utterance_id}: {describe(problem)}")
    too_many = [split for split in corpus.splits if _say_unknown(data, split)]
    total = sum(map(len, data.splits.values()))
    if not any(problems.values()) and not too_many:
        progress.say(f"{corpus.name}: all {total} utterances are sound")
        return
    print_kinds(corpus.name, problems)
    everything = ((split == corpus.splits[0], problem.kind) for split, listed in problems.items() for problem in listed)
    bad = sum(in_training or kind not in quality.TRAINING_ONLY for in_training, kind in everything)
    if bad or too_many:
        raise DataError(f"{corpus.name}: {bad} of {total} utterances cannot be used: each is listed in {ledger}")
    progress.say(f"{corpus.name}: all {total} utterances can be used; what is not fit for training is in {ledger}")


def describe(problem: QualityProblem) -> str:
    """Return a problem as `file: reason`, with the file once where the reason begins with it already."""
    return problem.reason if problem.file in problem.reason else f"{problem.file}: {problem.reason}"


def print_kinds(name: str, problems: dict[str, list[QualityProblem]]) -> None:
    """Print how many problems of each kind each split has."""
    table = progress.table("problem", *problems, title=f"{name}: problems")
    for kind in sorted({problem.kind for listed in problems.values() for problem in listed}):
        counts = (sum(problem.kind == kind for problem in listed) for listed in problems.values())
        table.add_row(kind, *map(str, counts))
    progress.console.print(table)


def _say_unknown(data: PreparedCorpus, split: str) -> bool:
    """Print the symbols that the tokenizer lacks; returns True if there are more than the limit allows."""
    unknown = data.unknown(split)
    if unknown.utterance_ids:
        progress.say(f"{split}: the tokens lack {unknown}. {data.remedy()}")
    return unknown.share > data.limits.unknown


def prepare(overrides: list[str]) -> Splits:
    """Read or synthesise a corpus, write its manifests, print its table, and check every training utterance.

    With `page`, the other splits are read too, and the page of the corpus is written.
    """
    config = compose("prepare", overrides)
    check_value("page", config["page"], str | None)
    if config["page"] is not None:
        atomic.require_place(Path(config["page"]))
    corpus: Corpus = build(config["corpus"], where="corpus")
    limits: QualityLimits = build(config["limits"], where="limits")
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), limits)
    model: SpeechModel = build(config["model"], where="model")(corpus.sample_rate, corpus.tokens.size)
    problems = data.problems(corpus.splits[0], model)
    for problem in problems:
        progress.say(f"{problem.utterance_id}: {problem.reason}")
    for split in corpus.splits:
        _say_unknown(data, split)
    progress.say(f"{len(problems)} of {len(data.train)} training utterances cannot be used")
    if config["page"] is not None:
        others = {split: data.problems(split, model) for split in corpus.splits[1:]}
        atomic.write(Path(config["page"]), [corpus_page.render(data, {corpus.splits[0]: problems} | others)])
        progress.say(f"written to {config['page']}")
    return data.splits


def pack(overrides: list[str]) -> dict[str, PackedSplit]:
    """Write a corpus into shards and print how many; called again after an interruption, it goes on."""
    config = compose("pack", overrides)
    if not config["output"]:
        raise ConfigError("output=FOLDER says where the shards go: output=shards")
    if config["shard_mb"] <= 0:
        raise ConfigError(f"shard_mb={config['shard_mb']} must be above 0")
    corpus: Corpus = build(config["corpus"], where="corpus")
    output = Path(config["output"])
    atomic.require_folder(output)
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), build(config["limits"], where="limits"))
    shard_bytes = round(config["shard_mb"] * 1e6)
    results = {split: packing.pack(split, listed, output, shard_bytes) for split, listed in data.splits.items()}
    hashes = {split: packed.content_hash for split, packed in results.items()}
    packing.write_index(output, corpus.settings(), hashes)
    print_shards(corpus, results)
    progress.say("next:  " + shlex.join(["las", "train", *_training(corpus, overrides, results)]))
    return results


def _training(corpus: Corpus, overrides: list[str], results: dict[str, PackedSplit]) -> list[str]:
    """Return overrides of a training from the shards: the same corpus with another root, or its manifests."""
    typed = [config_overrides.typed(override) for override in overrides]
    if any(override.startswith("corpus.root=") for override in typed):
        output = next(iter(results.values())).manifest.parent
        same = [each for each in typed if not each.startswith(("corpus.root=", "output=", "shard_mb="))]
        return [*same, f"corpus.root={output}"]
    roles = zip(("train", "dev", "test"), corpus.splits, strict=False)  # as `corpus=files` calls them
    sources = [f"corpus.{role}={results[split].manifest}" for role, split in roles]
    return ["corpus=files", f"corpus.name={corpus.name}", *sources]


def print_shards(corpus: Corpus, results: dict[str, PackedSplit]) -> None:
    """Print files, shards and megabytes of each split."""
    headings = ("split", "audio files", "shards", "of these already there", "MB")
    table = progress.table(*headings, title=f"{corpus.name}: shards")
    table.columns[0].no_wrap = True
    for split, packed in results.items():
        counts = (packed.num_files, len(packed.shards), packed.num_kept)
        table.add_row(split, *(f"{count:,}" for count in counts), f"{packed.num_bytes / 1e6:,.1f}")
    progress.console.print(table)
