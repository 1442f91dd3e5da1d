"""What each verb does: overrides in, files and a printed answer out."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from las import batches, build, evaluation, progress, report, run, transcribe
from las.corpora.base import Corpus
from las.errors import ConfigError, DataError
from las.evaluation import Search
from las.manifest import Utterance
from las.model import ListenAttendSpell
from las.scoring import error_rates
from las.trainer import Trainer, pick_device, seed_everything

Splits = dict[str, list[Utterance]]


def prepare(overrides: list[str]) -> Splits:
    """Read or synthesise a corpus, write its manifests, check every training utterance, and print the table."""
    config = build.compose("train", overrides)
    corpus: Corpus = build.build(config["corpus"], where="corpus")
    prepared = prepare_corpus(corpus, Path(config["data_dir"]))
    problems = corpus.problems(prepared["train"])
    for problem in problems:
        progress.say(f"{problem.utterance_id}: {problem.reason}")
    progress.say(f"{len(problems)} of {len(prepared['train'])} training utterances cannot be used")
    return prepared


def prepare_corpus(corpus: Corpus, data_dir: Path) -> Splits:
    """The splits of a corpus from their manifests, and their table on the screen."""
    prepared = corpus.prepare(data_dir / "manifests")
    table = Table(title=f"{corpus.name}, {corpus.sample_rate} Hz, {corpus.tokens.size} symbols")
    for heading in ("split", "utterances", "hours", "speakers", "symbols", "shortest s", "longest s"):
        table.add_column(heading, justify="left" if heading == "split" else "right")
    for row in corpus.table(prepared):
        numbers = (
            f"{row.hours:.2f}",
            str(row.speakers),
            str(row.symbols),
            f"{row.shortest_s:.2f}",
            f"{row.longest_s:.2f}",
        )
        table.add_row(row.split, str(row.utterances), *numbers)
    progress.console.print(table)
    for note in corpus.notes():
        progress.say(note)
    return prepared


def train(overrides: list[str]) -> dict[str, Any]:
    """Train, then decode and score dev and test with the best checkpoint. The same command again resumes.

    Returns what result.json holds.
    """
    config = build.compose("train", overrides)
    build.check_keys(config)
    corpus: Corpus = build.build(config["corpus"], where="corpus")
    search: Search = build.build(config["search"], where="search")
    folder = run.Run(config)
    log = folder.directory / "log.txt"
    if folder.result is not None:
        progress.say(f"{folder.directory} is finished: {summary(folder.result)}")
        return folder.result
    prepared = prepare_corpus(corpus, Path(config["data_dir"]))
    trainer = make_trainer(config, corpus, prepared, folder)
    convergence = trainer.fit()
    progress.say(f"stopped at step {trainer.step}; best dev error at step {convergence.best_step}", log)
    result: dict[str, Any] = {
        "name": config["name"],
        "corpus": corpus.name,
        "seed": config["seed"],
        "parameters": num_parameters(trainer.model),
        "steps_to_converge": convergence.best_step,
        "steps_to_within_one_percent": convergence.within_one_percent_step,
        "steps": trainer.step,
        "train_utterances": len(trainer.train),
        "commit": run.commit(),
        "splits": {},
    }
    transcriber = transcribe.load(folder.directory, search, str(trainer.model.device))
    for split in corpus.splits[1:]:
        score = decode_split(transcriber, corpus, prepared[split], folder.directory / f"hypotheses.{split}.jsonl")
        result["splits"][split] = error_rates.as_dict(score, corpus.metric)
        progress.say(f"{split}: {error_rates.line(score, corpus.metric)}", log)
    if report.available():
        name = error_rates.SHORT_NAMES[corpus.metric]
        report.curves_picture(folder.metrics(), folder.directory / "curves.png", name, str(folder.directory))
    folder.finish(result)
    progress.say(f"{folder.directory}: {summary(result)}", log)
    return result


def make_trainer(config: build.Config, corpus: Corpus, prepared: Splits, folder: run.Run) -> Trainer:
    """The finished parts of a training, its data checked: what cannot be used is listed before step 1."""
    seed_everything(config["seed"])
    model: ListenAttendSpell = build.build(config["model"], where="model")(corpus.sample_rate, corpus.tokens.size)
    options = dict(config["trainer"])
    usable = usable_utterances(corpus, prepared["train"], model, folder, options.pop("max_bad_fraction"))
    if not usable:
        raise DataError(f"{corpus.name}: there is no training utterance left")
    progress.say(
        f"{config['name']}: {num_parameters(model):,} parameters, {len(usable)} training utterances, "
        f"batches of {options['batch_size']}, {pick_device(options['device'])}, {torch.get_num_threads()} threads",
        folder.directory / "log.txt",
    )
    make: Callable[..., Trainer] = build.checked(Trainer, options, "trainer")
    return make(
        model,
        build.build(config["loss"], where="loss"),
        build.build(config["optim"], where="optim"),
        build.build(config["schedule"], where="schedule"),
        build.build(config["validation_search"], where="validation_search"),
        corpus,
        usable,
        prepared["dev"],
        folder,
        config["seed"],
    )


def usable_utterances(
    corpus: Corpus, train: list[Utterance], model: ListenAttendSpell, folder: run.Run, max_bad_fraction: float
) -> list[Utterance]:
    """Training utterances without problems; the others go into bad_utterances.jsonl and on the screen.

    Raises DataError when more than `max_bad_fraction` of them have one.
    """
    problems = corpus.problems(train, lambda samples: int(model.num_states(torch.tensor([samples]))[0]))
    ledger = folder.directory / "bad_utterances.jsonl"
    ledger.write_text("".join(json.dumps(problem._asdict(), ensure_ascii=False) + "\n" for problem in problems))
    for problem in problems[:20]:
        progress.say(f"left out of training: {problem.utterance_id}: {problem.reason}", folder.directory / "log.txt")
    if len(problems) > 20:
        progress.say(f"... and {len(problems) - 20} more, all in {ledger}")
    if len(problems) > max_bad_fraction * len(train):
        raise DataError(
            f"{len(problems)} of {len(train)} training utterances cannot be used, more than the allowed "
            f"{100 * max_bad_fraction:g} %: they are listed in {ledger}. Mend the corpus, or allow more with "
            f"trainer.max_bad_fraction=..."
        )
    bad = {problem.utterance_id for problem in problems}
    return [utterance for utterance in train if utterance.id not in bad]


def decode_split(
    transcriber: transcribe.Transcriber, corpus: Corpus, utterances: list[Utterance], output: Path, batch_size: int = 16
) -> error_rates.Score:
    """Decode a split in batches, write one line per utterance, and score it."""
    loader = batches.Loader(utterances, corpus.tokens, corpus.sample_rate)
    order = batches.sequential(utterances, batch_size)
    decoded = list(evaluation.decode(transcriber.model, transcriber.search, loader.batches(order)))
    text = {each.id: corpus.tokens.decode(each.hypotheses[0].tokens) for each in decoded}
    by_id = sorted(decoded, key=lambda each: each.id)
    lines = [{"id": d.id, "text": text[d.id], "score": round(d.hypotheses[0].score, 4)} for d in by_id]
    _write_lines(output, [json.dumps(line, ensure_ascii=False) for line in lines])
    return evaluation.score(decoded, utterances, corpus)


def decode(overrides: list[str]) -> None:
    """Write what a checkpoint hears in audio files, or in a split of its corpus (then with its error rate)."""
    config = build.compose("decode", overrides)
    if (config["audio"] is None) == (config["split"] is None):
        raise ConfigError("decode needs audio=x.wav (or a folder, or a list [a.wav,b.wav]) or split=test, not both")
    search: Search = build.build(config["search"], where="search")
    device = str(pick_device(config["device"]))
    transcriber = transcribe.load(config["checkpoint"], search, device)
    output = Path(config["output"])
    if config["split"] is not None:
        _decode_own_split(transcriber, config, output)
        return
    lines = []
    for transcription in transcriber.transcribe_all(transcribe.find_audio(config["audio"])):
        progress.say(f"{transcription.id}: {transcription.text}")
        lines.append(transcription.to_json())
        if config["attention"] is not None:
            symbols = [*(token.symbol for token in transcription.tokens), "(end)"]
            picture = Path(config["attention"]) / f"{Path(transcription.id).stem}.png"
            report.attention_picture(transcription.weights, symbols, transcription.state_ms, picture, transcription.id)
            progress.say(f"  {picture}")
    _write_lines(output, lines)
    progress.say(f"{len(lines)} utterance{'s' if len(lines) != 1 else ''} written to {output}")


def _decode_own_split(transcriber: transcribe.Transcriber, config: build.Config, output: Path) -> None:
    corpus: Corpus = build.build(transcriber.config["corpus"], where="corpus")
    split = corpus.known_split(config["split"])
    utterances = corpus.prepare(Path(config["data_dir"]) / "manifests")[split]
    score = decode_split(transcriber, corpus, utterances, output, config["batch_size"])
    error_rates.print_table(score, corpus.metric, progress.console)
    progress.say(f"{split}: {error_rates.line(score, corpus.metric)}")
    progress.say(f"{len(utterances)} utterances written to {output}")


def num_parameters(model: torch.nn.Module) -> int:
    """Trained values of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def summary(result: dict[str, Any]) -> str:
    """`dev PER 4.1 %, test PER 4.9 %, converged at step 850`"""
    rates = []
    for split, values in result["splits"].items():
        metric = next(name for name in error_rates.SHORT_NAMES if name in values)
        rates.append(f"{split} {error_rates.SHORT_NAMES[metric]} {100 * values[metric]:.1f} %")
    return f"{', '.join(rates)}, converged at step {result['steps_to_converge']}"


def _write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    os.replace(temporary, path)
