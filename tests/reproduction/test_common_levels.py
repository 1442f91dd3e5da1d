"""Speed to dev errors that all rows share, trainings that have not converged, and trainings at the level of chance."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from las.analysis.smoothness import COMMON_GRID, Grid
from las.cli import train_jobs
from las.config.build import build, compose
from las.reproduction import convergence, recipe, results, run_numbers, tables
from las.reproduction.convergence import Curve
from las.reproduction.jobs import Job
from las.reproduction.results import Line, Outcome, Table

FAST = Curve(
    (100, 200, 300, 400, 500), (10.0, 20.0, 30.0, 40.0, 50.0), (0.9, 0.5, 0.3, 0.2, 0.1), (3.0, 2.0, 1.0, 0.6, 0.5)
)
STUCK = Curve(
    (100, 200, 300, 400, 500), (9.0, 18.0, 27.0, 36.0, 45.0), (0.75, 0.76, 0.78, 0.77, 0.76), (3.0, 2.0, 1.5, 1.0, 1.0)
)


def outcome(curve: Curve | None, broken: str = "", **values: float) -> Outcome:
    return Outcome(1, 1, 500, "abc", broken, {"test": 0.2, **values}, None, curve=curve, chance_error=0.67)


def a_table(**lines: Outcome) -> Table:
    rows = tuple(Line(name, name, (each,)) for name, each in lines.items())
    return results.with_times(Table("bo18_table3", "open", "an4", "wer", "las reproduce", rows))


def test_rows_are_timed_to_the_best_error_of_the_worst_and_not_to_their_own() -> None:
    """By the steps to its own best error, the row that is stuck at 75 % is five times as fast."""
    own = {"steps_to_converge": 500.0}
    table = a_table(baseline=outcome(STUCK, steps_to_converge=100.0), ln_both=outcome(FAST, **own))
    assert table.common_level == 0.75
    steps, seconds = (
        {line.name: line.values(measure) for line in table.lines}
        for measure in (convergence.STEPS_TO_COMMON, convergence.SECONDS_TO_COMMON)
    )
    assert steps == {"baseline": [100.0], "ln_both": [200.0]} and seconds == {"baseline": [9.0], "ln_both": [20.0]}
    values = table.line("ln_both").outcomes[0].values
    assert [values.get(convergence.level_measures(level)[0]) for level in convergence.LEVELS] == [200, 300, 400, 500]
    assert not table.line("baseline").values("steps_to_50_percent"), "a level that is not reached has no step"
    assert values["seconds_to_30_percent"] == 30.0


def test_a_broken_training_does_not_set_the_common_level() -> None:
    table = a_table(baseline=outcome(STUCK, broken="chance"), ln_both=outcome(FAST))
    assert table.common_level == 0.1 and a_table(ln_both=outcome(None)).common_level is None


def test_every_measure_has_words_for_verdicts() -> None:
    values = a_table(ln_both=outcome(FAST)).line("ln_both").outcomes[0].values
    assert values.keys() <= results.MEASURES.keys() and set(results.FORMER.values()) <= results.MEASURES.keys()


@pytest.mark.parametrize(
    ("errors", "gain"),
    [
        ((0.5, 0.4, 0.3), 0.25),
        ((0.5, 0.4, 0.4), 0.0),
        ((0.5, 0.4, 0.6), 0.0),
        ((0.5, 0.4, 0.393), 0.0175),
        ((0.0, 0.0, 0.0), 0.0),
    ],
)
def test_a_training_has_converged_when_the_last_fifth_gained_under_two_percent(
    errors: tuple[float, ...], gain: float
) -> None:
    curve = Curve((40, 80, 100), (1.0, 2.0, 3.0), errors, errors[::-1])
    assert curve.late_gain("dev_error") == pytest.approx(gain) and curve.converged("dev_error") == (gain < 0.02)


def test_convergence_is_that_of_the_selected_quantity() -> None:
    assert dataclasses.replace(outcome(STUCK), select="dev_error").converged is True
    falling = dataclasses.replace(STUCK, dev_loss=(3.0, 2.0, 1.5, 1.0, 0.9))
    assert dataclasses.replace(outcome(falling), select="dev_loss").converged is False
    alone = Curve((500,), (9.0,), (0.3,), (1.0,))
    assert alone.late_gain("dev_error") is None and not alone.converged("dev_error")


def test_without_a_curve_an_early_best_tells_that_a_training_has_converged() -> None:
    assert outcome(None, steps_to_within_one_percent=400.0).converged is True
    assert outcome(None, steps_to_within_one_percent=450.0).converged is None
    assert outcome(None).converged is None


def test_rows_that_have_not_converged_are_marked() -> None:
    table = a_table(baseline=outcome(STUCK), ln_both=outcome(FAST), ln_decoder_only=outcome(None))
    read = recipe.read("bo18_table3")
    headings = tables.headings(read, table)
    rows = [dict(zip(headings, cells, strict=True)) for cells in tables.rows(read, table)]
    baseline, listener, both, speller = ((row["row"][-1], row[tables.CONVERGED]) for row in rows)
    assert (baseline, both) == ((")", "1 of 1"), (tables.MARK, "0 of 1"))
    assert (listener[1], speller[1]) == ("", "not known")
    assert rows[2]["our steps to dev WER 75.0 %"] == "200"


def a_job(directory: Path) -> Job:
    return Job(recipe.read("bo18_table3").rows[0], 1, 1, (), {}, directory)


def finished(directory: Path, *errors: float, chance: float | None = 0.67) -> dict:
    """A training of some validations, ten seconds apart but for a pause of a day; its result."""
    events = [{"time": 0.0, "event": "train", "step": 1, "loss": 4.0}]
    for number, error in enumerate(errors, start=1):
        attention = {"entropy": 0.5, "diagonality": 0.9, "coverage": 1.0}
        numbers = {"step": 50 * number, "dev_error": error, "dev_loss": 1 / number, "alignment": attention}
        events.append({"time": 10.0 * number + 86400.0 * (number > 1), "event": "validation", **numbers})
    (directory / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    splits = {"dev": {"wer": 1.0}, "test": {"wer": 1.017}}
    level = {} if chance is None else {"chance_level": {"token_accuracy": 0.33, "error": chance, "sentence": ""}}
    return {"steps": 100, "commit": "abc", "splits": splits, **level}


def test_a_training_that_ends_at_a_hundred_percent_is_broken(tmp_path: Path) -> None:
    result = finished(tmp_path, 1.5, 1.017)
    found = results.outcome(a_job(tmp_path), result)
    assert "101.7 %" in found.broken and "67.0 %" in found.broken
    assert not results.outcome(a_job(tmp_path), result, judged=False).broken, "a few steps decide nothing"
    assert not results.outcome(a_job(tmp_path), finished(tmp_path, 1.5, 0.5)).broken
    assert not results.outcome(a_job(tmp_path), finished(tmp_path, 1.5, 1.017, chance=None)).broken


def test_the_curve_of_a_training_comes_from_its_events_without_pauses(tmp_path: Path) -> None:
    found = results.outcome(a_job(tmp_path), finished(tmp_path, 0.5, 0.4, 0.3))
    assert found.curve == Curve((50, 100, 150), (10.0, 10.0, 20.0), (0.5, 0.4, 0.3), (1.0, 0.5, 1 / 3), (4.0, 4.0, 4.0))
    table = a_table(baseline=found)
    results.write(table, tmp_path / "table.json")
    assert results.read(tmp_path / "table.json") == table


def test_numbers_of_earlier_tables_come_under_the_names_of_what_they_measured(tmp_path: Path) -> None:
    table = a_table(baseline=outcome(None, loss_change=0.097, weight_drift=0.04, loss_range=0.1, seconds=1.0))
    results.write(table, tmp_path / "table.json")
    assert results.read(tmp_path / "table.json") == table
    stored = json.loads((tmp_path / "table.json").read_text())
    del stored["lines"][0]["outcomes"][0]["curve"]
    (tmp_path / "table.json").write_text(json.dumps(stored))
    values = results.read(tmp_path / "table.json").lines[0].outcomes[0].values
    renamed = {"batch_loss_change": 0.097, "mixed_weight_drift": 0.04, "own_loss_range": 0.1}
    assert values == {"test": 0.2, "seconds": 1.0, **renamed}


def test_the_rows_of_table_3_are_compared_by_the_same_matrices() -> None:
    """All parameters together they are 26 tensors of one row and 50 of another."""
    matrices = {}
    for row in recipe.read("bo18_table3").rows:
        model = build(compose("train", list(row.overrides))["model"], where="model")(16000, 50)
        names = {name: parameter.dim() for name, parameter in model.named_parameters()}
        matrices[row.name] = {name for name in names if run_numbers.is_matrix(name)}
        assert matrices[row.name] == {name for name, size in names.items() if size > 1}
    assert len(matrices) == 4 and len(set(map(frozenset, matrices.values()))) == 1


def test_gains_do_not_enter_the_drift_of_weights(tmp_path: Path) -> None:
    draw = torch.randn(2000, generator=torch.Generator().manual_seed(1))
    board = SummaryWriter(str(tmp_path))
    for step in (1, 2):
        board.add_histogram("speller.cells.0.input_weight", draw, step)
        board.add_histogram("speller.cells.0.gain", draw + step, step)
    board.close()
    found = run_numbers.drifts(tmp_path)
    assert found["weight_drift"] == pytest.approx(0, abs=1e-6) and found["gain_drift"] > 0.9
    assert run_numbers.drifts(tmp_path / "none") == {}


def probe(unit: str, common: bool = False, after: float = 2.0) -> dict:
    gradient = {"losses": [2.0, 1.0], "differences": [3.0], "scale_free_beta": 4.0}
    numbers = {"loss": 2.0, "gradient_norm": 1.5, "gradient": gradient, "fixed": {"before": 2.0, "after": after}}
    return {"step": 0, "unit": unit, "common": common, **numbers}


def written(folder: Path, *probes: dict) -> dict[str, float]:
    (folder / "smoothness.jsonl").write_text("".join(json.dumps(each) + "\n" for each in probes))
    return run_numbers.probes(folder)


def test_smoothness_is_compared_at_the_same_distances_only(tmp_path: Path) -> None:
    found = written(tmp_path, probe("distance", common=True))
    assert (found["loss_range"], found["gradient_change"], found["beta"]) == (0.5, 2.0, 4.0)
    for unit in ("update", "distance"):
        own = written(tmp_path, probe(unit))
        assert own.keys() == {"own_loss_range", "own_gradient_change", "own_beta", "loss_change"}


def test_trainings_of_a_recipe_are_measured_at_those_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(train_jobs.analyze, "analyze", asked.append)
    monkeypatch.setattr(train_jobs.cli_train, "train", lambda given: {"seed": 1, "broken": "stopped", "steps": 1})
    train_jobs.train_one(["name=x"], look_every=50)
    grid = compose("analyze", asked[0])["grid"]
    assert vars(Grid(**grid)) == vars(COMMON_GRID) and grid["unit"] == "distance"


def test_the_change_of_the_loss_is_none_where_the_weights_stand_still(tmp_path: Path) -> None:
    """Losses of successive batches differ by 10 % although nothing was learned."""
    batches = [{"event": "train", "step": step, "loss": loss, "time": 0.0} for step, loss in enumerate((1.0, 1.1, 1.0))]
    assert run_numbers.of_events(batches)["batch_loss_change"] > 0.09
    assert "loss_change" not in run_numbers.of_events(batches)
    assert written(tmp_path, probe("update"), probe("update", after=1.0))["loss_change"] == 0.25
    assert written(tmp_path, probe("update"))["loss_change"] == 0.0


def test_the_time_of_an_update_is_that_of_the_fastest_stretch_between_validations() -> None:
    """Without validations, and whatever pauses and other work there were in other stretches."""
    times = {"train": [0.0, 0.3, 0.6, 2.0, 2.2, 2.4, 700.0, 700.1, 1500.0], "validation": [1.9, 699.0, 800.0]}
    events = [{"event": name, "time": time, "loss": 1.0} for name, each in times.items() for time in each]
    events.sort(key=lambda event: float(str(event["time"])))
    assert run_numbers.update_ms(events) == pytest.approx(100.0)
    assert run_numbers.update_ms(events[:7]) == pytest.approx(200.0)
    assert run_numbers.update_ms(events[:1]) is run_numbers.update_ms([]) is None


def test_a_table_has_the_milliseconds_of_updates_where_a_training_has_them() -> None:
    """Tables of earlier releases are printed as they were."""
    asked, heading = recipe.read("bo18_table3"), "ms per update"
    table = a_table(baseline=outcome(FAST, update_ms=40.0), ln_both=outcome(STUCK))
    column = tables.headings(asked, table).index(heading)
    cells = {row.name: line[column] for row, line in zip(asked.rows, tables.rows(asked, table), strict=True)}
    assert cells == {"baseline": "40", "ln_encoder_only": "", "ln_both": "", "ln_decoder_only": ""}
    assert heading not in tables.headings(asked, a_table(baseline=outcome(FAST)))
