"""Files that appear whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any


def write(path: Path, content: bytes | str) -> None:
    """Write a file (text as UTF-8) so that a reader sees the old one or the new one; makes its folder.

    A write that the disk refuses leaves nothing behind. Not flushed to disk: what must outlive a power cut says so
    itself (`las.run.write_json`, `las.manifest.write`).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """The same of plain data."""
    write(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
