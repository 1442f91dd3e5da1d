"""The verb `decode`: hypotheses of a checkpoint for audio files, or for a split of its corpus with their score."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from las.config.build import Config, build, check_values, require
from las.data.augmentation.augmentation import Augmentation
from las.data.corpora.base import Corpus
from las.data.loader import BatchSize
from las.decoding import tuned_search
from las.decoding.base import Search
from las.decoding.evaluation import Condition, corpus_of, decode_split, write_lines, write_references
from las.decoding.transcriber import Transcriber, load
from las.decoding.transcription import Transcription, find_audio
from las.nn.kernels import choice
from las.runtime import devices, distributed, progress
from las.runtime.errors import ConfigError
from las.scoring import confidence, error_rates, tables, transcript_files
from las.storage import atomic, checkpoint
from las.training import data_preparation, plots


def decode(overrides: list[str]) -> None:
    """Decode audio files, or a split of the checkpoint's corpus (then also score it), and write the hypotheses.

    Started by `torchrun`, the processes share batches or files; the main one writes.
    """
    config = tuned_search.compose("decode", overrides)
    with choice.use_kernel(str(config["kernel"])):
        _decode(config)


def _decode(config: Config) -> None:
    if (config["audio"] is None) == (config["split"] is None):
        raise ConfigError("decode needs audio=x.wav (or a folder, or a list [a.wav,b.wav]) or split=test, not both")
    size = BatchSize.from_config(config)
    check_values(config, {"strict": bool, "seed": int, "ensemble": Sequence[str] | str, "ensemble_mean": str})
    require("temperature", config["temperature"], *confidence.TEMPERATURES)
    augment = _waveforms_only(config)
    search: Search = build(config["search"], where="search")
    subject = config["split"] or _name_of(config["audio"])
    others = [f"with_{_name_of(config['ensemble'])}"] if config["ensemble"] else []
    subject = ".".join([subject, *(part.label for part in augment.distortions.values()), *others])
    output = Path(config["output"] or checkpoint.decoded(Path(config["checkpoint"]), subject))
    atomic.require_place(output, ".jsonl")
    if config["pictures"] is not None:
        atomic.require_folder(Path(config["pictures"]))
    # Before large files are read: the split's name may be wrong.
    own = None if config["split"] is None else corpus_of(Path(config["checkpoint"]), config["split"])
    with distributed.process_group(devices.pick(config["device"])) as device:
        with distributed.only_main_prints(), distributed.main_first():
            options = {key: config[key] for key in ("strict", "precision", "ensemble", "ensemble_mean")}
            transcriber = load(config["checkpoint"], search, str(device), **options)
            transcriber.temperature = config["temperature"]
        if config["pictures"] is not None:
            _ = transcriber.attention_model  # raises for a model without attention
        if own is None:
            _decode_files(transcriber, config, output)
            return
        with distributed.only_main_prints():
            _decode_own_split(transcriber, config, own, size, output, augment)


def _name_of(audio: str | Sequence[str]) -> str:
    """Short name for recordings, `x.wav-1f3870be`: first file, number of further ones, hash of all paths."""
    paths = [Path(name).absolute() for name in ([audio] if isinstance(audio, str) else audio)]
    if not paths:
        raise ConfigError("audio=[] names no recording: give audio=x.wav, a folder, or a list [a.wav,b.wav]")
    digest = hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:8]
    first = re.sub(r"[^\w.-]", "_", paths[0].name)[:80]
    more = f"_and_{len(paths) - 1}_more" if len(paths) > 1 else ""
    return f"{first}{more}-{digest}"


def _decode_files(transcriber: Transcriber, config: Config, output: Path) -> None:
    """Decode audio files; every process prints the texts of its own."""
    names = find_audio(config["audio"])
    own, paths = [], distributed.share(names)
    for transcription in transcriber.transcribe_all(paths):
        progress.say(f"{transcription.id}: {transcription.text}")
        own.append(transcription.to_json())
        if config["pictures"] is not None:
            _attention_pictures(transcription, Path(config["pictures"]))
    shares = [iter(lines) for lines in distributed.gather(own)]
    lines = [next(shares[number % len(shares)]) for number in range(len(names))]
    write_lines(output, lines)
    with distributed.only_main_prints():
        progress.say(f"{len(lines)} utterance{'s' if len(lines) != 1 else ''} written to {output}")


def _waveforms_only(config: Config) -> Augmentation:
    """Return the augmentation of a condition. Raises ConfigError for one that is not of waveforms, and for files."""
    augment: Augmentation = build(config["augment"], where="augment")
    if augment.changes_features or augment.speeds != (1.0,):
        raise ConfigError(
            "augment: to decode, only the sound is changed, and this option has masks, warping or speeds for training: "
            "choose augment=noise, room or telephone"
        )
    if augment.distortions and config["split"] is None:
        raise ConfigError("augment: only a split is decoded in noise: split=test, or leave augment out")
    return augment


def _attention_pictures(transcription: Transcription, folder: Path) -> None:
    for number, piece in enumerate(transcription.pieces, start=1):
        suffix = f".{number}" if len(transcription.pieces) > 1 else ""
        picture = folder / f"{Path(transcription.id).stem}{suffix}.png"
        plots.attention_picture(piece.weights, piece.symbols, transcription.state_ms, picture, transcription.id)
        progress.say(f"  {picture}")


def _decode_own_split(
    transcriber: Transcriber,
    config: Config,
    own: tuple[Corpus, str],
    size: BatchSize,
    output: Path,
    augment: Augmentation,
) -> None:
    corpus, split = own
    with distributed.main_first():
        splits = data_preparation.prepared(corpus, config["data_dir"])
    condition, where = None, split
    utterances = splits[split]
    if augment.distortions:
        for line in augment.check(corpus.sample_rate):
            progress.say(line)
        condition = Condition(augment, config["seed"], splits[corpus.splits[0]])
        where += f", {', '.join(part.label for part in augment.distortions.values())}, seed {config['seed']}"
    score = decode_split(transcriber, corpus, split, utterances, output, size, condition)
    if config["output"] is None:
        write_references(output.parent, split, utterances)
    tables.print_score(score, corpus.metric, progress.console)
    progress.say(f"{where}: {error_rates.line(score, corpus.metric)}")
    if transcriber.search.nbest > 1 and distributed.is_main():
        for line in confidence.lines(confidence.judge(score, transcript_files.read(output), corpus.normalise)):
            progress.say(line)
    progress.say(f"{len(utterances)} utterances written to {output}")
