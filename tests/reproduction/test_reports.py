"""Reports: tables, charts and the page; nothing in it is loaded from anywhere, and a browser shows all of it."""

import base64
import dataclasses
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from browsers import BROWSERS
from html_page import Page
from torch.utils.tensorboard import SummaryWriter

from las.cli import reproduce
from las.reproduction import (
    claims,
    examples,
    html_report,
    learning_curves,
    markdown,
    recipe,
    results,
    run_numbers,
    tables,
    weight_histograms,
)
from las.reproduction import jobs as reproduction_jobs
from las.reproduction.charts import Series
from las.reproduction.jobs import Job
from las.reproduction.results import Line, Outcome, Table


def outcome(seed: int, rate: float | None, **values: float) -> Outcome:
    broken = "the loss is nan" if rate is None else ""
    numbers = {} if rate is None else {"test": rate, "steps_to_converge": 100.0 * seed, "seconds": 1800.0, **values}
    interval = None if rate is None else (rate - 0.02, rate + 0.02)
    return Outcome(seed, 1, 400, "abc123", broken, numbers, interval)


def a_table(recipe_name: str = "bo18_table3", **lines: list[Outcome]) -> Table:
    found = tuple(Line(name, name, tuple(each)) for name, each in lines.items())
    return Table(recipe_name, "paper", "timit", "phone_error_rate", "las reproduce", found)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Job]]:
    """A folder with the reports of two rows and two seeds, trained for a few steps, and their jobs."""
    import tiny

    root = tiny.tree(tmp_path_factory.mktemp("reported"))
    own = ["recipe=bo18_table1", "tier=smoke", "seeds=2", f"runs_dir={root / 'runs'}", f"results_dir={root}"]
    given = ["corpus=timit", f"corpus.root={root / 'TIMIT'}", "corpus.partial=true", f"data_dir={root / 'data'}"]
    given += [*tiny.SHORT, "trainer.attention_pictures=false"]
    reproduce.reproduce([*own, *given])
    return root, reproduction_jobs.jobs(recipe.read("bo18_table1"), "smoke", 2, root / "runs", given)


def test_the_table_shows_mean_spread_interval_and_difference() -> None:
    table = a_table(
        baseline=[outcome(1, 0.20), outcome(2, 0.24)], ln_both=[outcome(1, 0.3)], ln_decoder_only=[outcome(1, None)]
    )
    read = recipe.read("bo18_table3")
    headings = tables.headings(read, table)
    assert headings[:5] == ["row", "paper: PER", "paper: steps", "our PER: mean", "SD"]
    rows = {cells[0].partition(" (")[0]: dict(zip(headings, cells, strict=True)) for cells in tables.rows(read, table)}
    two = rows["no layer norm"]
    assert (two["our PER: mean"], two["SD"], two["SE"], two["lowest to highest"]) == (
        "22.0 %",
        "2.83",
        "2.00",
        "20.0 to 24.0",
    )
    assert two["95 % interval"] == "[-3.4, 47.4]"  # 12.706 standard errors on each side
    assert (two["ours - paper"], two["trainings"], two["our steps to converge"]) == ("-4.8", "2", "150 ± 71")
    assert (two["hours"], two["commit"], two["paper: steps"]) == ("0.50", "abc123", "15,947")
    one = rows["listener and speller"]
    assert (one["95 % interval"], one["SD"], one["lowest to highest"]) == ("[28.0, 32.0] u", "", "")
    assert (rows["speller"]["our PER: mean"], rows["speller"]["trainings"]) == ("broken", "1, 1 broken")
    assert rows["listener"]["our PER: mean"] == "not trained"
    over_speakers = a_table(ln_both=[dataclasses.replace(outcome(1, 0.3), interval_over="speakers")])
    assert "[28.0, 32.0] s" in tables.rows(read, over_speakers)[2]


@pytest.mark.parametrize("other", [{"metric": "wer"}, {"corpus": "an4"}, {"tier": "open"}])
def test_other_units_corpora_and_sizes_are_not_subtracted_from_the_papers_numbers(other: dict[str, str]) -> None:
    read, table = recipe.read("bo18_table3"), a_table(baseline=[outcome(1, 0.2)])
    assert "ours - paper" in tables.headings(read, table) and "in points" in markdown.explanation(read, table)
    changed = dataclasses.replace(table, **other)
    assert "ours - paper" not in tables.headings(read, changed) and "in points" not in markdown.explanation(
        read, changed
    )
    assert all(len(cells) == len(tables.headings(read, changed)) for cells in tables.rows(read, changed))


