"""Random references and hypotheses with NIST's markup (trn), and the real sclite to compare with.

Run as a program where sclite is installed, this file writes tests/gold/alignment.json anew.
"""

import random
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nist

from las.scoring.alignment import Aligned, AlignmentRules

GOLD = Path(__file__).parents[1] / "gold" / "alignment.json"
SEED, GOLD_CASES = 20, 500
OPTIONS = {
    "": AlignmentRules(),
    "-D": AlignmentRules(optional_words=True),
    "-F": AlignmentRules(fragments=True),
    "-D -F": AlignmentRules(optional_words=True, fragments=True),
    "-s": AlignmentRules(ignore_case=False),
}
"""Sclite's options and what they are called here."""

KINDS = ("correct", "substitution", "deletion", "insertion")
WORDS = ("a", "a", "b", "b", "c", "ab", "bc", "abc", "the", "A", "B", "The")
RARE = (
    *("(%hesitation)", "()", "(", ")", "(-)", "-", "--", "(@)"),
    *("b*", "*", "b;tag;other", "b\\;c", "a/b", "%", "é", "É"),
)
Pair = tuple[str, str]


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
        printed = run(cases, options, Path(folder))
    found = {}
    for number, body in re.findall(r'<PATH id="\(s-(\d+)\)"[^\n]*\n(.*?)\n</PATH>', printed, re.DOTALL):
        parts = re.findall(r'(?:^|:)([CSDI]),(?:"([^"]*)")?,(?:"([^"]*)")?', body)
        found[int(number)] = [_aligned(kind, reference, hypothesis) for kind, reference, hypothesis in parts]
    return [found[number] for number in range(len(cases))]


def run(cases: Sequence[Pair], options: str, folder: Path) -> str:
    """What sclite says of references and hypotheses, in its SGML."""
    for side, name in enumerate(("reference.trn", "hypothesis.trn")):
        nist.write_trn(folder / name, {f"s-{number}": case[side] for number, case in enumerate(cases)})
    files = ["-r", "reference.trn", "trn", "-h", "hypothesis.trn", "trn", "-i", "spu_id"]
    return nist.run("sclite", *files, *options.split(), "-o", "sgml", "stdout", "-f", "0", folder=folder)


def _aligned(kind: str, reference: str, hypothesis: str) -> Aligned:
    kind = next(name for name in KINDS if name.startswith(kind.lower()))
    texts = [re.sub(r"(?<!\\);.*", "", text).replace("\\", "") or None for text in (reference, hypothesis)]
    return Aligned(*texts, kind)


if __name__ == "__main__":
    cases = pairs(SEED, GOLD_CASES)
    answers = [[counts(alignment) for alignment in sclite(cases, options)] for options in OPTIONS]
    nist.write_gold(GOLD, ([*case, *each] for case, *each in zip(cases, *answers, strict=True)))
