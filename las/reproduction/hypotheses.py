"""Hypotheses of a table's trainings, and its rows compared utterance by utterance.

They lie next to the table (`<recipe>-<tier>-<corpus>.hypotheses.xz`), as scored, in lines of JSON. Two rows decode the
same utterances and are trained with the same seeds, so that errors are compared in pairs: what makes an utterance or a
seed hard for both rows falls out of their difference.
"""

import functools
import io
import json
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from las.config.build import build
from las.reproduction import result_folders, statistics
from las.reproduction.jobs import Job
from las.reproduction.results import Line, Outcome, Table
from las.reproduction.statistics import StatisticalTest
from las.runtime.errors import StorageError
from las.scoring import error_rates
from las.storage import atomic, bounded

SUFFIX = ".hypotheses.xz"
FEWEST_SPEAKERS = 8
"""Speakers from which the differences are those of speakers, not of utterances."""

Key = tuple[str, int, int, str, str]
"""Row, seed, copy and digest of a training, and a split."""
Counted = Callable[[Key], dict[str, error_rates.ErrorRate]]
"""Counts the errors of a training by speaker or utterance."""


class Split(NamedTuple):
    """Utterances of a split in the order of their hypotheses."""

    ids: tuple[str, ...]
    speakers: tuple[str, ...]
    references: tuple[str, ...]


class Comparison(NamedTuple):
    """A row against the first one of its table on a split."""

    row: str
    split: str
    test: StatisticalTest
    num_seeds: int
    num_units: int
    units: str
    """`speakers` or `utterances`."""


@dataclass
class Hypotheses:
    """Scored texts: those of utterances by split, and those that trainings decoded."""

    splits: dict[str, Split] = field(default_factory=dict)
    texts: dict[Key, tuple[str, ...]] = field(default_factory=dict)

    def add(self, job: Job) -> None:
        """Read the test parts of a finished training, as its corpus scores them.

        Raises StorageError for other utterances than those of the table's other trainings.
        """
        training = (job.row.name, job.seed, job.copy, job.digest)
        splits = [*(job.result or {}).get("splits", {})][1:]
        new = [split for split in splits if (*training, split) not in self.texts]
        if not new:
            return
        corpus = build(job.config["corpus"], where="corpus")
        for split in new:
            utterances = bounded.stored_lines(job.directory / f"references.{split}.jsonl")
            if not utterances:  # earlier releases wrote none
                continue
            lines = bounded.stored_lines(job.directory / f"hypotheses.{split}.jsonl")
            decoded = {each["id"]: each["text"] for each in lines}
            references = tuple(" ".join(corpus.normalise(each["text"])) for each in utterances)
            ids, speakers = (tuple(str(each.get(name)) for each in utterances) for name in ("id", "speaker"))
            if self.splits.setdefault(split, Split(ids, speakers, references)) != (ids, speakers, references):
                raise StorageError(
                    f"{job.directory}: {split} has other utterances than those of the table's other trainings: give "
                    "the corpus of these another name, corpus.name=..."
                )
            self.texts[*training, split] = tuple(" ".join(corpus.normalise(decoded.get(name, ""))) for name in ids)

    def compare(self, table: Table) -> list[Comparison]:
        """Compare each row with the first one, on every split, over the seeds that both were trained with."""
        first, *others = table.lines
        counted = functools.cache(functools.partial(self._counted, table.metric))  # the first row is in all pairs
        found = (self._compared(counted, first, line, split) for line in others for split in self.splits)
        return [each for each in found if each is not None]

    def _compared(self, counted_of: Counted, first: Line, second: Line, split: str) -> Comparison | None:
        before, after = ({(each.seed, each.copy): each for each in line.sound} for line in (first, second))
        pairs = [
            (_key(first.name, before[seed], split), _key(second.name, after[seed], split))
            for seed in sorted(before.keys() & after.keys())
        ]
        pairs = [pair for pair in pairs if all(key in self.texts for key in pair)]
        if len(pairs) < 2:
            return None
        counted = [[counted_of(key) for key in pair] for pair in pairs]
        units = [*counted[0][0]]
        words = sum(rate.words for rate in counted[0][0].values()) / len(units)
        differences = [[(there[unit].errors - here[unit].errors) / words for unit in units] for here, there in counted]
        test = statistics.paired_over_both(differences)
        return Comparison(second.name, split, test, len(pairs), len(units), self._units(split))

    def _units(self, split: str) -> str:
        speakers = {*self.splits[split].speakers} - {"None", ""}
        return "speakers" if len(speakers) >= FEWEST_SPEAKERS else "utterances"

    def _counted(self, metric: str, key: Key) -> dict[str, error_rates.ErrorRate]:
        """Errors of a training by speaker, or by utterance where there are few speakers."""
        ids, speakers, references = self.splits[key[-1]]
        of_ids = dict(zip(ids, speakers if self._units(key[-1]) == "speakers" else ids, strict=True))
        hypotheses = dict(zip(ids, self.texts[key], strict=True))
        score = error_rates.error_rate(dict(zip(ids, references, strict=True)), hypotheses, of_ids, metric=metric)
        return score.speakers

    def write(self, path: Path) -> None:
        """Write the file; the same content gives the same bytes."""
        lines: list[dict[str, Any]] = [{"split": name, **each._asdict()} for name, each in sorted(self.splits.items())]
        names = ("row", "seed", "copy", "digest", "split")
        lines += [dict(zip(names, key, strict=True)) | {"texts": each} for key, each in sorted(self.texts.items())]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        atomic.write(path, lzma.compress(text.encode(), preset=9))


def _key(row: str, outcome: Outcome, split: str) -> Key:
    return row, outcome.seed, outcome.copy, outcome.digest, split


def read(path: Path) -> Hypotheses:
    """Read a file that `Hypotheses.write` wrote. Raises StorageError for any other content."""
    found = Hypotheses()
    try:
        packed = lzma.LZMADecompressor()
        text = packed.decompress(bounded.read(path, bounded.JSON), bounded.LINES)
        if not packed.eof:
            raise ValueError(f"cut off, or of more than {bounded.LINES:,} bytes")
        for _, line in bounded.parse_lines(io.BytesIO(text)):
            if isinstance(line, ValueError):
                raise line
            if "texts" in line:
                key = (line["row"], line["seed"], line["copy"], line["digest"], line["split"])
                found.texts[key] = tuple(map(str, line["texts"]))
                if len(found.texts[key]) != len(found.splits[line["split"]].ids):
                    raise ValueError(f"{line['row']} has not as many texts as {line['split']} has utterances")
            else:
                parts = (tuple(map(str, line[name])) for name in Split._fields)
                found.splits[line["split"]] = Split(*parts)
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path}: no hypotheses of a table, or damaged ({error!r}): restore it, or move it away"
        ) from error
    return found


def stored(folder: Path, stem: str) -> Hypotheses:
    """Return the stored hypotheses of a table, none where it has none."""
    paths = result_folders.newest(folder, f"{stem}{SUFFIX}")
    return read(paths[0]) if paths else Hypotheses()


def update(folder: Path, stem: str, jobs: Sequence[Job]) -> Hypotheses:
    """Add those of the jobs that are finished to the stored ones, and write them where there are any."""
    found = stored(folder, stem)
    before = len(found.texts)
    for job in jobs:
        found.add(job)
    if len(found.texts) > before:
        found.write(folder / f"{stem}{SUFFIX}")
    return found