def test_a_report_prints_what_was_assumed_at_its_tier_alone() -> None:
    read = recipe.read("bo18_table3")
    at_paper, at_open = (markdown.document(read, results.collect(read, tier, [], ""), {}) for tier in ("paper", "open"))
    for text, tier, says, hides in (
        (at_paper, "paper", "Adam at 0.001, falling", "this project's defaults"),
        (at_open, "open", "this project's defaults", "Adam at 0.001, falling"),
    ):
        assert f"## Assumed at the tier {tier}" in text and says in text and hides not in text
        assert "forget bias 1 in every cell" in text
    former = markdown.document(read, a_table(baseline=[outcome(1, 0.2)]), {})  # no curves: of an earlier release
    assert "initial values: those of init=las" in former and "forget bias 1 in every cell" not in former
    depth = recipe.read("z20_depth")
    assert any("shortens it by 6" in line for line in depth.assumptions("open"))
    assert not any("shortens it by 6" in line for line in depth.assumptions("paper"))


def test_other_test_sets_of_the_paper_get_columns_where_we_have_them() -> None:
    read = recipe.read("z20_end_to_end")
    plain = a_table("z20_end_to_end", z20_nopre_lstm=[outcome(1, 0.2)])
    assert "our SWB" not in tables.headings(read, plain)
    table = a_table("z20_end_to_end", z20_nopre_lstm=[outcome(1, 0.2, hub5_00_swb=0.15, hub5_01=0.19)])
    headings = tables.headings(read, table)
    row = dict(zip(headings, tables.rows(read, table)[7], strict=True))
    assert (row["our SWB"], row["our Hub5'01"], row["paper: SWB"]) == ("15.0 %", "19.0 %", "12.9 %")
    assert "our CH" not in headings


@pytest.mark.parametrize("name", recipe.names())
def test_every_recipe_has_a_document_before_anything_is_trained(name: str) -> None:
    read = recipe.read(name)
    table = results.collect(read, "open", [], "las reproduce")
    text = markdown.document(read, table, claims.judge(claims.answered_by(name), [table]))
    assert text.count("not trained") == len(read.rows) and all(f"- {line}" in text for line in read.assumptions("open"))
    assert all(f"| {claim.id} | {claim.sentence} | undecided |" in text for claim in claims.answered_by(name))
    widths = {line.count(" | ") for line in text.splitlines() if line.startswith("| ") and "undecided" not in line}
    assert len(widths - {3}) == 1


def test_results_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    table = a_table(baseline=[outcome(1, 0.2, diagonality=0.9), outcome(2, None)])
    results.write(table, tmp_path / "x" / "table.json")
    assert results.read(tmp_path / "x" / "table.json") == table


def test_rates_by_name() -> None:
    rate = {"wer": 0.2, "cer": 0.1}
    swb = {"swb": {"wer": 0.15}, "CH": {"wer": 0.25}}
    splits = {"dev": {"wer": 0.3}, "hub5_00": rate | {"subsets": swb}, "hub5_01": {"wer": 0.22}}
    found = {"dev": 0.3, "test": 0.2, "hub5_00": 0.2, "hub5_00_swb": 0.15, "hub5_00_ch": 0.25, "hub5_01": 0.22}
    assert results.rates(splits) == found
    assert results.rates({"dev-clean-2": rate}) == {"dev_clean_2": 0.2, "dev": 0.2, "test": 0.2}
    assert results.rates({}) == {}


def test_time_is_that_of_computing(tmp_path: Path) -> None:
    events = [{"time": time} for time in (0.0, 2.0, 3.0, 5000.0, 5001.0)]
    assert reproduction_jobs.seconds(events) == 4.0


def test_quantiles_of_histograms_are_those_of_the_values(tmp_path: Path) -> None:
    board = SummaryWriter(str(tmp_path))
    values = torch.randn(20000, generator=torch.Generator().manual_seed(1))
    for step, shift in ((1, 0.0), (2, 0.0), (3, 0.5)):
        board.add_histogram("listener.layers.0.forwards.cell.input_weight", values + shift, step, bins=1000)
    board.close()
    (found,) = weight_histograms.read(tmp_path).values()
    assert [each.step for each in found] == [1, 2, 3]
    expected = np.quantile(values.numpy(), weight_histograms.SHARES)
    np.testing.assert_allclose(found[0].quantiles, expected, atol=0.02)
    assert found[0].deviation == pytest.approx(float(values.std()), rel=1e-3)
    still, moved = weight_histograms.changes(found)
    assert still == pytest.approx(0, abs=1e-6) and moved == pytest.approx(0.5 / float(values.std()), rel=0.02)
    assert weight_histograms.read(tmp_path / "none") == {}
    assert weight_histograms.notable({"speller.output.weight": found, "speller.cells.0.gain": found}).keys() == {
        "speller.cells.0.gain"
    }


