"""The verb tune: every combination is what decoding with it gives, and the best one is kept."""

import io
import json
from pathlib import Path

import pytest
import tiny
from console import Las
from rich.console import Console

from las.cli import tune
from las.config.build import build, compose, config_directory
from las.decoding import evaluation, tuned_search
from las.decoding.search import BeamSearch
from las.decoding.transcriber import load
from las.runtime import progress
from las.scoring import error_rates


@pytest.fixture
def lm(trained: Path, las: Las, tmp_path: Path) -> Path:
    path = tmp_path / "lm.arpa"
    assert las("ngram", *tiny.corpus(trained), "n=2", f"output={path}").code == 0
    return path


def asked(trained: Path, lm: Path, output: Path, *more: str) -> list[str]:
    places = [f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}", f"output={output}"]
    return [*places, f"search.lm.path={lm}", "search.size=3", "length_normalisation=[0.0,1.0]", *more]


def test_combinations_are_those_of_decoding_and_the_best_is_an_option(trained: Path, lm: Path, tmp_path: Path) -> None:
    option = tmp_path / "tuned.yaml"
    weights = ["weights.lm=[0,0.5]", "weights.coverage=[0,0.4]", "weights.length_reward=[0,0.3]"]
    tried = tune.tune(asked(trained, lm, option, *weights))
    assert len(tried) == 2**4
    rates = [each.score.total.rate for each in tried]
    assert rates == sorted(rates)
    transcriber = load(trained / "run")
    corpus = build(transcriber.config["corpus"])
    utterances = corpus.prepare(trained / "data" / "manifests")["dev"]
    for point, score in tried[::3]:
        length = point["length_normalisation"]
        options = [f"search.{name}.weight={weight}" for name, weight in point.items() if name != "length_normalisation"]
        mounted = [f"+scorer@search.{name}={name}" for name in ("coverage", "length_reward")]
        given = ["search=beam_lm", f"search.lm.path={lm}", "search.size=3", *mounted, *options]
        search = build(compose("decode", ["checkpoint=x", *given])["search"] | {"length_normalisation": length})
        one = load(trained / "run", search)
        expected = evaluation.decode_split(one, corpus, "dev", utterances, tmp_path / "h.jsonl")
        assert score.total == expected.total
    written = build(yaml(option))
    assert isinstance(written, BeamSearch) and written.size == 3
    best = {name: part.weight for name, part in written.components.scorers.items()}
    best["length_normalisation"] = written.length_normalisation
    assert best == {name: value for name, value in tried[0].point.items() if value or name == "length_normalisation"}


def yaml(path: Path) -> dict:
    from omegaconf import OmegaConf

    found = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def test_the_table_has_the_best_with_and_without_a_language_model(
    trained: Path, lm: Path, las: Las, tmp_path: Path
) -> None:
    for weights in ("[0,0.5]", "[0.5]"):  # its own file is replaced
        command = asked(trained, lm, tmp_path / "tuned.yaml", f"weights.lm={weights}", "weights.coverage=null")
        las("tune", *command).succeeds("PER best 2")
    assert "without lm" in las("tune", *command, "weights.lm=[0]").out


def test_no_number_of_the_table_is_cut_off_in_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=written, width=80))
    point = {"ctc": 0.35, "lm": 0.125, "length_reward": 0.25, "coverage": 0.15, "length_normalisation": 0.65}
    score = error_rates.error_rate({"a": ["b"] * 1000}, {"a": ["c"] * 1200})
    tune.print_table([tune.Tried(point, score)], "dev", "phone_error_rate")
    row = next(line for line in written.getvalue().splitlines() if "0.35" in line)
    assert [cell.strip() for cell in row.split("│")[1:-2]] == (
        ["0.35", "0.125", "0.25", "0.15", "0.65", "120.00", "1000", "0", "200"]
    )


@pytest.mark.parametrize("verb", ["tune", "decode"])
def test_an_unknown_split_is_named_before_anything_is_read(verb: str, trained: Path, las: Las, tmp_path: Path) -> None:
    """A language model may be large, so a missing one is not what is complained of first."""
    search = ["search=beam_lm", f"search.lm.path={tmp_path / 'missing.arpa'}"]
    result = las(verb, f"checkpoint={trained / 'run'}", *search, "split=tets")
    assert result.code == 2 and "no split 'tets'" in result.err and "Did you mean test" in result.err
    assert "missing.arpa" not in result.err


