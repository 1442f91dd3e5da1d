"""Unknown names come with the nearest ones."""

import pytest

from las.runtime.errors import nearest, suggest


def test_nearest_puts_the_closest_first_and_never_runs_dry() -> None:
    names = ["ln_global", "ln_joined", "ln_per_gate", "lstm"]
    assert nearest("ln_globl", names)[0] == "ln_global"
    assert len(nearest("ln_globl", names)) == 3
    assert set(nearest("entirely different", names)) <= set(names)
    assert len(nearest("zzz", names)) == 3
    assert nearest("x", []) == []
    assert nearest("x", iter(["y", "y"])) == ["y"]


@pytest.mark.parametrize(
    ("candidates", "sentence"),
    [
        ([], ""),
        (["test"], " Did you mean test?"),
        (["test", "dev"], " Did you mean test or dev?"),
        (["test", "dev", "train"], " Did you mean test, dev or train?"),
    ],
)
def test_suggestions_are_a_sentence(candidates: list[str], sentence: str) -> None:
    assert suggest("tset", candidates) == sentence
