"""The verb `align`: times of phones and words of a corpus, by models of its phones, trained from a flat start.

With `checkpoint=` a trained acoustic model aligns its own corpus or other recordings; with `import=` the labels of
frames come from an alignment that another system made. In both cases nothing is trained.
"""

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from las.cli import align_gaussians
from las.config.build import Config, build, check_value, check_values, compose, require, shown
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.decoding import transcriber
from las.decoding.transcriber import TrainedModel
from las.hmm import imported, labels, lexicon, segments, spoken, textgrid
from las.hmm.aligner import Aligner, Alignment, NetworkAligner, write_labels
from las.hmm.decision_tree import Growth
from las.hmm.imported import ImportedLabels
from las.hmm.lexicon import Lexicon
from las.hmm.segments import AlignedUtterance, FrameTimes
from las.hmm.spoken import Spoken
from las.hmm.topology import StateNumbering, Topology
from las.nn.acoustic_model import AcousticModel
from las.nn.features import Features
from las.runtime import devices, progress
from las.runtime.errors import ConfigError, DataError, MissingValueError, first_of, suggest
from las.scoring import ctm
from las.storage import atomic
from las.training import data_preparation

FORMATS = (".ctm", ".TextGrid")
NEAR_S = 0.02
"""Distance within which a boundary counts as right, in seconds: the usual tolerance since Hosom (2009)."""


def align(overrides: list[str]) -> dict[str, Any]:
    """Align, write the times, and return statistics: see configs/align.yaml.

    With `gaussians` mixtures are trained on what was aligned, to find words by.
    """
    config = compose("align", overrides)
    paths = ("import", "checkpoint", "output", "lexicon", "split", "labels", "gaussians")
    check_values(config, dict.fromkeys(paths, str | None) | {"partial": bool})
    growth = _growth(config)
    output = _checked_output(config) if config["import"] is None else None
    torch.set_num_threads(devices.threads(config["trainer"]["threads"]))
    network = None if config["checkpoint"] is None else _network(config, overrides)
    if network is not None:
        config["corpus"] = _corpus_section(network, config, overrides)
    corpus: Corpus = build(config["corpus"], where="corpus")
    if network is not None and corpus.sample_rate != network.sample_rate:
        raise ConfigError(
            f"{corpus.name} has {corpus.sample_rate} samples per second, and the model of the checkpoint reads "
            f"{network.sample_rate}: corpus.sample_rate={network.sample_rate}"
        )
    if config["split"] is not None:
        corpus.known_split(config["split"])
    chosen = corpus.splits if config["split"] is None else (config["split"],)
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), build(config["limits"], where="limits"))
    if output is None:
        return _import(config, corpus, [each for split in chosen for each in data.splits[split]])
    if network is None:
        dictionary = spoken.dictionary(corpus, config["lexicon"])
        spoken.say_dictionary(corpus, config["lexicon"], dictionary)
    else:
        dictionary = _dictionary(network, config["lexicon"])
    everything = {split: spoken.spoken(corpus, utterances) for split, utterances in data.splits.items()}
    everything = _known(everything, dictionary, config["partial"])
    aligner: Aligner | NetworkAligner
    if network is None:
        features = build(config["features"], where="features")(corpus.sample_rate)
        aligner = Aligner(features, dictionary, spoken.topology(corpus, dictionary), growth=growth)
    else:
        aligner = _network_aligner(network, dictionary, config)
    if config["gaussians"] is not None:
        align_gaussians.check(config, corpus, aligner)
    if isinstance(aligner, Aligner):
        aligner.train(everything[corpus.splits[0]])
    aligned = aligner.align([each for split in chosen for each in everything[split]])
    aligned.say_without_path()
    _write(aligned.aligned, output, has_words=dictionary.silence is not None)
    progress.say(f"{len(aligned.aligned)} utterances written to {output}")
    if config["labels"] is not None:
        stored = write_labels(config["labels"], aligned, aligner.states, aligner.times)
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
    """Return the output. Raises ConfigError for an unknown format, StorageError for a place that cannot be written."""
    name = config["output"]
    if name is None:
        raise MissingValueError("output has no value: add output=times.ctm to the command")
    output = Path(name)
    atomic.require_suffix(output, *FORMATS)
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


