"""A whole training, and one utterance from audio to text, go through few enough files to be read."""

import re
import subprocess
import sys

import pytest
from places import REPOSITORY

MOST = {"training": 80, "utterance": 26}


@pytest.mark.slow
def test_a_journey_goes_through_few_files() -> None:
    made = subprocess.run(
        [sys.executable, REPOSITORY / "tests/helpers/journeys.py"], cwd=REPOSITORY, capture_output=True, text=True
    )
    counts = {name: int(number) for name, number in re.findall(r"^(\w+): (\d+) files", made.stdout, re.MULTILINE)}
    assert counts.keys() == MOST.keys(), made.stderr
    assert {name: counts[name] for name in counts if counts[name] > MOST[name]} == {}, made.stdout
