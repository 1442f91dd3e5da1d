"""NIST's programs, where they are installed, and their reports."""

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from las.scoring import stm
from las.scoring.error_rates import ErrorRate, Score, count
from las.scoring.stm import Segment
from las.scoring.word_network import Alternatives, Item, Marked

Row = list[int]
"""Correct words, substitutions, deletions, insertions."""

KINDS = {"C": 0, "S": 1, "D": 2, "I": 3}


def program(name: str) -> str:
    """The path of one of NIST's programs; skips the test where it is not installed."""
    found = shutil.which(name) or shutil.which(f"/usr/lib/sctk/bin/{name}")
    if found is None:
        pytest.skip(f"NIST's {name} is not installed (Debian: apt install sctk)")
    return found


def run(name: str, *arguments: str, text: str = "", folder: Path | None = None) -> str:
    """What one of NIST's programs prints that runs in a folder; it finds the others beside it."""
    command = [program(name), *arguments]
    environment = {**os.environ, "PATH": f"{Path(command[0]).parent}:{os.environ['PATH']}"}
    return subprocess.run(command, input=text, capture_output=True, text=True, env=environment, cwd=folder).stdout


def write_trn(path: Path, texts: Mapping[str, str]) -> None:
    """Texts by id as a file that NIST's programs read."""
    path.write_text("".join(f"{text} ({name})\n" for name, text in texts.items()), "utf-8")


def write_gold(path: Path, rows: Iterable[Any]) -> None:
    """What the programs gave, a row for each case, for tests where they are not installed."""
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


def write_stm(path: Path, segments: Sequence[Segment]) -> None:
    """Segments as a reference that NIST's programs read."""
    lines = []
    for each in segments:
        labels = f"<{','.join(each.labels)}>" if each.labels else ""
        times = f"{stm.seconds(each.start_s)} {stm.seconds(each.end_s)}"
        lines.append(f"{each.file} {each.channel} {each.speaker} {times} {labels} {each.text}".rstrip() + "\n")
    path.write_text("".join(lines), "utf-8")


def marked(items: Sequence[Item]) -> Marked:
    """Words of a hypothesis as NIST's programs read them, alternatives as `{ a / b }`, all of it in markup."""
    texts: list[str] = []
    for item in items:
        if isinstance(item, Alternatives):
            texts += ["{", *" / ".join(" ".join(marked(each)) for each in item.sequences).split(), "}"]
        else:
            texts.append("@" if item is None else item)
    return Marked(texts)


def row(rate: ErrorRate) -> Row:
    """Counts of ours in the order of theirs."""
    return [rate.correct, rate.substitutions, rate.deletions, rate.insertions]


def rows(score: Score) -> dict[str, Row]:
    """Counts of ours by id."""
    return {name: row(count([alignment])) for name, alignment in score.utterances.items()}


def alignments(report: str) -> dict[str, Row]:
    """Counts by id from a .pra."""
    found = re.finditer(r"^id: \((.+)\)\n(?:(?!Scores).*\n)*Scores: \(#C #S #D #I\) (.*)", report, re.MULTILINE)
    return {match[1].lower(): [int(each) for each in match[2].split()] for match in found}


def sgml(report: str) -> dict[str, Row]:
    """Counts by id from a .sgml."""
    found: dict[str, Row] = {}
    for match in re.finditer(r'<PATH id="\((.+?)\)".*>\n(.*)\n</PATH>', report):
        kinds = Counter(word[0] for word in match[2].split(":") if word)
        found[match[1].lower()] = [kinds[kind] for kind in KINDS]
    return found


def summary(report: str) -> dict[str, list[str]]:
    """The cells of .raw (counts) and .sys (%) by speaker, and those of the sum: segments, words, C, S, D, I, ..."""
    lines = (re.findall(r"[^|\s]+", line) for line in report.splitlines())
    return {cells[0].lower(): cells[1:] for cells in lines if len(cells) >= 9 and cells[1].isdigit()}
