"""Standard output on a terminal of any encoding."""

import codecs
import json
import sys

ESCAPED = "las.escaped"
"""Name of the error handler of codecs that writes `\\u4f60` for a character that an encoding lacks, as JSON does."""


def write_any_character() -> None:
    """Let standard output and error write every text: with escapes where a terminal's encoding lacks a character.

    Names of files that are no text in the terminal's encoding are such characters, too.
    """
    codecs.register_error(ESCAPED, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a notebook's own streams take every character
            stream.reconfigure(errors=ESCAPED)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
