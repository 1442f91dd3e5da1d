"""The verb `decode`: hypotheses of a checkpoint for audio files, or for a split of its corpus with their score."""

import json
from pathlib import Path

from las.data.corpora.base import Corpus
from las.data.loader import Loader, drop_unknown_symbols
from las.data.manifest import Utterance
from las.data.sampler import DECODED, BatchSize, sequential
from las.decoding import evaluation, tuned_search
from las.decoding.evaluation import Search
from las.decoding.transcriber import Transcriber, find_audio, load
from las.decoding.transcription import Transcription
from las.nn import rnn
from las.runtime import devices, progress
from las.runtime.config import Config, build, check_value
from las.runtime.errors import ConfigError
from las.scoring import error_rates, tables
from las.storage import atomic, output_paths
from las.training import data_preparation, plots


def decode_split(
    transcriber: Transcriber,
    corpus: Corpus,
    split: str,
    utterances: list[Utterance],
    output: Path,
    size: BatchSize = DECODED,
) -> error_rates.Score:
    """Decode a split in batches, write one line per utterance (`evaluation.entry`), and score it."""
    tokens = transcriber.tokens
    loader = Loader(drop_unknown_symbols(utterances, tokens), tokens, corpus.sample_rate)
    order = sequential(utterances, size)
    decoded = list(evaluation.decode(transcriber.model, transcriber.search, loader.batches(order)))
    texts = evaluation.texts(decoded, tokens)
    by_id = sorted(decoded, key=lambda utterance: utterance.id)
    entries = (evaluation.entry(utterance, tokens, transcriber.search.nbest) for utterance in by_id)
    _write_lines(output, [json.dumps(entry, ensure_ascii=False) for entry in entries])
    return corpus.score(split, utterances, texts)


def decode(overrides: list[str]) -> None:
    """Decode audio files, or a split of the checkpoint's corpus (then also score it), and write the hypotheses."""
    config = tuned_search.compose("decode", overrides)
    with rnn.use_kernel(str(config["kernel"])):
        _decode(config)


def _decode(config: Config) -> None:
    if (config["audio"] is None) == (config["split"] is None):
        raise ConfigError("decode needs audio=x.wav (or a folder, or a list [a.wav,b.wav]) or split=test, not both")
    size = BatchSize.from_config(config)
    check_value("strict", config["strict"], bool)
    search: Search = build(config["search"], where="search")
    device = str(devices.pick(config["device"]))
    subject = config["split"] or output_paths.name_of(config["audio"])
    output = Path(config["output"] or output_paths.decoded(Path(config["checkpoint"]), subject))
    atomic.require_place(output)
    if config["pictures"] is not None:
        atomic.require_folder(Path(config["pictures"]))
    transcriber = load(config["checkpoint"], search, device, strict=config["strict"])
    if config["split"] is not None:
        _decode_own_split(transcriber, config, size, output)
        return
    lines = []
    for transcription in transcriber.transcribe_all(find_audio(config["audio"])):
        progress.say(f"{transcription.id}: {transcription.text}")
        lines.append(transcription.to_json())
        if config["pictures"] is not None:
            _attention_pictures(transcription, Path(config["pictures"]))
    _write_lines(output, lines)
    progress.say(f"{len(lines)} utterance{'s' if len(lines) != 1 else ''} written to {output}")


def _attention_pictures(transcription: Transcription, folder: Path) -> None:
    """Draw heat maps of attention, one for each segment of a file."""
    for number, piece in enumerate(transcription.pieces, start=1):
        suffix = f".{number}" if len(transcription.pieces) > 1 else ""
        picture = folder / f"{Path(transcription.id).stem}{suffix}.png"
        plots.attention_picture(piece.weights, piece.symbols, transcription.state_ms, picture, transcription.id)
        progress.say(f"  {picture}")


def _decode_own_split(transcriber: Transcriber, config: Config, size: BatchSize, output: Path) -> None:
    if "corpus" not in transcriber.config:
        raise ConfigError(
            f"{config['checkpoint']} is a bundle, which has no corpus: give recordings (audio=...), or a run folder"
        )
    corpus: Corpus = build(transcriber.config["corpus"], where="corpus")
    split = corpus.known_split(config["split"])
    utterances = data_preparation.prepared(corpus, config["data_dir"])[split]
    score = decode_split(transcriber, corpus, split, utterances, output, size)
    tables.print_score(score, corpus.metric, progress.console)
    progress.say(f"{split}: {error_rates.line(score, corpus.metric)}")
    progress.say(f"{len(utterances)} utterances written to {output}")


def _write_lines(path: Path, lines: list[str]) -> None:
    atomic.write(path, (line + "\n" for line in lines))
