"""The verb `align`: times of phones and words of a corpus, by models of its phones, trained from a flat start."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from las.cli import align_gaussians, align_import, align_network
from las.config.build import Config, build, check_value, compose, require
from las.data.corpora.base import Corpus
from las.data.manifest import Interval, Utterance
from las.hmm import corpus_labels, imported, segments, spoken, textgrid
from las.hmm.aligner import Aligner, Alignment
from las.hmm.decision_tree import Growth
from las.hmm.lexicon import Lexicon
from las.hmm.network_aligner import NetworkAligner
from las.hmm.segments import AlignedUtterance
from las.hmm.spoken import Spoken
from las.runtime import devices, progress
from las.runtime.errors import ConfigError, DataError, MissingValueError, suggest
from las.scoring import ctm
from las.storage import atomic
from las.training import data_preparation

FORMATS = (".ctm", ".TextGrid")
NEAR_S = 0.02
"""Distance within which a boundary counts as right, in seconds: the usual tolerance since Hosom (2009)."""


def align(overrides: list[str]) -> dict[str, Any]:
    """Train models of phones, align, write the times, and return statistics: see configs/align.yaml.

    With `gaussians` mixtures are trained on what was aligned, to find words by.

    With `checkpoint` a trained acoustic model aligns its own corpus, or another `corpus`; with `import` the labels come
    from an alignment that another system made. In both cases nothing is trained.
    """
    config = compose("align", overrides)
    for key in ("import", "checkpoint", "output", "lexicon", "split", "labels", "gaussians"):
        check_value(key, config[key], str | None)
    check_value("partial", config["partial"], bool)
    growth = _growth(config)
    output = _checked_output(config) if config["import"] is None else None
    torch.set_num_threads(devices.threads(config["trainer"]["threads"]))
    network = None if config["checkpoint"] is None else align_network.read(config, overrides)
    if network is not None:
        config["corpus"] = align_network.corpus_section(network, config, overrides)
        corpus = align_network.corpus(network, config["corpus"])
    else:
        corpus = build(config["corpus"], where="corpus")
    if config["split"] is not None:
        corpus.known_split(config["split"])
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), build(config["limits"], where="limits"))
    if output is None:
        return align_import.import_labels(
            config, corpus, data.splits, lambda: spoken.topology(corpus, spoken.dictionary(corpus, config["lexicon"]))
        )
    if network is None:
        dictionary = spoken.dictionary(corpus, config["lexicon"])
        spoken.say_dictionary(corpus, config["lexicon"], dictionary)
    else:
        dictionary = align_network.dictionary(network, config["lexicon"])
    everything = {split: spoken.spoken(corpus, utterances) for split, utterances in data.splits.items()}
    everything = _known(everything, dictionary, config["partial"])
    aligner: Aligner | NetworkAligner
    if network is None:
        features = build(config["features"], where="features")(corpus.sample_rate)
        aligner = Aligner(features, dictionary, spoken.topology(corpus, dictionary), growth=growth)
    else:
        aligner = align_network.aligner(network, dictionary, align_network.states(network), config)
    if config["gaussians"] is not None:
        align_gaussians.check(config, corpus, aligner)
    if isinstance(aligner, Aligner):
        aligner.train(everything[corpus.splits[0]])
    chosen = corpus.splits if config["split"] is None else (config["split"],)
    aligned = aligner.align([each for split in chosen for each in everything[split]])
    aligned.say_without_path()
    write(aligned.aligned, output, has_words=dictionary.silence is not None)
    progress.say(f"{len(aligned.aligned)} utterances written to {output}")
    if config["labels"] is not None:
        stored = corpus_labels.write(config["labels"], aligned, aligner.states, aligner.times)
        progress.say(f"labels of {stored.counts().sum():,} frames written to {stored.folder}")
    if config["gaussians"] is not None:
        first = corpus.splits[0]
        of_first = aligned if first in chosen else aligner.align(everything[first])
        align_gaussians.train(config, corpus, everything[first], of_first.labels, aligner)
    known = {each.utterance.id: each.utterance for split in chosen for each in everything[split]}
    return {"utterances": len(aligned.aligned), "without_path": aligned.without_path} | _compare(corpus, aligned, known)


def _growth(config: Config) -> Growth | None:
    """Limits for the tying of triphones, None for monophones. Raises ConfigError for values that are none."""
    check_value("triphones", config["triphones"], bool)
    for key, value in config["tying"].items():
        check_value(f"tying.{key}", value, float)
        require(f"tying.{key}", value, 0.0)
    return Growth(**config["tying"]) if config["triphones"] else None


def _checked_output(config: Config) -> Path:
    """The output. Raises ConfigError for an unknown format, StorageError for a place that cannot be written."""
    name = config["output"]
    if name is None:
        raise MissingValueError("output has no value: add output=times.ctm to the command")
    output = Path(name)
    if output.suffix not in FORMATS:
        raise ConfigError(f"output={name} must end in {' or '.join(FORMATS)}.{suggest(output.suffix, FORMATS)}")
    if output.suffix == ".ctm":
        atomic.require_place(output)
    else:
        atomic.require_folder(output.absolute(), output)
    return output


def _known(splits: dict[str, list[Spoken]], dictionary: Lexicon, partial: bool) -> dict[str, list[Spoken]]:
    """Utterances whose words the dictionary has. Raises DataError naming the others, unless they are left out."""
    if not partial:
        spoken.require_known(splits, dictionary, "leave these utterances out: partial=true")
        return splits
    missing = spoken.missing_words(splits, dictionary)
    if missing is None:
        return splits
    progress.say(f"{missing.summary}, which are left out:\n{missing.lines}")
    known = {
        split: [each for each in listed if each.utterance.id not in missing.utterance_ids]
        for split, listed in splits.items()
    }
    if not all(known.values()):
        raise DataError("no utterance of a split remains: is this the dictionary of another language or case?")
    return known


def write(aligned: Sequence[AlignedUtterance], output: Path, has_words: bool) -> None:
    """Write the times of words and phones, or of phones alone; times count from the start of each utterance.

    Raises DataError for utterances that would have the same name there.
    """
    name_of = imported.column if output.suffix == ".ctm" else textgrid.file_name
    first: dict[str, str] = {}
    for each in aligned:
        name = name_of(each.id)
        if first.setdefault(name, each.id) != each.id:
            raise DataError(f"{output}: utterances {first[name]!r} and {each.id!r} would both be called {name}")
    if output.suffix == ".ctm":
        if has_words:
            atomic.write(output, ctm.text(_marks(aligned, "words")))
        phones = output.with_suffix(".phones.ctm") if has_words else output
        atomic.write(phones, ctm.text(_marks(aligned, "phones")))
        return
    for each in aligned:
        tiers = {"words": each.words, "phones": each.phones} if has_words else {"phones": each.phones}
        atomic.write(output / textgrid.file_name(each.id), textgrid.text(tiers, each.duration_s))


def _marks(aligned: Sequence[AlignedUtterance], tier: str) -> list[ctm.CTMWord]:
    marks = []
    for each in aligned:
        intervals: list[Interval] = getattr(each, tier)
        name = imported.column(each.id)
        for interval in intervals:
            start, end = round(interval.start_s, 4), round(interval.end_s, 4)
            marks.append(ctm.CTMWord(name, "1", start, round(end - start, 4), interval.symbol))
    return marks


def _compare(corpus: Corpus, aligned: Alignment, known: dict[str, Utterance]) -> dict[str, Any]:
    """Compare boundaries with known times, where the corpus has them for each phone."""
    distances: list[float] = []
    for each in aligned.aligned:
        distances += segments.boundary_distances(each.phones, corpus.phone_times(known[each.id]))
    if not distances:
        return {}
    median, near = statistics.median(distances), sum(each <= NEAR_S for each in distances) / len(distances)
    progress.say(
        f"{len(distances):,} boundaries with known times: {100 * near:.1f} % within {1000 * NEAR_S:g} ms, median "
        f"{1000 * median:.1f} ms"
    )
    return {"boundaries": len(distances), "within_20_ms": near, "median_ms": 1000 * median}
