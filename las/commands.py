"""What each verb does: overrides in, files and a printed answer out."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from las import (
    arguments,
    assembly,
    atomic,
    batches,
    build,
    devices,
    distributed,
    evaluation,
    lock,
    places,
    preparation,
    progress,
    recurrent,
    report,
    run,
    transcribe,
    tuned,
)
from las.assembly import Built
from las.corpora.base import Corpus
from las.errors import ConfigError, NumericalError
from las.evaluation import Search
from las.manifest import Utterance
from las.order import DECODED, Size, sequential
from las.preparation import Data, Splits
from las.pretraining import Stage
from las.scoring import error_rates, tables
from las.soundness import Limits
from las.transcription import Transcription


def prepare(overrides: list[str]) -> Splits:
    """Read or synthesise a corpus, write its manifests, print its table, and check every training utterance."""
    config = build.compose("train", overrides)
    corpus: Corpus = build.build(config["corpus"], where="corpus")
    limits: Limits = build.build(config["limits"], where="limits")
    data = preparation.prepare(corpus, Path(config["data_dir"]), limits)
    problems = data.problems(corpus.splits[0])
    for problem in problems:
        progress.say(f"{problem.utterance_id}: {problem.reason}")
    for split in corpus.splits:
        if (unknown := data.unknown(split)).found:
            progress.say(f"{split}: the tokens lack {unknown}. {data.remedy()}")
    progress.say(f"{len(problems)} of {len(data.train)} training utterances cannot be used")
    return data.splits


def train(overrides: list[str]) -> dict[str, Any]:
    """Train, then decode and score dev and test with the best checkpoint. The same command again resumes.

    Started by `torchrun`, all processes train; the main one alone decodes and writes.

    Returns what result.json holds (a process that is not the main one: nothing).
    Raises NumericalError when the training is broken, which result.json holds too.
    """
    return train_config(build.compose("train", overrides))


def train_config(config: build.Config) -> dict[str, Any]:
    """The same, of a composed config."""
    corpus: Corpus = build.build(config["corpus"], where="corpus")
    stages, built = assembly.build_all(config, corpus)
    with recurrent.using(str(config["kernel"])), distributed.together(built.device) as device, assembly.one_speaks():
        folder = run.Run(config)
        if folder.result is not None:
            progress.say(f"{folder.directory} is finished: {summary(folder.result)}")
            return folder.result
        with lock.held(folder.directory) if distributed.is_main() else nullcontext():
            return _train(stages, built, corpus, folder, device)


def _train(stages: list[Stage], built: Built, corpus: Corpus, folder: run.Run, device: torch.device) -> dict[str, Any]:
    config, log = folder.config, folder.directory / "log.txt"
    with distributed.main_first():
        data = preparation.prepare(corpus, Path(config["data_dir"]), built.limits)
    train = assembly.usable(built, data, folder)
    result: dict[str, Any] = {
        "name": config["name"],
        "corpus": corpus.name,
        "seed": config["seed"],
        "parameters": assembly.num_parameters(built.parts.model),
        "train_utterances": len(train),
        "vocabulary_hash": corpus.tokens.vocabulary_hash,
        "commit": run.commit(),
        "splits": {},
    }
    for trainer in assembly.trainers(stages, built, train, data, folder, device):
        try:
            convergence = trainer.fit()
        except NumericalError as error:
            folder.finish(result | {"steps": trainer.at.step, "broken": str(error)})
            raise
    if not distributed.is_main():
        return {}
    progress.say(f"stopped at step {trainer.at.step}; best dev error at step {convergence.best_step}", log)
    result |= {
        "steps": trainer.at.step,
        "steps_to_converge": convergence.best_step,
        "steps_to_within_one_percent": convergence.within_one_percent_step,
    }
    _decode_and_score(result, built.search, corpus, data, folder, device)
    if report.available():
        name = error_rates.SHORT_NAMES[corpus.metric]
        report.curves_picture(folder.metrics(), folder.directory / "curves.png", name, str(folder.directory))
    folder.finish(result)
    progress.say(f"{folder.directory}: {summary(result)}", log)
    return result


def _decode_and_score(
    result: dict[str, Any], search: Search, corpus: Corpus, data: Data, folder: run.Run, device: torch.device
) -> None:
    """Every split but the training one, by the best checkpoint, into `result`."""
    log = folder.directory / "log.txt"
    transcriber = transcribe.load(folder.directory, search, str(device))
    for split in corpus.splits[1:]:
        score = decode_split(
            transcriber, corpus, split, data.splits[split], folder.directory / f"hypotheses.{split}.jsonl"
        )
        result["splits"][split] = split_result(score, corpus, split)
        progress.say(f"{split}: {error_rates.line(score, corpus.metric)}", log)
        for name, part in score.subsets.items():
            progress.say(f"{split} {name}: {100 * part.rate:.1f} % of {part.words:,} words", log)


def split_result(score: error_rates.Score, corpus: Corpus, split: str) -> dict[str, Any]:
    """What result.json keeps of a split: its errors, those of its named parts, and what it was scored with."""
    found = error_rates.as_dict(score, corpus.metric)
    if score.subsets:
        found["subsets"] = {name: error_rates.rate_as_dict(rate, corpus.metric) for name, rate in score.subsets.items()}
    return found | corpus.provenance(split)


def decode_split(
    transcriber: transcribe.Transcriber,
    corpus: Corpus,
    split: str,
    utterances: list[Utterance],
    output: Path,
    size: Size = DECODED,
) -> error_rates.Score:
    """Decode a split in batches, write one line per utterance (`evaluation.entry`), and score it."""
    tokens = transcriber.tokens
    loader = batches.Loader(batches.spellable(utterances, tokens), tokens, corpus.sample_rate)
    order = sequential(utterances, size)
    decoded = list(evaluation.decode(transcriber.model, transcriber.search, loader.batches(order)))
    texts = evaluation.texts(decoded, tokens)
    by_id = sorted(decoded, key=lambda each: each.id)
    entries = [evaluation.entry(each, tokens, transcriber.search.nbest) for each in by_id]
    _write_lines(output, [json.dumps(each, ensure_ascii=False) for each in entries])
    return corpus.score(split, utterances, texts)


def decode(overrides: list[str]) -> None:
    """Write what a checkpoint hears in audio files, or in a split of its corpus (then with its error rate)."""
    config = tuned.compose("decode", overrides)
    with recurrent.using(str(config["kernel"])):
        _decode(config)


def _decode(config: build.Config) -> None:
    if (config["audio"] is None) == (config["split"] is None):
        raise ConfigError("decode needs audio=x.wav (or a folder, or a list [a.wav,b.wav]) or split=test, not both")
    size = Size.of(config)
    arguments.check_value("strict", config["strict"], bool)
    search: Search = build.build(config["search"], where="search")
    device = str(devices.pick(config["device"]))
    what = config["split"] or places.name_of(config["audio"])
    output = Path(config["output"] or places.decoded(Path(config["checkpoint"]), what))
    atomic.require_place(output)
    if config["pictures"] is not None:
        atomic.require_folder(Path(config["pictures"]))
    transcriber = transcribe.load(config["checkpoint"], search, device, strict=config["strict"])
    if config["split"] is not None:
        _decode_own_split(transcriber, config, size, output)
        return
    lines = []
    for transcription in transcriber.transcribe_all(transcribe.find_audio(config["audio"])):
        progress.say(f"{transcription.id}: {transcription.text}")
        lines.append(transcription.to_json())
        if config["pictures"] is not None:
            _attention_pictures(transcription, Path(config["pictures"]))
    _write_lines(output, lines)
    progress.say(f"{len(lines)} utterance{'s' if len(lines) != 1 else ''} written to {output}")


def _attention_pictures(transcription: Transcription, folder: Path) -> None:
    """One for each piece in which a file was heard."""
    for number, piece in enumerate(transcription.pieces, start=1):
        part = f".{number}" if len(transcription.pieces) > 1 else ""
        picture = folder / f"{Path(transcription.id).stem}{part}.png"
        report.attention_picture(piece.weights, piece.symbols, transcription.state_ms, picture, transcription.id)
        progress.say(f"  {picture}")


def _decode_own_split(transcriber: transcribe.Transcriber, config: build.Config, size: Size, output: Path) -> None:
    if "corpus" not in transcriber.config:
        raise ConfigError(
            f"{config['checkpoint']} is a bundle, which knows no corpus: give recordings (audio=...), or a run folder"
        )
    corpus: Corpus = build.build(transcriber.config["corpus"], where="corpus")
    split = corpus.known_split(config["split"])
    utterances = preparation.prepared(corpus, config["data_dir"])[split]
    score = decode_split(transcriber, corpus, split, utterances, output, size)
    tables.print_score(score, corpus.metric, progress.console)
    progress.say(f"{split}: {error_rates.line(score, corpus.metric)}")
    progress.say(f"{len(utterances)} utterances written to {output}")


def summary(result: dict[str, Any]) -> str:
    """`dev PER 4.1 %, test PER 4.9 %, converged at step 850`"""
    if "broken" in result:
        return f"broken at step {result['steps']}: {result['broken']}"
    rates = []
    for split, values in result["splits"].items():
        metric = next(name for name in error_rates.SHORT_NAMES if name in values)
        rates.append(f"{split} {error_rates.SHORT_NAMES[metric]} {100 * values[metric]:.1f} %")
    return f"{', '.join(rates)}, converged at step {result['steps_to_converge']}"


def _write_lines(path: Path, lines: list[str]) -> None:
    atomic.write(path, "".join(line + "\n" for line in lines))
