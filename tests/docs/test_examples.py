"""The scripts of docs/examples run, are short, and print a line that shows that they work."""

import re
import runpy

import pytest
from places import REPOSITORY

NUMBER = r"-?\d+\.\d+"
PRINTED = {
    "own_cell": rf"own cell: .* ({NUMBER}) before, ({NUMBER}) after",
    "own_attention": rf"own attention: .* ({NUMBER}) before, ({NUMBER}) after",
    "own_loss": rf"own loss: ({NUMBER}) .* before, ({NUMBER}) after",
    "own_scorer": r"own scorer: \[2, 2, 2, 2\] .*, \[2, 1, 2\] with",
    "own_data": r"own data: \['ann_one', 'ann_two'\] \(2, 8000\), .* 50 %",
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = REPOSITORY / "docs" / "examples" / f"{name}.py"
    assert len(path.read_text("utf-8").splitlines()) <= 40
    runpy.run_path(str(path))
    printed = re.fullmatch(PRINTED[name] + r".*\n", capsys.readouterr().out)
    assert printed
    if printed.groups():
        before, after = map(float, printed.groups())
        assert after < 0.5 * before
