"""Pages of recipes: made of the table alone; nothing in them is loaded from anywhere, and a browser shows all of it."""

import base64
import dataclasses
import io
import json
import re
import shutil
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import soundfile
from html_page import Page
from places import REPOSITORY
from tiers import rest_slow

from las.cli import reproduce
from las.reproduction import (
    excerpts,
    html_report,
    hypotheses,
    judging,
    learning_curves,
    markdown,
    recipe,
    result_folders,
    results,
    tables,
)
from las.reproduction import jobs as reproduction_jobs
from las.reproduction.excerpts import Excerpt, RowExample
from las.reproduction.jobs import Job
from las.reproduction.learning_curves import Series
from las.reproduction.results import Table
from las.training import plots


class Reported(NamedTuple):
    """A folder of reports, their jobs in the order of rows, and the table."""

    root: Path
    jobs: list[Job]
    table: Table

    @property
    def excerpt(self) -> Excerpt:
        assert self.table.excerpt is not None
        return self.table.excerpt


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """The reports of two rows, trained for a few steps."""
    import tiny

    root = tiny.tree(tmp_path_factory.mktemp("reported"))
    own = ["recipe=bo18_table1", "tier=smoke", "seeds=1", f"runs_dir={root / 'runs'}", f"results_dir={root}"]
    given = ["corpus=timit", f"corpus.root={root / 'TIMIT'}", "corpus.partial=true", f"data_dir={root / 'data'}"]
    given += [*tiny.SHORT, "trainer.attention_pictures=false"]
    reproduce.reproduce([*own, *given])
    jobs = reproduction_jobs.jobs(recipe.read("bo18_table1"), "smoke", 1, root / "runs", given)
    return Reported(root, jobs, results.read(root / "bo18_table1-smoke-timit.json"))


def test_a_band_goes_over_the_seeds_that_have_a_step() -> None:
    found = learning_curves.series("row", [{1: 2.0, 2: 1.0}, {1: 4.0}], lambda points: points)
    assert found == Series("row", [1.0, 2.0], [3.0, 1.0], [2.0, 1.0], [4.0, 1.0])


def test_trainings_validated_at_other_steps_are_interpolated() -> None:
    found = learning_curves.series("row", [{10: 4.0, 30: 2.0}, {20: 9.0, 40: 7.0}], lambda points: points)
    assert found == Series(
        "row", [10.0, 20.0, 30.0, 40.0], [4.0, 6.0, 5.0, 7.0], [4.0, 3.0, 2.0, 7.0], [4.0, 9.0, 8.0, 7.0]
    )


def test_long_curves_are_thinned_for_the_table() -> None:
    found = Series("row", [*range(1000)], [number / 7 for number in range(1000)], [0.0] * 1000, [1.0] * 1000)
    short = found.thinned(48)
    assert [len(part) for part in short[1:]] == [48] * 4 and (short.x[0], short.x[-1]) == (0, 999)
    assert short.y[-1] == 142.7, "four digits"
    assert found._replace(x=[], y=[], low=[], high=[]).thinned(48).x == []


def test_every_row_decodes_the_example(reported: Reported) -> None:
    found = reported.excerpt.example
    assert found is not None and [each.label for each in found.rows] == ["layer norm in the listener", "no layer norm"]
    row = found.rows[0]
    assert found.id == "mdab0_sx0" and row.symbols[-1] == "(end)" and len(row.symbols) == len(found.intervals) + 1
    levels = row.levels()
    assert len(levels) == len(row.symbols) and levels.max() == 1.0
    waveform, rate = soundfile.read(io.BytesIO(base64.b64decode(excerpts.sound(reported.jobs).partition(",")[2])))
    assert rate == 16000 and len(waveform) == round(found.duration_s * rate)
    assert excerpts.example([]) is None and excerpts.sound([]) == ""


def test_attention_comes_back_in_255_levels() -> None:
    weights = np.array([[0.1, 0.4], [0.25, 0.0], [0.0, 0.2]])
    row = RowExample("row", "a b", ("a", "b", "(end)"), excerpts.packed(weights), {})
    np.testing.assert_allclose(row.levels(), weights / 0.4, atol=0.5 / 255)
    bomb = base64.b64encode(zlib.compress(bytes(10 * excerpts.LARGEST))).decode()
    assert dataclasses.replace(row, symbols=("a",), weights=bomb).levels().size == excerpts.LARGEST


