"""The code of docs/library.md runs as printed, and every public name is there."""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import las

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text("utf-8")


def test_the_snippets_run_one_after_another() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    results = []
    for block in blocks:
        exec(compile(block, "docs/library.md", "exec"), names)
        results.append(dict(names))
    assert results[0]["outputs"].shape == (2, 50, 256) and results[0]["last"].cell.shape == (2, 256)
    assert results[1]["encoded"].shape == (2, 13, 512) and results[1]["num_states"].tolist() == [13, 8]
    assert [len(each) for each in results[2]["nbest"]] == [4, 4]
    assert results[2]["nbest"][0][0].tokens == [2, 2, 2] and {"las", "length_reward"} == set(
        results[2]["nbest"][0][0].scores
    )
    assert results[3]["outputs"].shape == (2, 50, 512) and results[3]["h"].shape == (4, 2, 256)
    assert results[4]["score"].total.rate == 1 / 3


def test_importing_and_listing_the_package_imports_no_torch() -> None:
    program = "import sys, las; dir(las); assert 'LSTM' in las.__all__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", program]).returncode == 0


@pytest.mark.parametrize("module", ["las", "las.nn.lstm"])
def test_examples_in_docstrings_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted >= 3 and result.failed == 0


def test_scores_tokenizers_and_searches_are_shown_in_a_line() -> None:
    score = las.error_rate({"u1": ["a", "b"], "u2": ["c"]}, {"u1": ["a"], "u2": ["c"]})
    assert re.fullmatch(
        r"Score\(33\.3 % \[[\d.]+, [\d.]+\]: 1 errors in 3 words of 2 utterances, 0 missing\)", repr(score)
    )
    tokens = las.Characters("abcdefg")
    assert repr(tokens) == "Characters(8 symbols: 'a' 'b' 'c' 'd' 'e' ...)"
    assert repr(las.Phones(symbols=["aa"])) == "Phones(2 symbols: 'aa')"
    search = las.BeamSearch(4, length_reward=las.LengthReward(0.5), min_length=las.MinLength(0.1))
    assert repr(search) == "BeamSearch(size=4, length_normalisation=1, nbest=1, length_reward=0.5, min_length)"
