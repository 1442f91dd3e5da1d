"""The verb tune: every combination is what decoding with it gives, and the best one becomes a card."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Answer
from rich.console import Console
from tiny import overrides

from las import build, commands, progress, transcribe, tuning
from las.errors import ConfigError
from las.scoring import error_rates
from las.search import Beam

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
    tried = tuning.tune(asked(trained, lm, card, *weights))
    assert len(tried) == 2**4
    rates = [each.score.total.rate for each in tried]
    assert rates == sorted(rates)
    transcriber = transcribe.load(trained / "run")
    corpus = build.build(transcriber.config["corpus"])
    utterances = corpus.prepare(trained / "data" / "manifests")["dev"]
    for point, score in tried:
        options = [f"search.{name}.weight={weight}" for name, weight in point.weights.items()]
        mounted = [f"+scorer@search.{name}={name}" for name in ("coverage", "length_reward")]
        given = ["search=beam_lm", f"search.lm.path={lm}", "search.size=3", *mounted, *options]
        config = build.compose("decode", ["checkpoint=x", *given])
        search = build.build(config["search"] | {"length_normalisation": point.length_normalisation})
        one = transcribe.load(trained / "run", search)
        expected = commands.decode_split(one, corpus, "dev", utterances, tmp_path / "h.jsonl")
        assert score.total == expected.total
    written = build.build(yaml(card))
    assert isinstance(written, Beam)
    best = tried[0].point
    assert {name: part.weight for name, part in written.parts.scorers.items()} == {
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
    tuning.print_table([tuning.Tried(tuning.Point(weights, 0.65), score)], "dev", "phone_error_rate")
    row = next(line for line in written.getvalue().splitlines() if "0.35" in line)
    assert [cell.strip() for cell in row.split("│")[1:-2]] == (
        ["0.35", "0.125", "0.25", "0.15", "0.65", "120.00", "1000", "0", "200"]
    )


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["weights.ctc=[0.1]"], r"weights\.ctc: the search has no such scorer"),
        (["weights.lm=[]"], r"weights\.lm=\[\]"),
        (["weights.lm=[-0.1]"], r"weights\.lm=\[-0\.1\]"),
        (["weights.lm=much"], r"weights\.lm='much'"),
        (["length_normalisation=[-1.0]"], r"length_normalisation=\[-1\.0\]"),
    ],
)
def test_what_cannot_be_tried_is_named(trained: Path, lm: Path, tmp_path: Path, more: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        tuning.tune(asked(trained, lm, tmp_path / "tuned.yaml", *more))


def test_only_a_beam_search_has_weights() -> None:
    without = ["~scorer@search.coverage", "~scorer@search.length_reward"]
    with pytest.raises(ConfigError, match="needs a beam search"):
        tuning.tune(["checkpoint=x", "search=greedy", *without])


def test_a_file_of_somebody_else_is_not_replaced(trained: Path, lm: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(json.dumps({"size": 3}))
    with pytest.raises(ConfigError, match="not written by las tune"):
        tuning.tune(asked(trained, lm, mine))
    assert json.loads(mine.read_text()) == {"size": 3}
