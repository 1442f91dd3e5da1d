"""Training a language model: by the same trainer, resumed, measured, loaded by search; compared with n-grams."""

import gzip
import json
import math
from pathlib import Path

import pytest
import tiny_words
from console import Las
from tiny_words import TRAIN, tree

from las.cli import language_model
from las.storage import checkpoint


def given(root: Path, *more: str) -> list[str]:
    """A training of four steps on `tiny_words.tree(root)`, in `root/lm`."""
    small = ["lm.hidden_size=8", "lm.embedding_size=4", "trainer.histograms=false"]
    short = ["trainer.max_steps=4", "trainer.batch_size=4", "trainer.validate_every=2"]
    return [*tiny_words.corpus(root), *small, *short, f"run_dir={root / 'lm'}", *more]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tree(tmp_path_factory.mktemp("lm"))
    language_model.train_lm(given(root))
    return root


def test_a_run_of_a_language_model(finished: Path, las: Las) -> None:
    result = json.loads((finished / "lm/result.json").read_text())
    assert result["splits"].keys() == {"dev", "test"} and result["train_sentences"] == len(TRAIN)
    assert 1 < result["splits"]["test"]["perplexity"] < 60
    assert result["splits"]["test"]["symbols"] == len("YES") + len("GO ON") + 2
    events = [json.loads(line) for line in (finished / "lm/metrics.jsonl").read_text().splitlines()]
    validations = [event for event in events if event["event"] == "validation"]
    assert [event["step"] for event in validations] == [2, 4] and validations[0]["alignment"] is None
    for event in validations:
        assert event["dev_error"] == pytest.approx(math.exp(event["dev_loss"]))
    assert "dev perplexity" in (finished / "lm/log.txt").read_text()
    # Measured token by token, and in batches with padding: the best step's.
    best = min(event["dev_error"] for event in validations)
    assert result["splits"]["dev"]["perplexity"] == pytest.approx(best, rel=1e-5)
    for verb in (["train_lm"], ["train", "--config-name=language_model"]):
        las(*verb, *given(finished)).succeeds("finished: dev perplexity")


def test_a_stopped_training_goes_on_as_if_it_had_not(finished: Path, tmp_path: Path) -> None:
    root = tree(tmp_path)
    language_model.train_lm(given(root, "trainer.max_steps=2"))
    for path in (root / "lm").glob("result.json"):
        path.unlink()
    config = json.loads((root / "lm/config.json").read_text())
    config["trainer"]["max_steps"] = 4
    (root / "lm/config.json").write_text(json.dumps(config))
    language_model.train_lm(given(root))
    one, other = (checkpoint.newest(folder / "lm/checkpoints")[0] for folder in (finished, root))
    assert one is not None and other is not None and one.state["step"] == other.state["step"] == 4
    assert all((one.model[name] == other.model[name]).all() for name in one.model)


def test_models_are_compared_on_the_same_sentences(finished: Path, las: Las, tmp_path: Path) -> None:
    corpus = tiny_words.corpus(finished)
    assert las("ngram", *corpus, "n=2", f"output={tmp_path / 'x.arpa'}").code == 0
    answer = las("perplexity", *corpus, f"models=[{tmp_path / 'x.arpa'},{finished / 'lm'}]").succeeds("2 sentences, 10")
    result = json.loads((finished / "lm/result.json").read_text())
    assert f"{result['splits']['test']['perplexity']:.3f}" in answer.out
    (tmp_path / "text").write_text("GO\n\nGO ON\n")
    las("perplexity", *corpus, f"models={finished / 'lm'}", f"text={tmp_path / 'text'}").succeeds("2 sentences, 9")
    las("perplexity", *corpus, f"models={finished / 'lm'}", "split=tset").fails(2, "Did you mean")


def test_a_text_in_place_of_the_transcripts(tmp_path: Path, las: Las) -> None:
    root = tree(tmp_path)
    with gzip.open(tmp_path / "text.gz", "wt") as file:
        file.write("GO ON\n\nYES YES\nNO\n")
    (tmp_path / "dev.txt").write_text("GO\n")
    answer = las("train_lm", *given(root, f"text={tmp_path / 'text.gz'}", f"dev={tmp_path / 'dev.txt'}"))
    answer.succeeds("3 training utterances")
    result = json.loads((root / "lm/result.json").read_text())
    assert result["train_sentences"] == 3 and result["splits"]["dev"]["symbols"] == 3
    (tmp_path / "odd.txt").write_text("GO\nGÖ\n")
    las("train_lm", *given(root, f"text={tmp_path / 'odd.txt'}", f"run_dir={root / 'odd'}")).fails(3, "'Ö' once (line")
    (tmp_path / "empty.txt").write_text("\n")
    answer = las("train_lm", *given(root, f"text={tmp_path / 'empty.txt'}", f"run_dir={root / 'empty'}"))
    answer.fails(3, "empty.txt")