def _write(aligned: Sequence[AlignedUtterance], output: Path, has_words: bool) -> None:
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
        name = imported.column(each.id)
        for interval in getattr(each, tier):
            start, end = round(interval.start_s, 4), round(interval.end_s, 4)
            marks.append(ctm.CTMWord(name, "1", start, round(end - start, 4), interval.symbol))
    return marks


def _compare(corpus: Corpus, aligned: Alignment, known: Mapping[str, Utterance]) -> dict[str, Any]:
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


def _network(config: Config, overrides: list[str]) -> TrainedModel:
    """Restore the acoustic model. Raises ConfigError for another model, and for keys that do not go with it."""
    for override in overrides:
        if re.split(r"[.=@]", override.lstrip("+~"))[0] == "features":
            raise ConfigError(f"{override}: align uses the features of the checkpoint: leave this key out")
    for key in ("import", "triphones"):
        if config[key]:
            raise ConfigError(
                f"{key}={shown(config[key])} does not go with checkpoint=, whose model aligns by its own states"
            )
    check_value("strict", config["strict"], bool)
    for key in ("acoustic_scale", "prior_scale"):
        check_value(key, config[key], float)
        require(key, config[key], 0.0)
    network = transcriber.restore(config["checkpoint"], config["strict"])
    if not isinstance(network.model, AcousticModel):
        raise ConfigError(
            f"checkpoint={config['checkpoint']} has no acoustic model, whose states could be aligned. To train one: "
            "las train model=hybrid_small"
        )
    return network


def _corpus_section(network: TrainedModel, config: Config, overrides: list[str]) -> Config:
    """Return the section `corpus` of the recordings: that of the command if it names a corpus, else that of the
    training.

    Raises ConfigError for other keys of a corpus that is not named, and for a bundle, which has none, without a corpus.
    """
    named: Config = config["corpus"]
    if any(override.startswith("corpus=") for override in overrides):
        return named
    if of_other := [override for override in overrides if override.lstrip("+~").startswith("corpus.")]:
        raise ConfigError(
            f"{of_other[0]}: other recordings than those of the training need a corpus=, e.g. corpus=files"
        )
    if "corpus" not in network.config:
        raise ConfigError(
            f"checkpoint={config['checkpoint']} is a bundle, which has no corpus: name a run folder, or recordings "
            "with corpus="
        )
    section: Config = network.config["corpus"]
    return section


def _dictionary(network: TrainedModel, given: str | None) -> Lexicon:
    """Return the dictionary of the model, or what its phones can say of a file.

    Raises ConfigError for a file where texts are phones, DataError as `lexicon.read` does.
    """
    own = network.lexicon or lexicon.of_phones(network.tokens.symbols[1:])
    if given is None:
        return own
    if own.silence is None:
        raise ConfigError(f"lexicon={given}: the model of the checkpoint is one of texts that are phones: leave it out")
    read = lexicon.read(given, own.silence)
    sayable, unknown = read.of_phones(own.phones)
    if unknown:
        progress.say(
            f"{given}: {len(read.entries) - len(sayable.entries):,} of {len(read.entries):,} words are left out: the "
            f"model of the checkpoint has no states of the phones {', '.join(unknown)}"
        )
    return sayable


