"""suite=nn_lstm: every stack, on small shapes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks import nn_lstm
from benchmarks.shapes import Shape
from console import Answer


@pytest.mark.slow
def test_every_stack_is_measured(las: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn_lstm, "PADDED", Shape("", 4, 3, 2, 5))
    monkeypatch.setattr(nn_lstm, "PACKED", Shape("", 4, 3, 2, 5, shortest=0.5))
    answer = las(
        "benchmark", "suite=nn_lstm", "repeats=1", "budget_s=0.01", "threads=1", f"output={tmp_path / 'x.jsonl'}"
    )
    assert answer.code == 0
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert len(rows) == 24 and len({row["shape"] for row in rows}) == 8
    assert all(row["total_ms"] > 0 and row["forward_ms"] > 0 for row in rows)
    assert {row["ratio_to_lstm"] for row in rows if row["implementation"] == "nn.LSTM"} == {1.0}
