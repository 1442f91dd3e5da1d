"""Hypotheses of a table's trainings: stored, read again, and compared utterance by utterance."""

import functools
import json
import lzma
import statistics as plain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from las.config.build import Config, compose
from las.reproduction import hypotheses, markdown, recipe, statistics
from las.reproduction.hypotheses import SUFFIX
from las.reproduction.jobs import Job
from las.reproduction.results import Line, Outcome, Table
from las.runtime.errors import StorageError

STEM = "bo18_table3-open-timit"
REFERENCES = {f"s{speaker}_{number}": "aa iy sil aa" for speaker in range(9) for number in range(3)}
ROWS = recipe.read("bo18_table3").rows[:2]


@functools.cache
def config() -> Config:
    return compose("train", ["corpus=timit", "corpus.root=nowhere"])


def job(folder: Path, row: int, seed: int, texts: dict[str, str], references: dict[str, str] = REFERENCES) -> Job:
    """A finished training of a row with these hypotheses of the test."""
    place = folder / ROWS[row].name / f"seed{seed}-abc{seed}"
    place.mkdir(parents=True, exist_ok=True)
    result = {"steps": 1, "splits": {split: {"phone_error_rate": 0.5} for split in ("dev", "test")}}
    (place / "result.json").write_text(json.dumps(result))
    for name, lines in (("references", references), ("hypotheses", texts)):
        entries = [{"id": each, "speaker": each.split("_")[0], "text": text} for each, text in lines.items()]
        (place / f"{name}.test.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return Job(ROWS[row], seed, 1, (), config(), place)


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    """The second row has one error less than the first in every utterance of every seed, but for one utterance."""
    made = []
    for seed in (1, 2, 3):
        wrong = dict.fromkeys(REFERENCES, "iy iy sil aa") | {f"s{seed}_0": "iy sil iy"}
        made += [job(tmp_path, 0, seed, wrong), job(tmp_path, 1, seed, REFERENCES | {"s0_0": "iy sil"})]
    return made


def table(jobs: list[Job]) -> Table:
    def outcome(each: Job) -> Outcome:
        return Outcome(each.seed, 1, 1, "abc", "", {"test": 0.5}, None, digest=each.digest)

    lines = [Line(row.name, row.label, tuple(outcome(each) for each in jobs if each.row == row)) for row in ROWS]
    return Table("bo18_table3", "open", "timit", "phone_error_rate", "las reproduce", tuple(lines))


def test_rows_are_compared_on_the_same_utterances_and_seeds(jobs: list[Job], tmp_path: Path) -> None:
    stored = hypotheses.update(tmp_path, STEM, jobs)
    (found,) = stored.compare(table(jobs))
    assert (found.num_seeds, found.num_units, found.units) == (3, 9, "speakers")
    # 27 utterances of 4 phones: one error each, but for one of two errors; against two errors of one utterance.
    assert found.test.difference == pytest.approx((2 - 28) / 108)
    assert found.test.interval is not None and found.test.interval[1] < 0 and (found.test.p or 1) < 0.01
    page = markdown.document(recipe.read("bo18_table3"), table(jobs), {}, [found])
    assert "| -24.1 | [" in page and "9 speakers" in page
    assert hypotheses.Hypotheses().compare(table(jobs)) == []


def test_they_are_read_again_and_only_grow(jobs: list[Job], tmp_path: Path) -> None:
    path = tmp_path / f"{STEM}{SUFFIX}"
    some = hypotheses.update(tmp_path, STEM, jobs[:4])
    written = path.read_bytes()
    assert hypotheses.update(tmp_path, STEM, jobs[:2]) == some and path.read_bytes() == written
    assert hypotheses.update(tmp_path, STEM, jobs[4:]).texts.keys() > some.texts.keys()
    assert hypotheses.read(path).compare(table(jobs)) == hypotheses.update(tmp_path, STEM, jobs).compare(table(jobs))


def test_other_utterances_are_refused(jobs: list[Job], tmp_path: Path) -> None:
    hypotheses.update(tmp_path, STEM, jobs)
    with pytest.raises(StorageError, match=r"seed4.*corpus\.name"):
        hypotheses.update(tmp_path, STEM, [job(tmp_path, 0, 4, {}, {"s0_0": "aa"})])


@pytest.mark.parametrize(
    "content", [b"", b"no xz", lzma.compress(b"{}\n"), lzma.compress(b"[1]\n"), lzma.compress(b"{"), "cut"]
)
def test_a_damaged_file_is_named(jobs: list[Job], tmp_path: Path, content: Any) -> None:
    path = tmp_path / f"{STEM}{SUFFIX}"
    hypotheses.update(tmp_path, STEM, jobs)
    path.write_bytes(path.read_bytes()[:-40] if content == "cut" else content)
    with pytest.raises(StorageError, match=STEM):
        hypotheses.stored(tmp_path, STEM)


def test_without_spread_over_units_it_is_students_test_of_the_seeds() -> None:
    seeds = [0.1, -0.3, 0.4, 0.7]
    test = statistics.paired_over_both([[each] * 12 for each in seeds])
    summary = statistics.summary(seeds)
    assert test.interval == pytest.approx(summary.interval) and test.difference == pytest.approx(plain.fmean(seeds))


@pytest.mark.slow
@pytest.mark.parametrize("num_seeds", [3, 5])
@pytest.mark.parametrize(("by_seed", "by_unit"), [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (1.0, 1.0), (0.0, 0.0)])
def test_at_most_one_false_difference_in_twenty(num_seeds: int, by_seed: float, by_unit: float) -> None:
    """Sixteen speakers, as the tables have them, with what seeds and speakers have for themselves."""
    generator, found = np.random.default_rng(1), []
    for _ in range(1000):
        parts = by_seed * generator.normal(size=(num_seeds, 1)) + by_unit * generator.normal(size=(1, 16))
        found.append(statistics.paired_over_both(parts + 0.5 * generator.normal(size=(num_seeds, 16))).p)
    assert sum(p is not None and p <= 0.05 for p in found) <= 50 + 14  # two standard deviations of the count
