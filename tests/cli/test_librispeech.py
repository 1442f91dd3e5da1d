"""LibriSpeech in small, as typed: from a tree of Opus files to words by a language model and the log of test-clean."""

import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from console import Las
from places import REPOSITORY
from tiny import MODEL, QUICK, SHORT

from las.runtime.errors import ConfigError

FINAL = runpy.run_path(str(REPOSITORY / "docs" / "made_by" / "final_test.py"))
COLLECT = runpy.run_path(str(REPOSITORY / "docs" / "made_by" / "collect_results.py"))
TEXTS = ("YES", "NO", "GO ON", "YES NO", "STOP", "GO", "NO NO", "STOP IT")
LISTENER = [each for each in MODEL if "speller" not in each]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with one speaker in each of three parts; tones in place of speech."""
    root = tmp_path_factory.mktemp("libri")
    draw = np.random.default_rng(1)
    for part, speaker, count in (("train-clean-5", 19, 8), ("train-clean-100", 4088, 2), ("test-clean", 61, 2)):
        folder = root / "LibriSpeech" / part / str(speaker) / "1"
        folder.mkdir(parents=True)
        for number, text in enumerate(TEXTS[:count]):
            tone = np.sin(np.arange(9600) * 2 * np.pi * (200 + 60 * len(text)) / 16000)
            samples = (6000 * tone + 400 * draw.standard_normal(9600)).astype(np.int16)
            path = folder / f"{speaker}-1-{number:04}.opus"
            soundfile.write(path, samples, 16000, format="OGG", subtype="OPUS")
        lines = [f"{speaker}-1-{number:04} {text}\n" for number, text in enumerate(TEXTS[:count])]
        (folder / f"{speaker}-1.trans.txt").write_text("".join(lines))
    return root


def texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_from_a_tree_to_words_and_the_log_of_test_clean(
    root: Path, las: Las, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    corpus = ["corpus=mini_librispeech", "corpus.root=LibriSpeech", "corpus.evaluate=[train-clean-100]"]
    corpus += ["corpus.partial=true"]
    las("prepare", *corpus, "page=page.html").succeeds("train_clean_100 page.html")
    assert (root / "page.html").read_text().count("data:audio/flac") == 3 + 2
    train = ["model=ctc_small", "trainer.select=dev_loss", "run_dir=run", *LISTENER, *SHORT, *QUICK]
    las("train", *corpus, *train, "schedule=constant").succeeds("test-clean")
    las("ngram", *corpus, "units=words", "n=2", "prune=1e-9", "output=words.arpa").succeeds("pruned")
    words = ["search=beam_words", "search.word_lm.path=words.arpa", "search.word_lm.oov_penalty=null"]
    decode = ["decode", "checkpoint=run", "split=train_clean_100", "search.length_normalisation=0"]
    las(*decode, *words, "output=h.jsonl").succeeds("WER")
    assert {word for text in texts(root / "h.jsonl") for word in text.split()} <= {w for t in TEXTS for w in t.split()}

    log = tmp_path / "log.jsonl"
    line = FINAL["final_test"](["row=ctc", f"checkpoint={root / 'run'}", "dev=0.5", *words], log)
    assert str(root) not in log.read_text() and line["command"].split()[0] == Path(sys.argv[0]).name
    assert (line["row"], line["seed"], line["utterances"]) == ("ctc", 1, 2) and line["wer"] >= 0
    with pytest.raises(ConfigError, match="read once"):
        FINAL["final_test"](["row=ctc", "checkpoint=run"], log)
    kept = "hypotheses=run/decoded/hypotheses.test-clean.ctc.jsonl"
    again = FINAL["final_test"](["row=rescored", "checkpoint=run", kept], log)
    assert [again[key] for key in ("wer", "insertions", "dev")] == [line["wer"], line["insertions"], None]
    monkeypatch.setitem(COLLECT["logged"].__globals__, "LOG", log)
    row, other = COLLECT["logged"]()
    assert (row["name"], other["name"], row["seeds"], row["dev"]) == ("ctc", "rescored", [1], [0.5])
    assert "search=beam_words" in row["command"] and row["command"].startswith("las ")
    assert "| `ctc` |" in COLLECT["table"]([row, other])
    COLLECT["draw_curves"](tmp_path / "curves.svg")
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    assert [len(point) for point in line["curve"]] == [2, 2]


def test_the_log_names_no_folder_of_a_machine() -> None:
    words = [
        "/a/.venv/bin/las",
        "corpus.root=/b/c/LibriSpeech",
        "run_dir=runs/x",
        "model.listener.time_reduction=[1,2]",
    ]
    expected = ["las", "corpus.root=LibriSpeech", "run_dir=runs/x", "model.listener.time_reduction=[1,2]"]
    assert [FINAL["without_folders"](word) for word in words] == expected
    assert [line for line in FINAL["lines"]() if re.search(r"[= \"]/", json.dumps(line))] == []


def test_every_row_and_seed_was_decoded_on_test_clean_at_most_once() -> None:
    found = [(line["row"], line["seed"]) for line in FINAL["lines"]()]
    assert len(found) == len(set(found))
