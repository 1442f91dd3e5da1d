"""Folders that tests read."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SHARED_DATA = REPOSITORY.parent / "shared" / "data"
