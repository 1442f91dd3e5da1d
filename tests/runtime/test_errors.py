"""Errors carry their exit code, and unknown names come with the nearest ones."""

import pytest

from las.runtime.errors import ConfigError, DataError, LasError, NumericalError, StorageError, nearest, suggest


@pytest.mark.parametrize(
    ("kind", "code"), [(LasError, 1), (ConfigError, 2), (DataError, 3), (NumericalError, 4), (StorageError, 5)]
)
def test_every_kind_has_its_exit_code_and_keeps_its_words(kind: type[LasError], code: int) -> None:
    assert kind.exit_code == code
    with pytest.raises(LasError, match="what is wrong"):
        raise kind("what is wrong")


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
