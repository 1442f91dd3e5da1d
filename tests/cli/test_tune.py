"""The verb tune: every combination is what decoding with it gives, and the best one becomes a card."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Answer
from rich.console import Console
from tiny import overrides

from las.cli import decode, tune
from las.config.build import build, compose, config_directory
from las.decoding import tuned_search
from las.decoding.search import BeamSearch
from las.decoding.transcriber import load
from las.runtime import progress
from las.runtime.errors import ConfigError
from las.scoring import error_rates

Las = Callable[..., Answer]


@pytest.fixture
def lm(trained: Path, las: Las, tmp_path: Path) -> Path:
    path = tmp_path / "lm.arpa"
    corpus = [each for each in overrides(trained) if each.startswith(("corpus", "data_dir"))]
    assert las("ngram", *corpus, "n=2", f"output={path}").code == 0
    return path


def asked(trained: Path, lm: Path, output: Path, *more: str) -> list[str]:
    places = [f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}", f"output={output}"]
    return [*places, f"search.lm.path={lm}", "search.size=3", "length_normalisation=[0.0,1.0]", *more]


def test_combinations_are_those_of_decoding_and_the_best_is_a_card(
    trained: Path, lm: Path, las: Las, tmp_path: Path
) -> None:
    card = tmp_path / "tuned.yaml"
    weights = ["weights.lm=[0,0.5]", "weights.coverage=[0,0.4]", "weights.length_reward=[0,0.3]"]
    tried = tune.tune(asked(trained, lm, card, *weights))
    assert len(tried) == 2**4
    rates = [each.score.total.rate for each in tried]
    assert rates == sorted(rates)
    transcriber = load(trained / "run")
    corpus = build(transcriber.config["corpus"])
    utterances = corpus.prepare(trained / "data" / "manifests")["dev"]
    for point, score in tried:
        options = [f"search.{name}.weight={weight}" for name, weight in point.weights.items()]
        mounted = [f"+scorer@search.{name}={name}" for name in ("coverage", "length_reward")]
        given = ["search=beam_lm", f"search.lm.path={lm}", "search.size=3", *mounted, *options]
        config = compose("decode", ["checkpoint=x", *given])
        search = build(config["search"] | {"length_normalisation": point.length_normalisation})
        one = load(trained / "run", search)
        expected = decode.decode_split(one, corpus, "dev", utterances, tmp_path / "h.jsonl")
        assert score.total == expected.total
    written = build(yaml(card))
    assert isinstance(written, BeamSearch)
    best = tried[0].point
    assert {name: part.weight for name, part in written.components.scorers.items()} == {
        name: weight for name, weight in best.weights.items() if weight
    }
    assert written.length_normalisation == best.length_normalisation and written.size == 3


def yaml(path: Path) -> dict:
    from omegaconf import OmegaConf

    found = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def test_the_table_has_the_best_with_and_without_a_language_model(
    trained: Path, lm: Path, las: Las, tmp_path: Path
) -> None:
    answer = las("tune", *asked(trained, lm, tmp_path / "tuned.yaml", "weights.lm=[0,0.5]", "weights.coverage=null"))
    assert answer.code == 0
    assert "PER %" in answer.out and "best" in answer.out and "without lm" in answer.out
    assert re.search(r"dev: 2 utterances, 4 combinations", answer.out)
    again = las("tune", *asked(trained, lm, tmp_path / "tuned.yaml", "weights.lm=[0.5]", "weights.coverage=null"))
    assert again.code == 0  # its own card is replaced


def test_no_number_of_the_table_is_cut_off_in_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=written, width=80))
    weights = {"ctc": 0.35, "lm": 0.125, "length_reward": 0.25, "coverage": 0.15}
    score = error_rates.error_rate({"a": ["b"] * 1000}, {"a": ["c"] * 1200})
    tune.print_table([tune.Tried(tune.Point(weights, 0.65), score)], "dev", "phone_error_rate")
    row = next(line for line in written.getvalue().splitlines() if "0.35" in line)
    assert [cell.strip() for cell in row.split("│")[1:-2]] == (
        ["0.35", "0.125", "0.25", "0.15", "0.65", "120.00", "1000", "0", "200"]
    )


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["weights.ctc=[0.1]"], r"weights\.ctc: the search has no such scorer"),
        (["weights.lm=[]"], r"weights\.lm=\[\]"),
        (["weights.lm=[-0.1]"], r"search\.lm\.weight=-0\.1 must be 0 or more"),
        (["weights.lm=much"], r"weights\.lm='much'"),
        (["length_normalisation=[-1.0]"], r"search\.length_normalisation=-1\.0 must be 0 or more"),
    ],
)
def test_what_cannot_be_tried_is_named(trained: Path, lm: Path, tmp_path: Path, more: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        tune.tune(asked(trained, lm, tmp_path / "tuned.yaml", *more))


def test_only_a_beam_search_has_weights() -> None:
    without = ["~scorer@search.coverage", "~scorer@search.length_reward"]
    with pytest.raises(ConfigError, match="needs a beam search"):
        tune.tune(["checkpoint=x", "search=greedy", *without])


def test_a_file_of_somebody_else_is_not_replaced(trained: Path, lm: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(json.dumps({"size": 3}))
    with pytest.raises(ConfigError, match="not written by las tune"):
        tune.tune(asked(trained, lm, mine))
    assert json.loads(mine.read_text()) == {"size": 3}


def test_what_was_tuned_is_kept_with_its_run_and_is_the_search_of_its_checkpoints(
    trained: Path, trained_copy: Path, lm: Path, las: Las, tmp_path: Path
) -> None:
    cards = sorted(path.name for path in (config_directory() / "search").iterdir())
    places = [f"checkpoint={trained_copy}", f"data_dir={trained / 'data'}"]
    weights = ["weights.lm=[0.5]", "weights.coverage=[0.4]", "length_normalisation=[0.5]"]
    answer = las("tune", *places, f"search.lm.path={lm}", "search.size=3", *weights)
    assert answer.code == 0, answer.err
    assert f"the best is written to {trained_copy / 'tuned.json'}" in answer.out.splitlines()
    assert sorted(path.name for path in (config_directory() / "search").iterdir()) == cards

    given = ["scorer@search.lm=language_model", f"search.lm.path={lm}", "search.lm.weight=0.5", "search.size=3"]
    given += ["scorer@search.coverage=coverage", "search.coverage.weight=0.4", "search.length_normalisation=0.5"]
    given = [f"+{each}" if each.startswith("scorer@") else each for each in given]
    hand, mine = tmp_path / "hand.jsonl", tmp_path / "tuned.jsonl"
    assert las("decode", *places, "split=dev", *given, f"output={hand}", "search.nbest=2").code == 0
    answer = las("decode", *places, "search=tuned", "split=dev", f"output={mine}", "search.nbest=2")
    assert answer.code == 0, answer.err
    assert f"search=tuned: {trained_copy / 'tuned.json'}, tuned on timit dev: 2 utterances: PER" in answer.out
    assert mine.read_text() == hand.read_text() and '"lm": ' in mine.read_text()

    (step,) = [path for path in (trained_copy / "checkpoints").glob("step-*")][:1]
    one = f"checkpoint={step}"
    heard = las("transcribe", one, f"input={trained / 'TIMIT/TEST'}", "search=tuned", "~search.coverage")
    assert heard.code == 0, heard.err
    composed = tuned_search.compose("demo_app", [one, "search=tuned", "search.size=5", "~search.coverage"])["search"]
    assert (composed["size"], composed["lm"]["weight"], "coverage" in composed) == (5, 0.5, False)


def test_nothing_tuned_says_how_to_tune(trained: Path, las: Las, tmp_path: Path) -> None:
    run = trained / "run"
    for verb, what in (("decode", "split=dev"), ("transcribe", "input=x.wav")):
        answer = las(verb, f"checkpoint={run}", what, "search=tuned")
        assert answer.code == 2
        assert f"search=tuned: no search was tuned for {run} yet" in answer.err
        assert f"las tune checkpoint={run} search.lm.path=lm.arpa" in answer.err
    assert "neither a run folder nor" in las("decode", "checkpoint=/nowhere", "split=dev", "search=tuned").err
    assert "checkpoint has no value" in las("decode", "split=dev", "search=tuned").err


@pytest.mark.parametrize("content", ["{", "[]", '{"tuned_on": "x", "errors": "y"}', "[" * 5000])
def test_a_damaged_tuned_search_is_named(content: str, trained_copy: Path, las: Las) -> None:
    (trained_copy / "tuned.json").write_text(content)
    answer = las("decode", f"checkpoint={trained_copy}", "split=dev", "search=tuned")
    assert answer.code == 5
    assert answer.err.startswith(f"las decode: {trained_copy / 'tuned.json'}: damaged (")


def test_a_tuned_search_is_read_within_bounds(trained_copy: Path, las: Las) -> None:
    with (trained_copy / "tuned.json").open("wb") as file:
        file.truncate(60_000_000_000)
    answer = las("decode", f"checkpoint={trained_copy}", "split=dev", "search=tuned")
    assert answer.code == 5 and "60,000,000,000 bytes, more than the" in answer.err


def test_a_tuned_search_from_elsewhere_runs_nothing(trained_copy: Path, las: Las) -> None:
    """Neither does it change what is beside the search."""
    witness = trained_copy / "witness"
    search = {"_target_": "os.system", "command": f"touch {witness}", "=x,output": str(witness)}
    for forged in (search, search | {"=x,output": "${oc.env:HOME}"}, {"size": "'\\'", "lm": {"path": "'"}}):
        record = {"tuned_on": "x", "errors": "y", "search": forged}
        (trained_copy / "tuned.json").write_text(json.dumps(record))
        assert las("decode", f"checkpoint={trained_copy}", "split=dev", "search=tuned").code == 2
        assert not witness.exists()


def test_a_bundle_is_not_tuned(trained: Path, lm: Path, las: Las, tmp_path: Path) -> None:
    file = tmp_path / "phones.las"
    assert las("export", f"checkpoint={trained / 'run'}", f"output={file}").code == 0
    for command in (["tune", f"search.lm.path={lm}"], ["decode", "split=dev", "search=tuned"]):
        answer = las(*command, f"checkpoint={file}")
        assert answer.code == 2 and f"{file} is a bundle, which has no corpus to tune on" in answer.err
