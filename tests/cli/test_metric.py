"""Metrics of corpora: a training by the characters of a text without spaces, and one of a corpus of one's own."""

import csv
import doctest
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from console import Las
from tiny import MODEL, QUICK, SHORT, sound

import las as package
from las.cli import train
from las.data.corpora.files import FilesCorpus
from las.runtime.errors import ConfigError

PLAIN = ["model=las_small", "trainer=default", *SHORT, "schedule=constant", "augment=none", *MODEL, *QUICK]
TEXTS = ("你好 {吗", "再 @ 见", "好/再见", "(你) 见")
"""Characters and signs that NIST's markup has a meaning for, mostly without spaces."""


def overrides(root: Path) -> list[str]:
    corpus = ["corpus=files", "corpus.name=chinese", f"corpus.train={root / 'train.csv'}", "corpus.metric=cer"]
    return [*corpus, *PLAIN, "seed=1", f"run_dir={root / 'run'}", f"data_dir={root / 'data'}"]


@pytest.fixture(scope="module")
def chinese(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus of characters, and a run that was validated by them."""
    root = tmp_path_factory.mktemp("chinese")
    with (root / "train.csv").open("w", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["audio", "text", "speaker"])
        for index in range(16):
            sound(root / f"{index}.wav", 0.5 + 0.05 * (index % 4), index)
            rows.writerow([f"{index}.wav", TEXTS[(index + index // 8) % 4], f"s{index % 8}"])
    train.train(overrides(root))
    return root


def test_characters_are_the_metric_of_everything_that_is_printed(chinese: Path, las: Las) -> None:
    run = chinese / "run"
    result = json.loads((run / "result.json").read_text())
    assert [sorted({"wer", "cer", "phone_error_rate"} & part.keys()) for part in result["splits"].values()] == [
        ["cer"]
    ] * len(result["splits"])
    log = (run / "log.txt").read_text()
    assert "dev CER " in log and "WER" not in log
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validations = [event for event in events if event["event"] == "validation"]
    assert {event["metric"] for event in validations} == {"cer"}
    best = min(event["dev_error"] for event in validations)
    assert result["splits"]["dev"]["cer"] == pytest.approx(best)
    las("runs", str(chinese), "format=json").succeeds('"dev_metric": "cer"')
    references = {name: text for name, text in _texts(run / "references.dev.jsonl").items()}
    hypotheses = _texts(run / "hypotheses.dev.jsonl")
    score = package.error_rate(references, hypotheses)
    assert result["splits"]["dev"]["cer"] == score.characters.total.rate
    decoded = las("decode", f"checkpoint={run}", "split=dev", f"data_dir={chinese / 'data'}", "search=greedy")
    assert decoded.code == 0 and "CER" in decoded.out and "WER" not in decoded.out


def test_a_run_of_an_earlier_release_goes_on_without_a_metric(chinese: Path) -> None:
    """Configs of earlier releases have no corpus.metric, and mean what null means."""
    from las.storage import run_directory

    config = json.loads((chinese / "run/config.json").read_text())
    config["corpus"]["metric"] = None
    earlier = json.loads(json.dumps(config))
    del earlier["corpus"]["metric"]
    assert run_directory.signature_digest(earlier) == run_directory.signature_digest(config)


def _texts(path: Path) -> dict[str, str]:
    lines = map(json.loads, path.read_text("utf-8").splitlines())
    return {line["id"]: line["text"] for line in lines}


def test_the_corpus_of_the_documentation_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, las: Las) -> None:
    (example,) = (
        each.source
        for each in doctest.DocTestParser().get_examples(inspect.getdoc(package.Corpus) or "")
        if each.source.startswith("class ")
    )
    module = ModuleType("las.data.corpora.digits")
    assert 'f"{each}.wav"' in example  # processes that read audio may have begun in another folder
    module.__dict__["las"] = package
    exec(example.replace('f"{each}.wav"', f'f"{tmp_path}/{{each}}.wav"'), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for number, name in enumerate(f"{speaker}_{word}" for speaker in ("ann", "bob", "eve") for word in ("one", "two")):
        sound(tmp_path / f"{name}.wav", 1.0, number)
    (tmp_path / "options/corpus").mkdir(parents=True)
    (tmp_path / "options/corpus/digits.yaml").write_text(
        "_target_: las.data.corpora.digits.Digits\nname: digits\ntokens: {_target_: las.Characters, alphabet: entow}\n"
    )
    places = [f"run_dir={tmp_path / 'run'}", f"data_dir={tmp_path / 'data'}"]
    las("train", f"--config-dir={tmp_path / 'options'}", "corpus=digits", *PLAIN, *places).succeeds()
    assert json.loads((tmp_path / "run/result.json").read_text())["splits"]["dev"]["wer"] > 0


def test_metrics_are_checked_when_a_corpus_is_made(tmp_path: Path) -> None:
    class Wrong(package.Corpus):
        metric = "word_error_rate"

        def utterances(self, split: str) -> list[package.Utterance]:
            return []

        def normalise(self, text: str) -> list[str]:
            return text.split()

    with pytest.raises(ConfigError, match=r"metric=word_error_rate: .*phone_error_rate .*wer"):
        Wrong("wrong", package.Characters("ab"))
    for unit, metric in (("characters", "phone_error_rate"), ("phones", "cer"), ("words", "ter")):
        with pytest.raises(ConfigError, match=f"metric={metric}"):
            FilesCorpus("files", "all.csv", "x", unit=unit, metric=metric)
    assert FilesCorpus("files", "all.csv", "x", metric="cer").metric == "cer"
    assert FilesCorpus("files", "all.csv", "x", unit="phones").metric == "phone_error_rate"
