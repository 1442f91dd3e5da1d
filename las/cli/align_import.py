"""Labels of frames from an alignment that another system made: `las align import=...`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from las.config.build import Config, build, check_value
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.hmm import imported, imported_labels, labels
from las.hmm.frame_times import FrameTimes
from las.hmm.imported_labels import ImportedLabels
from las.hmm.topology import Topology
from las.nn.features import Features
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, suggest

NUM_LISTED = 20


def import_labels(
    config: Config, corpus: Corpus, splits: Mapping[str, Sequence[Utterance]], topology: Callable[[], Topology]
) -> dict[str, Any]:
    """Write the labels of the utterances that a file has alignments of; see configs/align.yaml.

    `topology` gives the states of the corpus's phones; tied states need none. Raises ConfigError for keys that do not
    go together, DataError for an alignment of another corpus, of other audio or phones, or of another frame shift, and
    for utterances without one unless `partial`.
    """
    path = _checked(config)
    features: Features = build(config["features"], where="features")(corpus.sample_rate)
    times = FrameTimes.of(features)
    if imported.has_times(path):
        source = imported_labels.of_times(path, topology(), times)
    elif config["pdf_map"] is not None:
        source = imported_labels.of_mapped_pdfs(path, Path(config["pdf_map"]), topology(), times)
    else:
        source = imported_labels.of_tied_pdfs(path, config["num_pdfs"], times)
    chosen = corpus.splits if config["split"] is None else (config["split"],)
    found = {}
    utterances = [each for split in chosen for each in splits[split]]
    for each in utterances:
        num_frames = features.num_frames(torch.tensor([round(each.duration_s * corpus.sample_rate)]))
        own = source.of(each, int(num_frames))
        if own is not None:
            found[each.id] = own
    _require([each.id for each in utterances if each.id not in found], len(utterances), source, config["partial"])
    if others := len(source.names) - len(found):
        progress.say(f"{path}: {others:,} alignments are of other utterances")
    stored = labels.write(config["labels"], found.items(), source.kind)
    progress.say(f"labels of {stored.counts().sum():,} frames of {len(found):,} utterances written to {stored.folder}")
    return {"utterances": len(found), "frames": int(stored.counts().sum())}


def _checked(config: Config) -> Path:
    """The file or folder. Raises ConfigError for keys that do not go with it."""
    for name, kind in (("import", str), ("pdf_map", str | None), ("num_pdfs", int | None)):
        check_value(name, config[name], kind)
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


def _require(missing: Sequence[str], count: int, source: ImportedLabels, partial: bool) -> None:
    """Raise DataError if no utterance has labels, and for any without them unless `partial`, which names them."""
    if not missing:
        return
    if len(missing) == count:
        raise DataError(
            f"{source.path}: an alignment of another corpus: it has no utterance {missing[0]}, nor any other of these "
            f"{count:,}.{suggest(missing[0], source.names)}"
        )
    listed = ", ".join(missing[:NUM_LISTED])
    more = f" and {len(missing) - NUM_LISTED} others" if len(missing) > NUM_LISTED else ""
    message = f"{source.path}: {len(missing)} of {count:,} utterances have no alignment: {listed}{more}"
    if not partial:
        raise DataError(f"{message}. Leave them out: partial=true")
    progress.say(f"{message}: they are left out")
