"""The verb tune_lr: loss against rate as a table, a file and a picture, and the command to train with."""

import json
import re
from pathlib import Path

import pytest
from console import Las
from tiny import overrides

from las.cli import tune_lr

SWEEP = ["updates=12", "low=0.001", "high=3.0", "smoothing=0.5", "trainer.num_workers=0"]


def test_a_rate_is_found_and_no_run_is_made(
    corpus: Path, las: Las, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = las("tune_lr", *overrides(corpus), *SWEEP).succeeds_quietly()
    written = tmp_path / "learning_rates" / "baseline_timit.json"
    found = json.loads(written.read_text())
    rates = [update["rate"] for update in found["updates"]]
    assert rates == pytest.approx([0.001 * 3000 ** (index / 11) for index in range(len(rates))])
    assert found["lowest"]["smoothed"] == min(update["smoothed"] for update in found["updates"])
    assert found["updates"][1]["smoothed"] == pytest.approx(
        (found["updates"][0]["loss"] + 2 * found["updates"][1]["loss"]) / 3
    )
    assert written.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert not (corpus / "run").exists() and not (tmp_path / "runs").exists()
    suggested = f"optim.lr={found['suggestion']:g}"
    printed = re.search(r"next:  (las train .*)", answer.out)
    assert printed and printed[1].endswith(suggested) and f"corpus.root={corpus / 'TIMIT'}" in printed[1]
    assert not any(word in printed[1] for word in ("updates=", "high=", "smoothing="))
    before = written.read_bytes()
    assert las("tune_lr", *overrides(corpus), *SWEEP).code == 0 and written.read_bytes() == before


def test_paths_in_the_next_command_are_as_they_were_typed() -> None:
    given = ["corpus=an4", r"corpus.root='/my corpora/it\'s'", "updates=50", "+optim.lr=1"]
    assert tune_lr.next_command(given, 0.002) == (
        """las train corpus=an4 'corpus.root=/my corpora/it'"'"'s' optim.lr=0.002"""
    )