def test_errors_in_the_hundreds_do_not_flatten_the_rest_of_their_curve(tmp_path: Path) -> None:
    measured = {"time": 1.0, "event": "validation", "dev_loss": 1.0}
    found = [measured | {"step": step, "dev_error": rate} for step, rate in ((1, 6.0), (2, 0.5))]
    lines = (json.dumps(event) + "\n" for event in [*found, {"time": 2.0, "event": "train", "step": 3, "loss": 1.0}])
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    job = Job(recipe.read("bo18_table3").rows[0], 1, 1, (), {}, tmp_path)
    assert learning_curves.validation_error_rates(job) == {1: learning_curves.HIGHEST_PERCENT, 2: 50.0}


def test_what_a_resumed_run_repeats_counts_once_and_without_a_warning(tmp_path: Path, caplog) -> None:
    for steps, value in (((1, 2, 3), 1.0), ((2, 3, 4), 2.0)):
        board = SummaryWriter(str(tmp_path), purge_step=steps[0], filename_suffix=f".{value}")
        for step in steps:
            board.add_histogram("gain", torch.full((9,), value), step)
        board.close()
    (found,) = weight_histograms.read(tmp_path).values()
    assert [(each.step, round(each.quantiles[0], 6)) for each in found] == [(1, 1.0), (2, 2.0), (3, 2.0), (4, 2.0)]
    assert caplog.text == ""


def test_a_band_goes_over_the_seeds_that_have_a_step(reported: tuple[Path, list[Job]]) -> None:
    _, jobs = reported
    points = {jobs[0].directory: {1: 2.0, 2: 1.0}, jobs[1].directory: {1: 4.0}}
    found = learning_curves.series("row", jobs[:2], lambda job: points[job.directory])
    assert found == Series("row", [1.0, 2.0], [3.0, 1.0], [2.0, 1.0], [4.0, 1.0])


def test_trainings_validated_at_other_steps_are_interpolated() -> None:
    found = learning_curves.series("row", [{10: 4.0, 30: 2.0}, {20: 9.0, 40: 7.0}], lambda points: points)
    assert found == Series(
        "row", [10.0, 20.0, 30.0, 40.0], [4.0, 6.0, 5.0, 7.0], [4.0, 3.0, 2.0, 7.0], [4.0, 9.0, 8.0, 7.0]
    )


def test_every_row_decodes_the_example(reported: tuple[Path, list[Job]]) -> None:
    _, jobs = reported
    found = examples.example(jobs, with_audio=True)
    assert found is not None and [each.label for each in found.rows] == ["layer norm in the listener", "no layer norm"]
    attention = found.rows[0].attention
    assert found.utterance.id == "mdab0_sx0" and attention is not None and attention.symbols[-1] == "(end)"
    weights = np.array(attention.weights)
    assert len(weights) == len(attention.symbols)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    waveform, rate = soundfile.read(io.BytesIO(base64.b64decode(found.audio.partition(",")[2])))
    assert rate == 16000 and len(waveform) == round(found.utterance.duration_s * rate)
    assert examples.example([], with_audio=True) is None
    silent = examples.example(jobs, with_audio=False)
    assert silent is not None and silent.audio == ""


def test_a_row_whose_checkpoint_is_gone_is_left_out(reported: tuple[Path, list[Job]], tmp_path: Path) -> None:
    _, jobs = reported
    moved = []
    for job in jobs:
        copy = shutil.copytree(job.directory, tmp_path / job.row.name / str(job.seed))
        moved.append(Job(job.row, job.seed, job.copy, job.overrides, job.config, copy))
    shutil.rmtree(moved[0].directory / "checkpoints")
    found = examples.example(moved, with_audio=False)
    assert found is not None and [each.label for each in found.rows] == ["no layer norm"]


def test_the_page_needs_nothing_else_and_has_tables_pictures_and_sound(reported: tuple[Path, list[Job]]) -> None:
    root, _ = reported
    text = (root / "bo18_table1-smoke-timit.html").read_text("utf-8")
    found = Page(text)
    assert found.open == []
    assert found.loads and all(each.startswith("data:") for each in found.loads)
    assert not re.search(r"@import|url\(|<script|<link|https?://(?!www\.w3\.org)", text)
    assert found.tags["table"] == 3 and found.tags["audio"] == 1 and found.tags["image"] == 2
    assert found.tags["figure"] > 10 and found.tags["polygon"] > 4
    for heading in ("Results", "Claims", "Training", "Attention on one utterance", "Distributions of parameters"):
        assert f"<h2>{heading}</h2>" in text
    assert "diagonality: correlation of token and position" in text  # the legend of the attention measures
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text


