"""Docstrings begin with a noun or verb phrase."""

import ast
from pathlib import Path

import pytest
from places import REPOSITORY

PACKAGES = sorted(path.parent.name for path in (REPOSITORY / "las").glob("*/__init__.py"))

FORBIDDEN = """
what how whether of those these that this same as where which when why who if from by in on at for with to is are be
does some so ones it they none nothing
"""
"""First words that begin no noun or verb phrase, or one that hides its subject (`One that ...`)."""


def docstrings(path: Path) -> list[tuple[str, str]]:
    """Place and text of each docstring in a file: of modules, classes, functions, and of constants and fields."""
    lone = (
        node.value
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
    return [(f"{path.name}:{text.lineno}", text.value) for text in lone if isinstance(text.value, str)]


def wrong(docstring: str) -> bool:
    """Return whether a docstring begins with a forbidden word, an article before it not counted."""
    first, second = [*docstring.lower().replace(",", " ").split(), "", ""][:2]
    return not first or (second if first == "the" else first) in FORBIDDEN.split()


@pytest.mark.parametrize("name", PACKAGES)
def test_docstrings_begin_with_a_noun_or_a_verb(name: str) -> None:
    texts = [text for path in sorted((REPOSITORY / "las" / name).rglob("*.py")) for text in docstrings(path)]
    assert len(texts) > 3
    assert [f"{where}: {text.splitlines()[0]}" for where, text in texts if wrong(text)] == []
