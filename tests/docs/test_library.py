"""The code of docs/library.md runs as printed, and every public name is there."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import las
from las.config import public

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"
PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text("utf-8")


def test_the_snippets_run_one_after_another() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.partition("## Tutorial")[0], re.MULTILINE | re.DOTALL)
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


def examples() -> list[Any]:
    """The docstrings that show examples, by module and name."""
    shown = []
    for path in sorted(Path(las.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                docstring, name = ast.get_docstring(node) or "", getattr(node, "name", "")
                if ">>> " in docstring:
                    shown.append(pytest.param(docstring, id=f"{path.stem}.{name}"))
    return shown


@pytest.mark.parametrize("docstring", examples())
def test_examples_in_docstrings_run(
    docstring: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder with the run of a tiny model, an audio file and a language model."""
    (tmp_path / "run").symlink_to(GOLDEN)
    (tmp_path / "audio.wav").symlink_to(GOLDEN / "audio.wav")
    (tmp_path / "lm.arpa").write_text("\\data\\\nngram 1=4\n\\1-grams:\n-99 <s>\n-1 </s>\n-0.3 a\n-0.4 b\n\\end\\\n")
    monkeypatch.chdir(tmp_path)
    example = doctest.DocTestParser().get_doctest(docstring, {}, "example", None, None)
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
    assert result.failed == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", public.TOOLS)
def test_functions_and_classes_for_own_code_show_an_example(name: str) -> None:
    assert ">>> " in inspect.getdoc(getattr(las, name))


def test_scores_tokenizers_and_searches_are_shown_in_a_line() -> None:
    score = las.error_rate({"u1": ["a", "b"], "u2": ["c"]}, {"u1": ["a"], "u2": ["c"]})
    assert re.fullmatch(
        r"Score\(33\.3 % \[[\d.]+, [\d.]+\]: 1 errors in 3 words of 2 utterances, 0 missing; "
        r"interval over utterances\)",
        repr(score),
    )
    tokens = las.Characters("abcdefg")
    assert repr(tokens) == "Characters(8 symbols: 'a' 'b' 'c' 'd' 'e' ...)"
    assert repr(las.Phones(symbols=["aa"])) == "Phones(2 symbols: 'aa')"
    search = las.BeamSearch(4, length_reward=las.LengthReward(0.5), min_length=las.MinLength(0.1))
    assert repr(search) == "BeamSearch(size=4, length_normalisation=1, nbest=1, length_reward=0.5, min_length)"
