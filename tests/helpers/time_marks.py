"""Random references (stm) and hypotheses (ctm), and the real sclite to compare with."""

import random
import tempfile
from pathlib import Path
from typing import NamedTuple

import nist

from las.scoring import ctm, segments, stm
from las.scoring.alignment import AlignmentRules, align
from las.scoring.error_rates import count

GOLD = Path(__file__).parents[1] / "gold" / "stm_ctm.json"
"""Seeds and sclite's counts of their cases; `python tests/helpers/time_marks.py` writes them where it is installed."""

WORDS = ("a", "b", "c", "d", "ab", "abc", "Abd", "cab", "a-", "ab-", "-b", "-ab", "c*")


class Case(NamedTuple):
    """A pair of files and how to score them."""

    reference: str
    hypothesis: str
    rules: AlignmentRules


def case(seed: int) -> Case:
    """Some files of some channels with overlaps, gaps, alternatives, optional words, and much that is missing."""
    draw = random.Random(seed)
    rules = AlignmentRules(draw.random() < 0.5, draw.random() < 0.5, ignore_case=draw.random() < 0.8)
    reference: list[str] = []
    hypothesis: list[str] = []
    channels = [(file, channel) for file in ("f1", "F2", "f3")[: draw.randint(1, 3)] for channel in ("A", "B")]
    for file, channel in draw.sample(channels, draw.randint(1, len(channels))):
        # With -s, names differ by case too, for sclite.
        reference += _segments(draw, file, channel, "Spk" if rules.ignore_case else "spk")
        if draw.random() < 0.85:
            hypothesis += _words(draw, f"{file} {channel}", rules.ignore_case, float(reference[-1].split()[4]))
    return Case("".join(reference), "".join(hypothesis), rules)


def _segments(draw: random.Random, file: str, channel: str, other: str) -> list[str]:
    lines = []
    start = draw.choice((0, 0, 50, 200))
    for _ in range(draw.randint(1, 6)):
        end = start + draw.randint(1, 300)
        speaker = draw.choice(("spk", other, "inter_segment_gap"))
        label = draw.choice(("", "", "<O>", "<O,x>"))
        lines.append(f"{file} {channel} {speaker} {start / 100} {end / 100} {label} {_text(draw)}\n")
        # What follows overlaps, joins, or leaves a gap.
        start = max(0, end + draw.choice((0, 0, draw.randint(-200, 0), draw.randint(0, 200))))
    return lines


def _text(draw: random.Random) -> str:
    if draw.random() < 0.12:
        return draw.choice((stm.IGNORED, f"a {stm.IGNORED.lower()} b", "IGNORETIMESEGMENTINSCORING"))
    return " ".join(_spoken(draw, 0) for _ in range(draw.choice((0, 1, 2, 3, 5, 8))))


def _spoken(draw: random.Random, depth: int) -> str:
    if depth < 2 and draw.random() < 0.2:
        options = [
            " ".join(_spoken(draw, depth + 1) for _ in range(draw.choice((1, 1, 2, 3)))) if draw.random() < 0.8 else "@"
            for _ in range(draw.randint(1, 3))
        ]
        return "{ " + " / ".join(options) + " }"
    word = draw.choice(WORDS)
    return draw.choice((word, word, word, word, f"({word})", f"{word};tag", "@"))


def _words(draw: random.Random, channel: str, any_case: bool, last_s: float) -> list[str]:
    """Words of a channel, mostly in order of time, some before the first segment and some behind the last."""
    lines = []
    time = draw.choice((0, 0, 30, 250))
    until = 100 * last_s + draw.choice((-200, 0, 300))
    while time < until:
        named = draw.choice((channel, channel.lower())) if any_case else channel
        lines += _alternatives(draw, named, time) if draw.random() < 0.1 else [_line(draw, named, time)]
        time += draw.choice((0, 10, 25, 40, 80, -10))
    return lines


def _line(draw: random.Random, channel: str, time: int) -> str:
    word = draw.choice(WORDS)
    text = draw.choice((word, word, word, word, word, f"({word})", f"{word};tag", "@"))
    return (
        f"{channel} {max(time, 0) / 100} {draw.choice((0, 2, 20, 40, 100)) / 100} {text}{draw.choice(('', ' 0.5'))}\n"
    )


def _alternatives(draw: random.Random, channel: str, time: int) -> list[str]:
    options = [
        [_line(draw, channel, time + 10 * n) for n in range(draw.randint(1, 3))] for _ in range(draw.randint(1, 3))
    ]
    if len(options) > 1 and draw.random() < 0.3:
        options[-1] = []
    tag = f"{channel} * * <ALT>\n"
    lines = [line for option in options for line in (*option, tag)][:-1]
    return [f"{channel} * * <ALT_BEGIN>\n", *lines, f"{channel} * * <ALT_END>\n"]


def ours(case: Case, folder: Path) -> dict[str, nist.Row]:
    """The case scored by this package, from files written into a folder: counts by id."""
    reference, hypothesis = _files(case, folder)
    pairs = segments.time_segments(stm.read(reference), ctm.read(hypothesis))
    heard = [nist.marked(pair.hypothesis) for pair in pairs]  # as sclite reads them
    aligned = align([pair.reference for pair in pairs], heard, case.rules)
    return {pair.id: nist.row(count([each])) for pair, each in zip(pairs, aligned, strict=True)}


def sclite(case: Case, folder: Path) -> dict[str, nist.Row]:
    """The case scored by sclite, from files written into a folder."""
    reference, hypothesis = _files(case, folder)
    flags = {"-D": case.rules.optional_words, "-F": case.rules.fragments, "-s": not case.rules.ignore_case}
    command = ["-r", str(reference), "stm", "-h", str(hypothesis), "ctm"]
    command += [flag for flag, wanted in flags.items() if wanted]
    return nist.alignments(nist.run("sclite", *command, "-o", "pralign", "stdout"))


def _files(case: Case, folder: Path) -> tuple[Path, Path]:
    reference, hypothesis = folder / "reference.stm", folder / "hypothesis.ctm"
    reference.write_text(case.reference, "utf-8")
    hypothesis.write_text(case.hypothesis, "utf-8")
    return reference, hypothesis


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        nist.write_gold(GOLD, ([seed, sclite(case(seed), Path(temporary))] for seed in range(100)))