def test_a_row_whose_checkpoint_is_gone_is_left_out(reported: Reported, tmp_path: Path) -> None:
    moved = []
    for job in reported.jobs:
        copy = shutil.copytree(job.directory, tmp_path / job.row.name / str(job.seed))
        moved.append(dataclasses.replace(job, directory=copy))
    shutil.rmtree(moved[0].directory / "checkpoints")
    found = excerpts.example(moved)
    assert found is not None and [each.label for each in found.rows] == ["no layer norm"]


def test_the_table_has_what_the_page_shows_of_run_folders(reported: Reported) -> None:
    """Without run folders it stays; of one row trained anew, the others' stays."""
    found = reported.excerpt
    assert Excerpt.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert found.curves.keys() == {"loss", "gradient_norm"} and len(found.distributions) == 2
    assert all(len(each.quantiles) == 5 for parameters in found.distributions.values() for each in parameters.values())
    assert excerpts.excerpt([], found) == found and excerpts.excerpt([], None) is None
    one = [job for job in reported.jobs if job.row.label == "no layer norm"]
    again = excerpts.excerpt(one, found)
    assert again == found
    other = excerpts.excerpt(one, dataclasses.replace(found, example=dataclasses.replace(found.example, id="another")))
    assert (
        other is not None
        and other.example is not None
        and [each.label for each in other.example.rows] == ["no layer norm"]
    )


def test_the_page_needs_nothing_else_and_has_tables_pictures_and_sound(reported: Reported) -> None:
    text = (reported.root / "bo18_table1-smoke-timit.html").read_text("utf-8")
    found = Page(text)
    assert found.open == [] and found.loads and all(each.startswith("data:") for each in found.loads)
    assert not re.search(r"@import|url\(|<script|<link|https?://", text)
    assert found.tags["table"] == 3 and found.tags["audio"] == 1
    assert found.tags["img"] == found.tags["figure"] > 10
    assert headings(text) == [*SECTIONS["results"], "Training", *SECTIONS["runs"], "Assumed at the tier smoke"]
    assert "diagonality: correlation" in text, "the legend of the attention measures"
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text


def headings(page: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page)


SECTIONS = {"results": ["Results", "Claims"], "runs": ["Attention on one utterance", "Distributions of parameters"]}


def test_a_page_without_matplotlib_says_what_to_install(reported: Reported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "available", lambda: False)
    text = html_report.page(recipe.read("bo18_table1"), reported.table, {})
    assert Page(text).tags["figure"] == 0 and "las-asr[plots]" in text and Page(text).tags["table"] == 2


STORED = {path.stem: path for path in sorted((REPOSITORY / "recipes" / "results").glob("*-*-*.json"))}
FIGURES = {
    **dict.fromkeys(("bo18_table1-open-an4", "bo18_table1-open-synthetic_hard", "noisy_norm-open-synthetic_hard"), 21),
    **dict.fromkeys(("bo18_table3-open-an4", "bo18_table3-open-synthetic_hard"), 39),
    **dict.fromkeys(("z20_depth-open-synthetic_hard", "z20_variance-open-synthetic_hard"), 41),
    **{"bo18_table2-open-an4": 3, "lr_sweep-open-synthetic_hard": 43, "smoothness-open-synthetic_hard": 23},
    **{"z20_end_to_end-open-synthetic_hard": 51, "z20_hybrid-open-synthetic_hard": 37},
    **{
        "z20_predictions-open-synthetic_hard": 45,
        "z20_twice-open-synthetic_hard": 24,
        "how_much_ln-open-synthetic_hard": 50,
    },
    **dict.fromkeys(("bo18_controls-open-synthetic_hard", "bo18_published-open-synthetic_hard"), 40),
    **{
        "norms-open-synthetic_hard": 46,
        "cells-open-an4": 35,
        "norms-open-an4": 45,
        "cells-open-synthetic_hard": 37,
        "criteria-open-an4": 30,
        "z20_controls-open-synthetic_hard": 46,
        "z20_hybrid_controls-open-synthetic_hard": 38,
    },
    **{
        "ln_with_specaugment-open-synthetic_hard": 24,
        "z20_rates-open-synthetic_hard": 32,
        "an4_augmentation-open-an4": 36,
    },
}
"""Figures of each stored table's page: none may be lost."""


