"""Answers of the console command."""

from collections.abc import Callable
from typing import NamedTuple


class Answer(NamedTuple):
    """Exit code and printed text of a console command."""

    code: int
    out: str
    err: str

    def fails(self, code: int, words: str) -> "Answer":
        """Require an exit code and an error that has all of some key words, and is no traceback."""
        assert self.code == code and "Traceback" not in self.err, self
        assert [word for word in words.split() if word not in self.err] == [], self
        return self

    def succeeds(self, words: str = "") -> "Answer":
        """Require success, and an output that has all of some key words."""
        assert self.code == 0 and [word for word in words.split() if word not in self.out] == [], self
        return self

    def succeeds_quietly(self, words: str = "") -> "Answer":
        """Require success without a warning, and an output that has all of some key words."""
        assert self.err == "", self
        return self.succeeds(words)


Las = Callable[..., Answer]
"""The fixture `las`, which runs a command in this process."""
