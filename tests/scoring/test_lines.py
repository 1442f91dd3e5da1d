"""Numbered lines of text files."""

from pathlib import Path

import pytest

from las.runtime.errors import DataError
from las.scoring import transcript_files


def test_blank_lines_count_and_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.stm"
    path.write_bytes("\ufeffone\r\n\n \t\ntwo\u2028half \n".encode())
    assert list(transcript_files.numbered_lines(path)) == [(1, "one"), (4, "two\u2028half")]


def test_a_file_that_is_not_text_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.stm"
    path.write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"x\.stm:2: not UTF-8"):
        list(transcript_files.numbered_lines(path))
    with pytest.raises(DataError, match=r"gone\.stm: cannot be read"):
        list(transcript_files.numbered_lines(tmp_path / "gone.stm"))
