"""Random systems on random tests, and what NIST's sc_stats says about each pair of them.

`python tests/helpers/significance_cases.py` runs sc_stats on all of them and prints what
tests/gold/significance.json holds.
"""

import itertools
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nist

Texts = dict[str, list[str]]

# (speakers, utterances of each): few and many, up to 20 and more, which sc_stats treats differently.
SHAPES = [(4, 5), (8, 6), (20, 3), (21, 3), (24, 8), (40, 2), (1, 30), (10, 20), (3, 10), (30, 6), (2, 25), (12, 12)]
SYSTEMS = 14  # more do not fit into the columns of sc_stats
WORDS = [f"w{number}" for number in range(30)]
TESTS = {"MP": "mapsswe", "SI": "sign", "WI": "wilcoxon", "MN": "mcnemar"}
"""The tests as sc_stats abbreviates them."""


def tests() -> Iterator[tuple[Texts, list[Texts]]]:
    """References and the hypotheses of SYSTEMS systems of each test, the same at every call."""
    for seed, (speakers, utterances) in enumerate(SHAPES):
        yield make(random.Random(seed), speakers, utterances)


def make(generator: random.Random, speakers: int, utterances: int) -> tuple[Texts, list[Texts]]:
    """One test: its first systems are without errors, twins, and silent; the others err more and less."""
    names = [f"s{speaker:02d}-{number:03d}" for speaker in range(speakers) for number in range(utterances)]
    references = {name: generator.choices(WORDS, k=generator.randint(0, 15)) for name in names}
    rate = generator.uniform(0.05, 0.3)
    rates = [0.0, rate, *(rate * generator.uniform(0.8, 1.4) for _ in range(SYSTEMS - 4))]
    systems = [{name: err(generator, tokens, rate) for name, tokens in references.items()} for rate in rates]
    silent: Texts = {name: [] for name in references}
    return references, [systems[0], systems[1], systems[1], silent, *systems[2:]]


def err(generator: random.Random, tokens: list[str], rate: float) -> list[str]:
    """Tokens with errors at a rate: of ten, six substitutions, two deletions and two insertions."""
    heard = []
    for token in tokens:
        drawn = generator.random() / rate if rate else 1.0
        if drawn < 0.6:
            heard.append(generator.choice(WORDS))
        elif drawn < 0.8:
            heard += [token, generator.choice(WORDS)]
        elif drawn >= 1:
            heard.append(token)
    return heard


def pairs() -> Iterator[tuple[int, int]]:
    """The pairs of systems in the order in which sc_stats compares them."""
    return itertools.combinations(range(SYSTEMS), 2)


def sc_stats(references: Texts, systems: list[Texts]) -> list[dict[str, str]]:
    """For each pair: the p values as printed, and number of segments and z of the matched-pair test."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = ["-r", "ref.trn", "trn"]
        for name, texts in (("ref", references), *((f"h{number:02d}", texts) for number, texts in enumerate(systems))):
            nist.write_trn(folder / f"{name}.trn", {utterance: " ".join(words) for utterance, words in texts.items()})
            files += [] if name == "ref" else ["-h", f"{name}.trn", "trn", name]
        sgml = nist.run("sclite", *files, "-i", "spu_id", "-o", "sgml", "stdout", folder=folder)
        unified = nist.run("sc_stats", "-p", "-t", "std4", "-u", "-n", "-", text=sgml, folder=folder)
        verbose = nist.run("sc_stats", "-p", "-t", "mapsswe", "-v", "-n", "-", text=sgml, folder=folder)
    return parse(unified, verbose)


def parse(unified: str, verbose: str) -> list[dict[str, str]]:
    printed: dict[tuple[int, int], dict[str, str]] = {}
    row = 0
    for line in unified.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in TESTS:
            row = int(cells[2][1:]) if cells[2] else row
            for column, cell in enumerate(cells[3 : 3 + SYSTEMS]):
                found = re.search(r"<?\d\.\d{3}", cell)
                if found:
                    printed.setdefault((row, column), {})[TESTS[cells[0]]] = found.group()
    segments = re.findall(r"MTCH_PR_RESULTS .*\(# segs: (\d+)\).*\(Z Stat: (\S+)\)", verbose)
    return [{**printed[pair], "segments": number, "z": z} for pair, (number, z) in zip(pairs(), segments, strict=True)]


if __name__ == "__main__":
    rows = [[list(pair.values()) for pair in sc_stats(*test)] for test in tests()]
    columns = [*TESTS.values(), "segments", "z"]
    json.dump({"columns": columns, "tests": rows}, sys.stdout, separators=(",", ":"))
