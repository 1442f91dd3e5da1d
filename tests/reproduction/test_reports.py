"""Reports: tables, documents, and the numbers of run folders that they are made of."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from las.reproduction import jobs as reproduction_jobs
from las.reproduction import judging, learning_curves, markdown, recipe, results, run_numbers, tables
from las.reproduction.jobs import Job
from las.reproduction.results import Line, Outcome, Table
from las.runtime.errors import StorageError


def outcome(seed: int, rate: float | None, **values: float) -> Outcome:
    broken = "the loss is nan" if rate is None else ""
    numbers = {} if rate is None else {"test": rate, "steps_to_converge": 100.0 * seed, "seconds": 1800.0, **values}
    interval = None if rate is None else (rate - 0.02, rate + 0.02)
    return Outcome(seed, 1, 400, "abc123", broken, numbers, interval)


def a_table(recipe_name: str = "bo18_table3", **lines: list[Outcome]) -> Table:
    found = tuple(Line(name, name, tuple(each)) for name, each in lines.items())
    return Table(recipe_name, "paper", "timit", "phone_error_rate", "las reproduce", found)


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
        (at_paper, "paper", "Adam at 0.001", "this project's defaults"),
        (at_open, "open", "this project's defaults", "Adam at 0.001"),
    ):
        assert f"tier {tier}" in text and says in text and hides not in text and "forget bias 1" in text
    former = markdown.document(read, a_table(baseline=[outcome(1, 0.2)]), {})  # no curves: of an earlier release
    assert "of init=las" in former and "forget bias 1" not in former
    depth = recipe.read("z20_depth")
    assert [any("shortens it" in line for line in depth.assumptions(tier)) for tier in ("open", "paper")] == [1, 0]


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
    verdicts = judging.of_recipe(judging.judge([table]), name)
    text = markdown.document(read, table, verdicts)
    assert text.count("not trained") == len(read.rows) and all(f"- {line}" in text for line in read.assumptions("open"))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    of_claims = rows[len(rows) - len(verdicts) :]
    assert [line.split(" | ")[0] for line in of_claims] == [f"| {each}" for each in verdicts]
    widths = {line.count(" | ") for line in rows if line not in of_claims}
    assert len(widths - {3}) == 1


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
    (found,) = run_numbers.histograms(tmp_path).values()
    assert [each.step for each in found] == [1, 2, 3]
    expected = np.quantile(values.numpy(), run_numbers.SHARES)
    np.testing.assert_allclose(found[0].quantiles, expected, atol=0.02)
    assert found[0].deviation == pytest.approx(float(values.std()), rel=1e-3)
    still, moved = run_numbers.decile_changes(found)
    assert still == pytest.approx(0, abs=1e-6) and moved == pytest.approx(0.5 / float(values.std()), rel=0.02)
    assert run_numbers.histograms(tmp_path / "none") == {}
    assert run_numbers.notable({"speller.output.weight": found, "speller.cells.0.gain": found}).keys() == {
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
    for number in range(12):  # of writers of one second, from 0 to past 9
        board = SummaryWriter(str(tmp_path), purge_step=number + 1)
        for step in range(number + 1, number + 4):
            board.add_histogram("gain", torch.full((9,), float(number)), step)
        board.close()
    (found,) = run_numbers.histograms(tmp_path).values()
    newest = [(step, float(min(step - 1, 11))) for step in range(1, 15)]
    assert [(each.step, round(each.quantiles[0], 6)) for each in found] == newest
    assert caplog.text == ""


def test_histograms_of_a_killed_run_end_with_the_last_whole_event(tmp_path: Path) -> None:
    board = SummaryWriter(str(tmp_path))
    for step in (1, 2, 3):
        board.add_histogram("gain", torch.arange(9.0), step)
    board.close()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    reached = set()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        reached.add(tuple(each.step for steps in run_numbers.histograms(tmp_path).values() for each in steps))
    assert reached == {(), (1,), (1, 2)}
    place = whole.index(b"gain") - 2  # the field that the name of the histogram stands in
    path.write_bytes(whole[:place] + b"\xff" * 4 + whole[place + 4 :])
    with pytest.raises(StorageError, match=f"{path.name}: damaged before byte"):
        run_numbers.histograms(tmp_path)


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
    assert rows[0] == ["no layer norm", "30.0 % (0 of 1)", "20.5 % (2 of 2)", "25.0 % (0 of 1)"]
    read = recipe.read("bo18_table3")
    column = tables.headings(read, table).index("learning rate")
    assert [cells[column] for cells in tables.rows(read, table)] == ["0.002", "", "0.004 (edge)", ""]
    assert "## Learning rates" in markdown.document(read, table, {})
    assert "learning rate" not in tables.headings(read, a_table(baseline=[outcome(1, 0.2)]))