KINDS = ("bo18_table2-open-an4", "lr_sweep-open-synthetic_hard", "z20_hybrid-open-synthetic_hard")
"""Without an excerpt of runs, with learning rates, and of acoustic models."""


@pytest.mark.parametrize("stem", rest_slow(dict.fromkeys([*KINDS, *STORED]), keep=len(KINDS)))
def test_every_page_is_made_of_its_table_alone(stem: str) -> None:
    """All sections, of which those of run folders come from the table."""
    table = results.read(STORED[stem])
    recorded = judging.recorded(STORED[stem].parent / judging.RECORDS, table.tier, table.corpus)
    verdicts = judging.of_recipe(recorded, table.recipe)
    page = html_report.page(recipe.read(table.recipe), table, verdicts)
    asked = ["Results", *(["Learning rates"] if tables.rates(table)[1] else []), *(["Claims"] if verdicts else [])]
    example = "Texts of one utterance" if "hybrid" in stem else "Attention on one utterance"
    of_runs = [] if "table2" in stem else [example, "Distributions of parameters"]
    assert headings(page) == [*asked, "Training", *of_runs, f"Assumed at the tier {table.tier}"]
    assert Page(page).open == [] and Page(page).tags["figure"] == FIGURES[stem]
    excerpt = {} if table.excerpt is None else table.excerpt.to_dict()
    assert len(json.dumps(excerpt)) <= 100_000


@pytest.mark.parametrize("stem", STORED)
def test_the_stored_page_prints_the_verdicts_of_claims_json(stem: str) -> None:
    table, folder = results.read(STORED[stem]), STORED[stem].parent
    verdicts = judging.recorded(folder / judging.RECORDS, table.tier, table.corpus)
    compared = hypotheses.stored(folder, stem).compare(table)
    own = judging.of_recipe(verdicts, table.recipe)
    assert (folder / f"{stem}.md").read_text("utf-8") == markdown.document(
        recipe.read(table.recipe), table, own, compared
    )
    page = markdown.claims_document(verdicts, table.tier, table.corpus)
    assert (folder / f"claims-{table.tier}-{table.corpus}.md").read_text("utf-8") == page


def test_claims_json_is_made_of_the_stored_tables() -> None:
    (folder,) = {path.parent for path in STORED.values()}
    tables = [results.read(path) for path in result_folders.newest(folder, "*-*-*.json")]  # also those in progress
    made = judging.records(tables, {"C26": reproduce.of_invariances()})
    assert json.loads((folder / judging.RECORDS).read_text("utf-8")) == json.loads(json.dumps(made))


VERDICT = re.compile(
    r"(C\d+)[^:()|]{0,60}:\s(not\ssupported|supported|undecided|too\ssmall\sto\smatter|withdrawn)(?:,\sp\s=\s([\d.e-]+\d))?"
)
"""How a sentence of a page names a claim and its verdict."""


@pytest.mark.parametrize("page", ["README.md", "docs/layer_norm.md", "docs/results.md", "docs/equations.md"])
def test_sentences_give_the_verdicts_of_claims_json(page: str) -> None:
    text = (REPOSITORY / page).read_text("utf-8")
    known = {
        (each["claim"], each["verdict"], p)
        for each in json.loads((REPOSITORY / "recipes" / "results" / judging.RECORDS).read_text("utf-8"))
        for p in ("", "" if each["p_adjusted"] is None else f"{each['p_adjusted']:.2g}")
    }
    named = {(name, " ".join(verdict.split()), p) for name, verdict, p in VERDICT.findall(text)}
    assert named <= known
    assert len(named) >= {"docs/layer_norm.md": 18, "docs/results.md": 7}.get(page, 0)
    assert not re.search(r"\[(?:not )?(?:supported|undecided)\]\(", text), "a verdict without its claim"
