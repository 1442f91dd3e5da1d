"""Answers of the console command."""

from typing import NamedTuple


class Answer(NamedTuple):
    """Exit code and printed text of a console command."""

    code: int
    out: str
    err: str
