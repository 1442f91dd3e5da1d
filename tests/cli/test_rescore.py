"""N-best lists ranked again: by what was computed by hand, by an ARPA file of words and by an LSTM of tokens."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_words
from console import Las

from las.cli import rescore
from las.cli.language_model import train_lm
from las.lm import arpa, ngram
from las.lm.perplexity import log_probs


def nbest(name: str, **scores: tuple[float, float]) -> dict[str, object]:
    listed = [
        {"text": text.replace("_", " "), "score": total, "scores": {"acoustic": 1.0, "lm": lm}}
        for text, (total, lm) in scores.items()
    ]
    return {"id": name, "text": listed[0]["text"], "score": listed[0]["score"], "nbest": listed}


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    entries = [nbest("a", GO=(-1.0, -3.0), GO_ON=(-2.0, -5.0), ON=(-2.5, -1.0)), nbest("b", YES=(-1.0, -1.0))]
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_weights_are_chosen_by_references_and_applied_without(lists: Path, tmp_path: Path, las: Las) -> None:
    (tmp_path / "text").write_text("GO ON\nGO ON\nYES\n")
    references, output = tmp_path / "references.jsonl", tmp_path / "out.jsonl"
    references.write_text('{"id": "a", "text": "GO ON"}\n{"id": "b", "text": "NO"}\n')
    las("ngram", "units=words", "n=2", f"text={tmp_path / 'text'}", f"output={tmp_path / 'lm.arpa'}").succeeds()
    command = ["rescore", f"hypotheses={lists}", f"language_model={tmp_path / 'lm.arpa'}", f"output={output}"]
    grid = ["weights.weight=[0,1,4]", "weights.words=[0,0.5]"]
    las(*command, *grid).fails(2, "references=")
    las(*command, *grid, f"references={references}").succeeds("33.3 % oracle weights.weight=[1]")
    las(*command, "weights.weight=[1]", "weights.own_lm=[-0.5]", "weights.words=[0.25]").succeeds("2 utterances")
    model = ngram.of_words(arpa.read(tmp_path / "lm.arpa"))
    of = {word: model.symbols.index(word) for word in ("GO", "ON")}
    both = float(log_probs(model, [[of["GO"], of["ON"]]])[0].sum())
    best, other = read(output)
    assert best["text"] == "GO ON" and best["score"] == pytest.approx(-2.0 + both + 2.5 + 0.5, abs=1e-3)
    assert len(best["nbest"]) == 3 and best["nbest"][0]["scores"]["rescoring"] == pytest.approx(both, abs=1e-3)
    assert other["words"] == [{"text": "YES", "confidence": 0.99}]


def test_an_lstm_scores_in_its_own_tokens(lists: Path, tmp_path: Path, las: Las) -> None:
    root = tiny_words.tree(tmp_path)
    small = ["lm.hidden_size=8", "lm.embedding_size=4", "trainer.max_steps=1", f"run_dir={root / 'lm'}"]
    train_lm([*tiny_words.corpus(root), *small])
    rescored = rescore.text_log_probs(str(root / "lm"), ["GO ON", "GO", "GO ON NO"])
    assert rescored[1] > rescored[0] > rescored[2]  # hardly trained: every symbol costs about the same
    command = ["rescore", f"language_model={root / 'lm'}", f"output={tmp_path / 'out.jsonl'}"]
    las(*command, f"hypotheses={lists}").succeeds()
    lists.write_text(lists.read_text().replace("YES", "YE$"))
    las(*command, f"hypotheses={lists}").fails(3, "YE$")
    las(*command, f"hypotheses={root / 'lm/metrics.jsonl'}").fails(3, "search.nbest")
