"""Praat's files: what is written reads back, by our reader and by the rules of the format."""

from pathlib import Path

import pytest

from las.data.manifest import Interval
from las.hmm import textgrid
from las.runtime.errors import DataError

TIERS = {
    "words": [Interval(0.25, 0.5, 'say "ah"'), Interval(0.5, 0.75, "été 3")],
    "phones": [Interval(0.0, 0.25, "SIL"), Interval(0.25, 1.0, "AH0")],
}
SHORT = """File type = "ooTextFile"
Object class = "TextGrid"

0
1
<exists>
1
"IntervalTier"
"phones"
0
1
2
0
0.25
"SIL"
0.25
1
"AH"
"""


def test_tiers_read_back(tmp_path: Path) -> None:
    path = tmp_path / "u1.TextGrid"
    path.write_text(textgrid.text(TIERS, 1.0), "utf-8")
    assert textgrid.read(path) == TIERS


def test_intervals_cover_the_recording() -> None:
    written = textgrid.text({"words": TIERS["words"]}, 1.0)
    assert "intervals: size = 4" in written  # silence before and after the two words
    assert written.count('text = ""') == 2 and 'text = "say ""ah"""' in written
    bounds = [float(line.split("=")[1]) for line in written.splitlines() if line.strip().startswith("xm")][4:]
    assert bounds[0] == 0 and bounds[-1] == 1 and bounds[1:-1:2] == bounds[2:-1:2]
    assert "intervals: size = 1" in textgrid.text({"words": []}, 1.0)


def test_the_short_format_is_read(tmp_path: Path) -> None:
    path = tmp_path / "short.TextGrid"
    path.write_text(SHORT)
    assert textgrid.read(path) == {"phones": [Interval(0.0, 0.25, "SIL"), Interval(0.25, 1.0, "AH")]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("SIL 0 1", "this is no TextGrid"),
        (SHORT.replace("IntervalTier", "TextTier"), "the tier 'phones' is a TextTier"),
        (SHORT.rsplit("\n", 3)[0], "end too early"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.TextGrid"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        textgrid.read(path)
    with pytest.raises(DataError, match="cannot be read"):
        textgrid.read(tmp_path / "none.TextGrid")
