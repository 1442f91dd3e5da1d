"""Random mapping rules (glm) and texts, and NIST's rfilter1 and csrfilt.sh to compare with."""

import random
import tempfile
from pathlib import Path
from typing import NamedTuple

import nist

from las.scoring import ctm, stm
from las.scoring.glm import Glm

GOLD = Path(__file__).parents[1] / "gold" / "glm.json"
"""Output of NIST's programs for the first cases; `python tests/helpers/mapping_rules.py` writes it where they exist."""

PARTS = ("A", "B", "AB", "ABC", "C", "CA", "B C", "A B", "A-B", "'S", "A'S", "!A", "x", "aB", "A.", "B C A")
TARGETS = ("B", "B C", "{A / B}", "{A B / C / @}", "{ A/B C }", "B-C", "D", "abc", "%HESITATION", "@", "E{A B/C}")
WORDS = ("a", "b", "c", "ab", "abc", "AB", "Ca", "a-b", "a'S", "a's", "a.", "!a", "b-", "-b", "a-b-c", "x", "(a)")
KINDS = ("ctm", "STM", "ctm|stm", "hyp", "r.f", "trn")
CONTEXTS = ("", "", "/ [ ] __ [ ]", "/ [ ] __ [ ]", "/ [ ] _", "/ __ [ ]", "/ [A ] __ [ B]", "/ a __A [ ]")


Outputs = dict[str, list[list[str | float]]]
"""Lines by the way they were filtered, each as its fields (of a ctm: begin, duration and word)."""


class Case(NamedTuple):
    """Rules, the same rules without parts for one kind of input only, and what to filter with them."""

    rules: str
    plain_rules: str
    lines: str
    reference: str
    hypothesis: str


def case(seed: int) -> Case:
    """Rules of all shapes, headers in any case, comments, and parts that hold for one kind of input only."""
    draw = random.Random(seed)
    # Where a rule maps a word with a confidence to nothing, csrfilt.sh leaves the confidence as the word.
    blank = draw.random() < 0.5
    lines = [";; made at random", draw.choice(('* NAME "random"', "* name = 'random'", ""))]
    lines.append(f"* case_sensitive = '{draw.choice('FT')}'")
    for _ in range(draw.randint(3, 25)):
        lines.append(_rule(draw, draw.choice((*TARGETS, *PARTS, *[""] * blank))))
        lines.append(draw.choice(("", "", ";; comment => not a rule", "* desc 'a rule set'")))
        if draw.random() < 0.07:
            lines.append(f';;  INPUT_DEPENDENT_APPLICATION = "{draw.choice(KINDS)}"')
    return with_rules(lines, draw, blank)


def with_rules(lines: list[str], draw: random.Random, blank: bool) -> Case:
    """A case of rules that are given; `blank` for those that map a word to nothing."""
    plain = [line for line in lines if "INPUT_DEPENDENT" not in line]
    rules, plain_rules = ("".join(f"{line}\n" for line in each) for each in (lines, plain))
    texts, references = ([_text(draw) for _ in range(20)] for _ in range(2))
    return Case(
        rules,
        plain_rules,
        lines="".join(f" {text} \n" for text in texts),
        reference="".join(f"f A s 1.5 2.5 {draw.choice(('', '<O,x> '))}{text}".rstrip() + "\n" for text in references),
        hypothesis="".join(_word(draw, blank) for _ in range(20)),
    )


def _rule(draw: random.Random, target: str) -> str:
    quotes = (("[{}]", "[{}]"), ('"{}"', "{}"), ("{}", "{}"), (" {} ", "[ {} ]"), ("[ {}]", "[ {}]"), ("[{} ]", "{}"))
    before, after = draw.choice(quotes)
    # A rule that takes away the blank in front of a text makes csrfilt.sh glue the text to the field before it; so
    # does one whose target is cut at a slash for want of a context.
    context = draw.choice(CONTEXTS[2:] if before == "[ {}]" else CONTEXTS)
    comment = draw.choice(("", "", " ;; why", "   "))
    return f"{before.format(draw.choice(PARTS))} => {after.format(target)} {context}{comment}"


def _text(draw: random.Random) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(draw.choice((0, 1, 3, 8))))


def _word(draw: random.Random, blank: bool) -> str:
    confidence = "" if blank else draw.choice(("", " 0.75", " -1"))
    times = draw.choice(("1.0 0.5", "2.12345 0.3333", "7 1"))
    return f"f A {times} {draw.choice(WORDS)}{confidence}\n"


def ours(case: Case, folder: Path) -> Outputs:
    """The case filtered by this package, by way of files in a folder."""
    files = _files(case, folder)
    plain = Glm.read(files["plain.glm"])
    glm = Glm.read(files["rules.glm"])
    segments = glm.filter_segments(stm.read(files["r.stm"]))
    words = glm.filter_words(ctm.read(files["h.ctm"]))
    return {
        "rfilter1": [[plain.reference.apply(line)] for line in case.lines.splitlines()],
        "stm": [["f", "A", "s", "1.5", "2.5", *["<O,x>"] * bool(each.labels), *each.text.split()] for each in segments],
        "ctm": [[word.start_s, word.duration_s, word.text] for word in words],
    }


def theirs(case: Case, folder: Path) -> Outputs:
    """The case filtered by NIST's programs, by way of files in a folder."""
    files = _files(case, folder)
    printed = nist.run("rfilter1", str(files["plain.glm"]), text=case.lines)
    segments, words = (
        [line.split() for line in nist.run("csrfilt.sh", *kind, "-dh", str(files["rules.glm"]), text=text).splitlines()]
        for *kind, text in (("-i", "stm", "-t", "ref", case.reference), ("-i", "ctm", "-t", "hyp", case.hypothesis))
    )
    return {
        "rfilter1": [[line] for line in printed.splitlines()],
        "stm": [list(fields) for fields in segments],
        "ctm": [[*(0.0 if time == "*" else float(time) for time in fields[2:4]), fields[4]] for fields in words],
    }


def _files(case: Case, folder: Path) -> dict[str, Path]:
    contents = {"rules.glm": case.rules, "plain.glm": case.plain_rules}
    contents |= {"r.stm": case.reference, "h.ctm": case.hypothesis}
    for name, content in contents.items():
        (folder / name).write_text(content, "utf-8")
    return {name: folder / name for name in contents}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        nist.write_gold(GOLD, (theirs(case(seed), Path(temporary)) for seed in range(12)))
