"""Scoring conventions by name: their tokens, on labels made by hand and on real ones."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from las.cli import score
from las.runtime.errors import ConfigError, DataError
from las.scoring import phones
from las.scoring.conventions import CONVENTIONS, convention

LABELS = "h# q ix tcl t epi pau zh h#"


@pytest.mark.parametrize(
    ("name", "reference", "hypothesis"),
    [
        ("nist", LABELS, LABELS),
        ("timit_kaldi", "sil ih sil t sil sil sh sil", "sil ih sil t sil sil sh sil"),
        ("timit_glottal", "sil q ih sil t sil sil sh sil", "sil q ih sil t sil sil sh sil"),
        ("timit_optional_silence", "(sil) ih (sil) t (sil) (sil) sh (sil)", "sil ih sil t sil sil sh sil"),
        ("timit_no_silence", "ih t sh", "ih t sh"),
    ],
)
def test_tokens(name: str, reference: str, hypothesis: str) -> None:
    assert " ".join(convention(name).reference(LABELS)) == reference
    assert " ".join(convention(name).hypothesis(LABELS)) == hypothesis


MISTAKES = [
    (lambda: convention("timit_glottal").reference("sil ih"), DataError, "61 labels"),
    (lambda: convention("timit_no_silence").hypothesis("ih xx"), DataError, "'xx'"),
    (lambda: convention("timit_no_silenc"), ConfigError, "mean timit_no_silence"),
]


@pytest.mark.parametrize(("call", "error", "says"), MISTAKES)
def test_mistakes_are_named(call: Callable[[], object], error: type[Exception], says: str) -> None:
    assert convention("timit_glottal").hypothesis("sil ih") == ["sil", "ih"]
    with pytest.raises(error, match=says):
        call()


def test_the_conventions_differ_by_q_and_silences_on_real_labels(shared_data: Path) -> None:
    """The reason of TIMIT's two denominators: `q` is counted or not; no other label is."""
    files = sorted(shared_data.glob("timit_sample/TIMIT/*/*/*/S[IX]*.PHN"))
    listed = [[line.split()[2] for line in path.read_text().splitlines()] for path in files]
    labels = [label for utterance in listed for label in utterance]
    texts = [" ".join(utterance) for utterance in listed]
    counted = {name: sum(len(each.reference(text)) for text in texts) for name, each in CONVENTIONS.items()}
    assert len(files) == 128
    assert counted["nist"] == counted["timit_glottal"] == len(labels)
    assert counted["timit_kaldi"] == counted["timit_optional_silence"] == len(labels) - labels.count("q")
    silences = sum(phones.fold(label, 39) == "sil" for label in labels)
    assert counted["timit_no_silence"] == counted["timit_kaldi"] - silences


def test_the_documents_name_every_convention() -> None:
    text = (Path(__file__).parents[2] / "docs" / "scoring.md").read_text()
    named = set(re.findall(r"^\| `(\w+)` \|", text[: text.index("## Hub5")], re.MULTILINE))
    assert named == CONVENTIONS.keys() | set(score.TIME_MARK_CONVENTIONS)