def test_a_file_of_somebody_else_is_not_replaced(trained: Path, lm: Path, las: Las, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(json.dumps({"size": 3}))
    las("tune", *asked(trained, lm, mine)).fails(2, f"output={mine}:")
    assert json.loads(mine.read_text()) == {"size": 3}


def test_what_was_tuned_is_kept_with_its_run_and_is_the_search_of_its_checkpoints(
    trained: Path, trained_copy: Path, lm: Path, las: Las, tmp_path: Path
) -> None:
    options = sorted(path.name for path in (config_directory() / "search").iterdir())
    places = [f"checkpoint={trained_copy}", f"data_dir={trained / 'data'}"]
    weights = ["weights.lm=[0.5]", "weights.coverage=[0.4]", "length_normalisation=[0.5]"]
    weights += ["+scorer@search.internal_lm=internal_lm", "weights.internal_lm=[0.3]"]
    las("tune", *places, f"search.lm.path={lm}", "search.size=3", *weights).succeeds(f"{trained_copy / 'tuned.json'}")
    assert sorted(path.name for path in (config_directory() / "search").iterdir()) == options

    given = ["scorer@search.lm=language_model", f"search.lm.path={lm}", "search.lm.weight=0.5", "search.size=3"]
    given += ["scorer@search.coverage=coverage", "search.coverage.weight=0.4", "search.length_normalisation=0.5"]
    given += ["scorer@search.internal_lm=internal_lm", "search.internal_lm.weight=0.3"]
    given = [f"+{each}" if each.startswith("scorer@") else each for each in given]
    hand, mine = tmp_path / "hand.jsonl", tmp_path / "tuned.jsonl"
    assert las("decode", *places, "split=dev", *given, f"output={hand}", "search.nbest=2").code == 0
    answer = las("decode", *places, "search=tuned", "split=dev", f"output={mine}", "search.nbest=2")
    answer.succeeds(f"{trained_copy / 'tuned.json'}, timit PER")
    assert mine.read_text() == hand.read_text() and '"internal_lm": ' in mine.read_text()

    one = f"checkpoint={next((trained_copy / 'checkpoints').glob('step-*'))}"
    las("transcribe", one, f"input={trained / 'TIMIT/TEST'}", "search=tuned", "~search.coverage").succeeds()
    composed = tuned_search.compose("demo_app", [one, "search=tuned", "search.size=5", "~search.coverage"])["search"]
    assert (composed["size"], composed["lm"]["weight"], "coverage" in composed) == (5, 0.5, False)


def test_nothing_tuned_says_how_to_tune(trained: Path, las: Las) -> None:
    for verb, what in (("decode", "split=dev"), ("transcribe", "input=x.wav")):
        las(verb, f"checkpoint={trained / 'run'}", what, "search=tuned").fails(
            2, f"search=tuned: {trained / 'run'} tune"
        )
    las("decode", "checkpoint=/nowhere", "split=dev", "search=tuned").fails(5, "/nowhere")
    las("decode", "split=dev", "search=tuned").fails(2, "checkpoint=...")


@pytest.mark.parametrize("content", ["{", "[]", '{"tuned_on": "x", "errors": "y"}', "[" * 5000, 60_000_000_000])
def test_a_damaged_tuned_search_is_named(content: str | int, trained_copy: Path, las: Las) -> None:
    with (trained_copy / "tuned.json").open("w") as file:
        file.truncate(content) if isinstance(content, int) else file.write(content)
    words = "60,000,000,000" if isinstance(content, int) else "damaged"
    answer = las("decode", f"checkpoint={trained_copy}", "split=dev", "search=tuned")
    answer.fails(5, f"{trained_copy / 'tuned.json'}: {words}")


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
    las("export", f"checkpoint={trained / 'run'}", f"output={file}").succeeds()
    for command in (["tune", f"search.lm.path={lm}"], ["decode", "split=dev", "search=tuned"]):
        las(*command, f"checkpoint={file}").fails(2, f"{file} bundle")


def test_the_search_of_an_ensemble_is_tuned(trained: Path, lm: Path, las: Las, tmp_path: Path) -> None:
    first, *_, last = sorted((trained / "run" / "checkpoints").glob("step-*"))
    option = tmp_path / "pair.yaml"
    grid = ["weights.lm=[0.5]", "weights.coverage=[0]", "length_normalisation=[1.0]", f"ensemble=[{first}]"]
    ((_, score),) = tune.tune([f"checkpoint={last}", *asked(trained, lm, option, *grid)[1:]])
    scores = {}
    for name, others in (("pair", [first]), ("one", [])):
        written = tmp_path / f"{name}.jsonl"
        given = [f"checkpoint={last}", f"ensemble=[{','.join(map(str, others))}]", f"data_dir={trained / 'data'}"]
        search = ["search=beam_lm", f"search.lm.path={lm}", "search.lm.weight=0.5", "search.size=3"]
        las("decode", *given, *search, "split=dev", f"output={written}").succeeds("PER")
        scores[name] = [json.loads(line)["text"] for line in written.read_text().splitlines()]
    corpus = build(load(last).config["corpus"])
    utterances = corpus.prepare(trained / "data" / "manifests")["dev"]
    texts = dict(zip([each.id for each in utterances], scores["pair"], strict=True))
    assert score.total == corpus.score("dev", utterances, texts).total
    kept = [f"checkpoint={last}", f"search.lm.path={lm}", f"ensemble=[{first}]"]
    las("tune", *kept, f"data_dir={trained / 'data'}").fails(2, "output=configs/search/mine.yaml")
