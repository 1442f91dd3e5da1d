"""Lines of text files: the numbered lines every reader of a NIST format starts from."""

from collections.abc import Iterator
from pathlib import Path

from las.errors import DataError


def read(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1, without blanks around them.

    Raises DataError for a file that cannot be read or is not UTF-8 text.
    """
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{number}: not UTF-8 text. Convert it: iconv -f latin1 -t utf-8") from error
    # Not splitlines: it would also split at separators that may stand inside a text.
    for number, line in enumerate(content.split("\n"), start=1):
        if stripped := line.strip(" \t\r\f\v"):
            yield number, stripped