def _network_aligner(network: TrainedModel, dictionary: Lexicon, config: Config) -> NetworkAligner:
    """Return the aligner of a restored model. Raises ConfigError for imported tied states without phones."""
    model = network.model
    assert isinstance(model, AcousticModel)
    states: StateNumbering
    if network.tied is not None:
        states = network.tied
    elif network.lexicon is None or network.lexicon.silence is None:
        states = Topology(network.tokens.symbols[1:])
    else:
        states = Topology.of_lexicon(network.lexicon)
    if model.num_pdfs != states.num_pdfs:
        raise ConfigError(
            f"checkpoint={config['checkpoint']} has {model.num_pdfs} states, and the phones of the dictionary have "
            f"{states.num_pdfs}: tied states that were imported are not to be aligned"
        )
    model = model.eval().to(devices.pick(config["trainer"]["device"]))
    return NetworkAligner(model, dictionary, states, config["acoustic_scale"], config["prior_scale"])


def _import(config: Config, corpus: Corpus, utterances: Sequence[Utterance]) -> dict[str, Any]:
    """Write the labels of the utterances that a file has alignments of.

    Raises ConfigError for keys that do not go together, DataError for an alignment of another corpus, of other audio or
    phones, or of another frame shift, and for utterances without one unless `partial`.
    """
    path = _checked_import(config)
    features: Features = build(config["features"], where="features")(corpus.sample_rate)
    times = FrameTimes.of(features)
    if config["pdf_map"] is None and not imported.has_times(path):
        source = imported.of_tied_pdfs(path, config["num_pdfs"], times)
    else:
        topology = spoken.topology(corpus, spoken.dictionary(corpus, config["lexicon"]))
        source = (
            imported.of_times(path, topology, times)
            if config["pdf_map"] is None
            else imported.of_mapped_pdfs(path, Path(config["pdf_map"]), topology, times)
        )
    found = {}
    for each in utterances:
        num_frames = features.num_frames(torch.tensor([round(each.duration_s * corpus.sample_rate)]))
        if (own := source.of(each, int(num_frames))) is not None:
            found[each.id] = own
    _require_labels([each.id for each in utterances if each.id not in found], len(utterances), source, config)
    if others := len(source.names) - len(found):
        progress.say(f"{path}: {others:,} alignments are of other utterances")
    stored = labels.write(config["labels"], found.items(), source.kind)
    progress.say(f"labels of {stored.counts().sum():,} frames of {len(found):,} utterances written to {stored.folder}")
    return {"utterances": len(found), "frames": int(stored.counts().sum())}


def _checked_import(config: Config) -> Path:
    """Return the file or folder of an alignment. Raises ConfigError for keys that do not go with it."""
    check_values(config, {"import": str, "pdf_map": str | None, "num_pdfs": int | None})
    path = Path(config["import"])
    if not path.exists():
        raise ConfigError(f"import={path}: there is no such file or folder")
    if config["labels"] is None:
        raise ConfigError(f"import={path} needs a folder for the labels of frames: add labels=FOLDER")
    if config["gaussians"] is not None:
        raise ConfigError(f"gaussians={config['gaussians']} does not go with import=, whose states may be unknown")
    given = [name for name in ("pdf_map", "num_pdfs") if config[name] is not None]
    if given and imported.has_times(path):
        raise ConfigError(f"import={path} names phones: leave out {given[0]}, which is for numbers of pdfs")
    if len(given) == 2:
        raise ConfigError("num_pdfs: pdf_map maps to the pdfs of the corpus's phones: leave out one of the two")
    return path


def _require_labels(missing: list[str], count: int, source: ImportedLabels, config: Config) -> None:
    """Raise DataError if no utterance has labels, and for any without them unless `partial`, which names them."""
    if not missing:
        return
    if len(missing) == count:
        raise DataError(
            f"{source.path}: an alignment of another corpus: it has no utterance {missing[0]}, nor any other of these "
            f"{count:,}.{suggest(missing[0], source.names)}"
        )
    message = f"{source.path}: {len(missing)} of {count:,} utterances have no alignment: {first_of(missing, 20)}"
    if not config["partial"]:
        raise DataError(f"{message}. Leave them out: partial=true")
    progress.say(f"{message}: they are left out")
