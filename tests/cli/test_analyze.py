"""The verb analyze: what it leaves, what it leaves alone, and that it looks at the training that it says."""

import json
import random
from pathlib import Path

import pytest
import torch
from console import Las
from html_page import Page
from safetensors.torch import load_file
from tiny import overrides, steps
from torch import Tensor, nn

from las.analysis import alignments, monitor, probe
from las.analysis.monitor import ANALYSES, AnalysisLog
from las.analysis.probe import Probe
from las.analysis.smoothness import Grid
from las.analysis.state_guard import unchanged
from las.config import build
from las.runtime.errors import NumericalError
from las.training import plots

EVERYTHING = f"what=[{','.join(ANALYSES)}]"
FEW = ["num_utterances=2", "grid.points=2"]


def config_of(root: Path, checkpoint: Path, *more: str) -> build.Config:
    return build.compose("analyze", [f"checkpoint={checkpoint}", f"data_dir={root / 'data'}", *FEW, *more])


@pytest.fixture
def looked_at(trained: Path) -> Probe:
    """The finished run of `trained`, before the update after its last."""
    return probe.subject(config_of(trained, trained / "run"))[0]


@pytest.mark.slow
def test_a_checkpoint_leaves_tables_numbers_and_pictures(trained: Path, tmp_path: Path, las: Las) -> None:
    here = [f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}", f"output={tmp_path}"]
    answer = las("analyze", *here, EVERYTHING, *FEW).succeeds("attention distributions gradient covariate β moments")
    for name in ANALYSES:
        (line,) = (tmp_path / f"{name}.jsonl").read_text().splitlines()
        assert json.loads(line)["step"] in (2, 4)  # the best one
    pictures = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png")}
    assert {"gates.png", "weights.png", "covariate_shift.png", "smoothness.png", "gradients_by_time.png"} < pictures
    assert len([name for name in pictures if name.startswith("alignments/")]) == 2
    for name in pictures:
        assert f"picture     {tmp_path / name}" in answer.out
        assert plots.pixels(tmp_path / name).std() > 0.02
    page = Page((tmp_path / "analysis.html").read_text("utf-8"))
    assert page.open == [] and page.tags["table"] == len(ANALYSES) and page.tags["img"] == len(pictures)
    assert all(loaded.startswith("data:image/png;base64,") for loaded in page.loads) and not page.tags["script"]


@pytest.mark.slow
def test_a_training_that_is_looked_at_is_the_same_training(corpus: Path, tmp_path: Path, las: Las) -> None:
    """Parameters, optimiser and metrics bit for bit, with dropout, noise and batch norm's running averages."""
    cell = "cell@model.listener.cell=bn_input"
    assert las("train", *overrides(corpus, cell)).code == 0
    watched = corpus / "watched"
    las("analyze", *overrides(corpus, cell, f"run_dir={watched}"), "every=2", EVERYTHING, *FEW).succeeds()
    assert steps(watched) == steps(corpus / "run")
    for kind in ("model", "optim"):
        for own in sorted((corpus / "run").glob(f"checkpoints/*/{kind}.safetensors")):
            other = load_file(watched / own.relative_to(corpus / "run"))
            assert all(torch.equal(value, other[name]) for name, value in load_file(own).items())
    for name in ANALYSES:
        found = [json.loads(line) for line in (watched / "analysis" / f"{name}.jsonl").read_text().splitlines()]
        assert [each["step"] for each in found] == [0, 2]
    names = {path.name for path in (watched / "analysis").glob("*.png")}
    assert {"beta.png", "smoothness.png", "moments.png", "distributions.png", "alignments.png"} < names
    again = las("train", *overrides(corpus, cell, f"run_dir={watched}"))
    assert again.code == 0 and "resuming at step 4" in again.out and (watched / "result.json").exists()


def test_a_checkpoint_makes_the_update_that_the_training_made_next(corpus: Path, las: Las) -> None:
    """Batch, draws, learning rate, optimiser and clipping are those of the training."""
    each = ["trainer.validate_every=1", "trainer.keep_checkpoints=9", "schedule=exponential"]
    assert las("train", *overrides(corpus, *each)).code == 0
    folder = corpus / "run" / "checkpoints"
    for step in (1, 3):
        found, place = probe.subject(config_of(corpus, folder / f"step-{step:08d}"))
        assert place == corpus / "run" / "analysis" / f"step-{step:08d}" and found.step == step + 1
        before, after = (load_file(folder / f"step-{at:08d}" / "model.safetensors") for at in (step, step + 1))
        moved = probe.real_update(found)
        names = found.objective().names
        assert all(torch.equal(value, after[name]) for name, value in zip(names, moved.point, strict=True))
        assert all(torch.equal(value, before[name]) for name, value in found.model.state_dict().items())
        distance = sum(float((after[name].double() - before[name].double()).square().sum()) for name in names) ** 0.5
        assert moved.distance == pytest.approx(distance, rel=1e-6)


def state(model: nn.Module, optimiser: torch.optim.Optimizer) -> list[object]:
    """Everything that a probe must leave alone, as values that `==` compares bit for bit."""
    tensors: list[Tensor | None] = [*model.parameters(), *(each.grad for each in model.parameters()), *model.buffers()]
    kept = [optimiser.state_dict()["state"], optimiser.param_groups[0]["lr"]]
    for values in kept[0].values():
        tensors += [values[key] for key in sorted(values)]
    found = [None if each is None else each.detach().numpy().tobytes() for each in tensors]
    modes = [module.training for module in model.modules()]
    return [found, len(kept[0]), kept[1], modes, random.getstate(), torch.get_rng_state().numpy().tobytes()]


