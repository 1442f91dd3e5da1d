"""Overrides survive the shell and Hydra's grammar, and an error about one that did not holds the line that does."""

import re
import shlex
from pathlib import Path

import pytest
from console import Las
from hypothesis import given
from hypothesis import strategies as st

from las.cli import sweep
from las.config import build, overrides
from las.data.tokenizers import Characters, Phones
from las.runtime.errors import ConfigError


def pasted(line: str) -> str:
    """The override that las gets when a line is pasted into a shell."""
    (word,) = shlex.split(line)
    return word


@given(st.text(st.characters(codec="utf-8", exclude_characters="$", exclude_categories=["C", "Z"]), min_size=1))
def test_any_text_arrives_as_it_was(text: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert OverridesParser.create().parse_override(pasted(overrides.quoted("name", text))).value() == text


@pytest.mark.parametrize(
    ("given_", "name"),
    [
        ("name=a b (c)", "a b (c)"),
        ("name=it's", "it's"),
        ('name="a b', "a b"),
        ("name=über", "über"),
        ("name=a=b", "a=b"),
        ("name=x]", "x]"),
        ("name=a;b", "a;b"),
    ],
)
def test_a_mistake_in_quoting_comes_with_the_line_that_works(given_: str, name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{given_}: ")) as error:
        build.compose("train", [given_])
    corrected = str(error.value).partition("for the shell: ")[2]
    assert build.compose("train", [pasted(corrected)])["name"] == name
    with pytest.raises(ConfigError, match=re.escape(f"{given_}: ")):
        sweep.combinations(["seed=1,2", given_])


def test_missing_characters_come_with_an_alphabet_to_paste(tmp_path: Path, las: Las) -> None:
    text = tmp_path / "text.txt"
    text.write_text('ÜBER UNS\n\nDIE STRASSE\nÜBEL" ~\n')
    command = ["corpus=an4", "corpus.root=/absent", f"text={text}"]
    answer = las("ngram", *command, f"output={tmp_path / 'x.arpa'}").fails(3, f"{text}: 4 26 'Ü' 2 (line")
    assert "Did you mean" not in answer.err
    line = answer.err.partition("To add them: ")[2].partition("; or mend the texts")[0]
    assert las("ngram", *command, f"output={tmp_path / 'x.arpa'}", pasted(line)).code == 0


def test_a_remedy_fits_the_kind_of_tokens() -> None:
    upper = Characters(" AB'")
    assert "alphabet" not in upper.remedy({"a"})
    added = pasted(upper.remedy({"É", "\n", '"'}).removeprefix("To add them: ").partition("; or")[0])
    assert added == """corpus.tokens.alphabet=" AB'\\"É\""""
    assert "tokens@corpus.tokens=" in Phones(39).remedy({"zz"})