def test_the_page_of_a_licensed_corpus_has_no_sound(reported: tuple[Path, list[Job]], tmp_path: Path) -> None:
    _, jobs = reported
    read = recipe.read("bo18_table1")
    table = results.collect(read, "paper", jobs, "las reproduce")
    (tmp_path / "x.html").write_text(html_report.page(read, table, jobs, {}), "utf-8")
    assert Page((tmp_path / "x.html").read_text("utf-8")).tags["audio"] == 0


def test_a_page_without_run_folders_keeps_what_needed_them(reported: tuple[Path, list[Job]], tmp_path: Path) -> None:
    root, _ = reported
    read, page = recipe.read("bo18_table1"), tmp_path / "bo18_table1-smoke-timit.html"
    shutil.copy(root / page.name, page)
    table = results.read(root / "bo18_table1-smoke-timit.json")
    again = dataclasses.replace(table, command="las reproduce again")
    page.write_text(html_report.page(read, again, [], {}, [page]), "utf-8")
    text, before = page.read_text("utf-8"), (root / page.name).read_text("utf-8")
    assert "las reproduce again" in text and Page(text).open == []
    assert [Page(each).tags[tag] for each in (text, before) for tag in ("figure", "audio", "image")] == [
        Page(before).tags[tag] for _ in range(2) for tag in ("figure", "audio", "image")
    ]
    assert text.index("<h2>Training</h2>") < text.index("<h2>Assumed at the tier smoke</h2>")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_the_page(reported: tuple[Path, list[Job]], tmp_path: Path, width: int) -> None:
    """Headless, on a laptop's and a phone's width: everything it laid out is there, and nothing failed to load."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"none of these browsers is installed: {', '.join(BROWSERS)}")
    root, _ = reported
    copy = tmp_path / "page.html"
    probe = """<script>addEventListener('load', () => {
      const parts = [...document.querySelectorAll('svg, table, audio')];
      const shown = parts.filter(part => part.getBoundingClientRect().width > 0);
      document.title = JSON.stringify([shown.length, document.documentElement.scrollWidth <= innerWidth + 1,
        performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length]);
    });</script></body>"""
    text = (root / "bo18_table1-smoke-timit.html").read_text("utf-8")
    copy.write_text(text.replace("</body>", probe), "utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += [f"--window-size={width},900", "--dump-dom", copy.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    shown = re.search(r"<title>\[(\d+),(\w+),(\d+)\]</title>", done.stdout)
    assert shown is not None, done.stderr
    tags = Page(text).tags
    assert int(shown[1]) == tags["svg"] + tags["table"] + tags["audio"]
    assert shown[2] == "true", "the page is wider than the window"
    assert shown[3] == "0" and "net::ERR" not in done.stderr


def test_probes_during_a_training_become_means(tmp_path: Path) -> None:
    assert run_numbers.probes(tmp_path) == {}
    look = {"loss": 2.0, "gradient_norm": 4.0}
    near = look | {"gradient": {"losses": [1.0, 2.0], "differences": [1.0, 2.0], "scale_free_beta": 3.0}}
    far = look | {"gradient": {"losses": [1.0, 5.0], "differences": [4.0, 2.0], "scale_free_beta": 5.0}}
    (tmp_path / "smoothness.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (near, far)))
    groups = [{"weights": {"relative": value}} for value in (0.0, 0.5, 1.5)]
    (tmp_path / "covariate_shift.jsonl").write_text(json.dumps({"groups": groups}) + "\n")
    assert run_numbers.probes(tmp_path) == {
        "own_loss_range": 1.25,
        "own_gradient_change": 0.75,
        "own_beta": 4.0,
        "ics": 1.0,
    }


def test_rates_that_were_tried_are_a_table_and_the_chosen_ones_a_column() -> None:
    def at(rate: float, dev: float, seed: int = 1) -> Outcome:
        return dataclasses.replace(outcome(seed, dev, dev=dev), digest="d", rate=rate)

    lines = (
        Line("baseline", "no layer norm", (at(0.002, 0.2), at(0.002, 0.21, 2)), (at(0.001, 0.3), at(0.004, 0.25))),
        Line("ln_both", "listener and speller", (at(0.004, 0.1),), (at(0.001, 0.3), at(0.002, 0.25))),
    )
    table = Table("bo18_table3", "open", "an4", "phone_error_rate", "las reproduce", lines)
    headings, rows = tables.rates(table)
    assert headings == ["dev PER by learning rate", "0.001", "0.002", "0.004"]
    assert rows[0] == ["no layer norm", "30.0 %", "20.0 %", "25.0 %"]
    read = recipe.read("bo18_table3")
    column = tables.headings(read, table).index("learning rate")
    assert [cells[column] for cells in tables.rows(read, table)] == ["0.002", "", "0.004 (edge)", ""]
    assert "## Learning rates" in markdown.document(read, table, {})
    assert "learning rate" not in tables.headings(read, a_table(baseline=[outcome(1, 0.2)]))