@pytest.mark.parametrize("fresh", [True, False])
def test_whatever_happens_within_everything_is_as_before(fresh: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)

    def train() -> None:
        optimiser.zero_grad(set_to_none=True)
        model(torch.randn(5, 3)).square().sum().backward()
        optimiser.step()

    if not fresh:
        train()
    before, gradients = state(model, optimiser), [each.grad for each in model.parameters()]
    with pytest.raises(ZeroDivisionError), unchanged(model, optimiser):
        train()
        model.eval()
        optimiser.param_groups[0]["lr"] = 7.0
        random.random()
        raise ZeroDivisionError
    assert state(model, optimiser) == before
    assert all(each.grad is gradient for each, gradient in zip(model.parameters(), gradients, strict=True))
    train()
    assert state(model, optimiser) != before


def test_numbers_of_the_same_point_are_the_same(looked_at: Probe, tmp_path: Path) -> None:
    """Frozen draws: a probe is a function of the checkpoint; without draws it is another one."""
    notebooks = [AnalysisLog(tmp_path / name, ["smoothness"], Grid(points=2)) for name in ("a", "b", "c")]
    off = looked_at._replace(draws="off")
    one, two, other = (book.record(each) for book, each in zip(notebooks, (looked_at, looked_at, off), strict=True))
    assert one == two and one["smoothness"]["loss"] != other["smoothness"]["loss"]


def test_a_step_that_is_looked_at_again_replaces_what_was_found_then_and_later(
    looked_at: Probe, tmp_path: Path
) -> None:
    book = AnalysisLog(tmp_path, ["gradient_norms"], Grid())
    for step in (1, 3, 5):
        book.record(looked_at._replace(step=step))
    resumed = AnalysisLog(tmp_path, ["gradient_norms"], Grid())
    resumed.record(looked_at._replace(step=3))
    lines = (tmp_path / "gradient_norms.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 2]


def test_alignments_are_those_of_validation(looked_at: Probe) -> None:
    from las.decoding import evaluation
    from las.nn.attention import diagnostics

    found = alignments.measure(looked_at)
    weights = evaluation.attention_weights(looked_at.model, looked_at.examples)
    first = found["utterances"][0]
    assert first["id"] == looked_at.examples.ids[0] and first["symbols"][-1] == "(end)"
    assert first["numbers"] == pytest.approx(diagnostics.measure(weights)._asdict())
    torch.testing.assert_close(torch.tensor(first["weights"]), weights, rtol=0, atol=1e-4)
    assert found["mean"]["entropy"] == pytest.approx(
        sum(each["numbers"]["entropy"] for each in found["utterances"]) / len(found["utterances"])
    )


def test_an_update_that_is_not_finite_is_explained_and_training_goes_on(
    looked_at: Probe, capsys: pytest.CaptureFixture[str]
) -> None:
    with torch.no_grad():
        looked_at.model.speller.output.bias.fill_(float("nan"))
    with pytest.raises(NumericalError, match=r"update \d+ .*loss nan"):
        probe.real_update(looked_at)
    seen: list[int] = []

    def look(batches: object, step: int) -> None:
        seen.append(step)
        raise NumericalError("words")

    watched = monitor.MonitoredStep(looked_at.updates, look, 3)
    for step in (1, 2, 3, 4):
        assert not watched(looked_at.batches, step).finite
    assert seen == [1, 4] and capsys.readouterr().out == "step 1: words\nstep 4: words\n"


@pytest.mark.parametrize("name", [name for name in ANALYSES if name != "alignments"])
@pytest.mark.parametrize("value", [0.0, 3e38])
def test_whatever_a_model_holds_numbers_are_finite_or_refused_with_the_name(
    looked_at: Probe, tmp_path: Path, name: str, value: float
) -> None:
    """Of models whose listener passes nothing on, or overflows."""
    with torch.no_grad():
        for parameter in looked_at.model.listener.parameters():
            parameter.fill_(value)
    book = AnalysisLog(tmp_path, [name], Grid(points=2))
    try:
        found = book.record(looked_at)
        json.dumps(dict(found), allow_nan=False)
        assert book.tables()
    except NumericalError as error:
        assert name in str(error) or "update" in str(error)
        assert not [*tmp_path.iterdir()]


def test_the_command_says_that_it_drew_nothing(
    trained: Path, tmp_path: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["analyze", f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}", f"output={tmp_path}"]
    command += ["what=alignments", *FEW]
    assert "matplotlib" not in las(*command).out
    pictures = list(tmp_path.rglob("*.png"))
    for path in pictures:
        path.unlink()
    monkeypatch.setattr(plots, "available", lambda: False)
    las(*command).succeeds("las-asr[plots]")
    assert pictures and not list(tmp_path.rglob("*.png"))


def test_analyses_without_a_model_have_a_page_where_one_is_asked_for(
    tmp_path: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    las("analyze", "what=[invariance,deep_linear]", "seeds=2").succeeds("ln_per_gate layer 13 25")
    assert list(tmp_path.iterdir()) == []
    las("analyze", "what=invariance", "output=out").succeeds("out/analysis.html")
    page = Page((tmp_path / "out/analysis.html").read_text("utf-8"))
    assert page.open == [] and page.tags["table"] == 2 and page.loads == []


def test_a_bundle_cannot_be_analysed(trained: Path, tmp_path: Path, las: Las) -> None:
    bundle = tmp_path / "phones.las"
    las("export", f"checkpoint={trained / 'run'}", f"output={bundle}").succeeds()
    las("analyze", f"checkpoint={bundle}", "what=reach").fails(2, f"{bundle} is a bundle run folder")
