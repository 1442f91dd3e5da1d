"""Random references and hypotheses with NIST's markup (trn), and the real sclite to compare with.

Run as a program where sclite is installed, this file writes tests/gold/alignment.json anew.
"""

import json
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from las.scoring.alignment import Aligned, Rules

GOLD = Path(__file__).parents[1] / "gold" / "alignment.json"
SEED, GOLD_CASES = 20, 500
OPTIONS = {
    "": Rules(),
    "-D": Rules(optional_words=True),
    "-F": Rules(fragments=True),
    "-D -F": Rules(optional_words=True, fragments=True),
    "-s": Rules(ignore_case=False),
}
"""Sclite's options and what they are called here."""

KINDS = ("correct", "substitution", "deletion", "insertion")
WORDS = ("a", "a", "b", "b", "c", "ab", "bc", "abc", "the", "A", "B", "The")
RARE = (
    "(%hesitation)",
    "()",
    "(",
    ")",
    "(-)",
    "-",
    "--",
    "(@)",
    "b*",
    "*",
    "b;tag;other",
    "b\\;c",
    "a/b",
    "%",
    "é",
    "É",
)
Pair = tuple[str, str]


def program() -> str:
    """The path of sclite; skips the test where it is not installed."""
    found = shutil.which("sclite") or shutil.which("/usr/lib/sctk/bin/sclite")
    if found is None:
        pytest.skip("NIST's sclite is not installed (Debian: apt install sctk)")
    return found


def pairs(seed: int, count: int) -> list[Pair]:
    """Texts of references and hypotheses: few different words, so that many alignments cost the same."""
    draw = random.Random(seed)
    return [_pair(draw) for _ in range(count)]


def _pair(draw: random.Random) -> Pair:
    reference = _text(draw, draw.choice((0, 1, 2, 3, 5, 8, 12)))
    chance = draw.random()
    if chance < 0.1:
        return reference, ""
    if chance < 0.3:
        return reference, _text(draw, draw.choice((1, 2, 3, 5, 8, 12)))
    if chance < 0.5:
        return reference, reference
    return reference, " ".join(_heard(draw, word) for word in reference.split() if not set("{}/@") & set(word)).strip()


def _heard(draw: random.Random, word: str) -> str:
    chance = draw.random()
    if chance < 0.12:
        return ""
    if chance < 0.25:
        return _word(draw)
    return f"{word} {_text(draw, 1)}" if chance < 0.35 else word


def _text(draw: random.Random, length: int, depth: int = 0) -> str:
    return " ".join(_item(draw, depth) for _ in range(length))


def _item(draw: random.Random, depth: int) -> str:
    chance = draw.random()
    if chance < 0.15 and depth < 3:
        alternatives = [
            _text(draw, draw.choice((1, 1, 1, 2, 3)), depth + 1) for _ in range(draw.choice((1, 2, 2, 3, 4)))
        ]
        tight = draw.random() < 0.2
        return "{" + "/".join(alternatives) + "}" if tight else "{ " + " / ".join(alternatives) + " }"
    if chance < 0.19:
        return "@"
    # Outside of braces these two are words like all others.
    return draw.choice("/}") if chance < 0.2 and depth == 0 else _word(draw)


def _word(draw: random.Random) -> str:
    if draw.random() < 0.04:
        return draw.choice(RARE)
    shape = draw.choices(("{}", "{}-", "-{}", "({})", "({}-)", "(-{})"), (80, 6, 4, 8, 1, 1))[0]
    return shape.format(draw.choice(WORDS))


def counts(alignment: Sequence[Aligned]) -> list[int]:
    """Correct words, substitutions, deletions and insertions."""
    kinds = [aligned.kind for aligned in alignment]
    return [kinds.count(kind) for kind in KINDS]


def sclite(cases: Sequence[Pair], options: str) -> list[list[Aligned]]:
    """The alignments of sclite itself, without the tags that it prints behind words."""
    with tempfile.TemporaryDirectory() as folder:
        printed = run(cases, options, Path(folder)).stdout
    found = {}
    for number, body in re.findall(r'<PATH id="\(s-(\d+)\)"[^\n]*\n(.*?)\n</PATH>', printed, re.DOTALL):
        parts = re.findall(r'(?:^|:)([CSDI]),(?:"([^"]*)")?,(?:"([^"]*)")?', body)
        found[int(number)] = [_aligned(kind, reference, hypothesis) for kind, reference, hypothesis in parts]
    return [found[number] for number in range(len(cases))]


def run(cases: Sequence[Pair], options: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """What sclite says of references and hypotheses, in its SGML."""
    for side, name in enumerate(("reference", "hypothesis")):
        lines = [f"{case[side]} (s-{number})\n" for number, case in enumerate(cases)]
        (folder / f"{name}.trn").write_text("".join(lines), "utf-8")
    files = ["-r", str(folder / "reference.trn"), "trn", "-h", str(folder / "hypothesis.trn"), "trn", "-i", "spu_id"]
    command = [program(), *files, *options.split(), "-o", "sgml", "stdout", "-f", "0"]
    return subprocess.run(command, capture_output=True, check=False, text=True)


def _aligned(kind: str, reference: str, hypothesis: str) -> Aligned:
    kind = next(name for name in KINDS if name.startswith(kind.lower()))
    texts = [re.sub(r"(?<!\\);.*", "", text).replace("\\", "") or None for text in (reference, hypothesis)]
    return Aligned(*texts, kind)


def write_gold() -> None:
    """The cases of SEED with sclite's counts for each of OPTIONS."""
    cases = pairs(SEED, GOLD_CASES)
    answers = [[counts(alignment) for alignment in sclite(cases, options)] for options in OPTIONS]
    lines = [json.dumps([*case, *each], ensure_ascii=False) for case, *each in zip(cases, *answers, strict=True)]
    GOLD.parent.mkdir(exist_ok=True)
    GOLD.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


if __name__ == "__main__":
    write_gold()
