"""Text for the tests of language models, and what KenLM makes of it.

`python tests/helpers/kenlm_cases.py` runs lmplz (on the PATH) and the module kenlm and writes tests/gold/kenlm.json.
"""

import json
import random
import re
import subprocess
import tempfile
from pathlib import Path

from las.lm import arpa

GOLD = Path(__file__).parents[1] / "gold" / "kenlm.json"
CASES = {"words": 3, "letters": 5, "single words": 1}
NUM_SCORED = 10_000
NUM_LISTED = 400
BLOCK = 100
SMALL = """\\data\\
ngram 1=4
ngram 2=3
ngram 3=1

\\1-grams:
-1.5\t</s>
-99\t<s>\t-0.5
-0.3\ta\t-0.25
-0.7\t<unk>

\\2-grams:
-0.4\t<s> a\t-0.125
-0.2\ta a
-0.6\ta </s>

\\3-grams:
-0.1\t<s> a a

\\end\\
"""
"""An ARPA file with every part."""


def sentences(seed: int, count: int, num_words: int = 120, mean_length: float = 8.0) -> list[list[str]]:
    """Sentences in which some words are frequent and most words say much of the next one."""
    draw = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(num_words)]
    found = []
    for _ in range(count):
        sentence = [draw.choices(range(num_words), weights)[0]]
        while draw.random() > 1 / mean_length:
            likely = [(3 * sentence[-1] + step * step) % num_words for step in range(4)]
            sentence.append(draw.choice(likely) if draw.random() < 0.7 else draw.choices(range(num_words), weights)[0])
        found.append([f"w{word}" for word in sentence])
    return found


def text(case: str) -> list[list[str]]:
    """The text a model is estimated of.

    It ends with a new word: lmplz counts the last n-gram of each order (in the order of its own sorting) by how often
    it stands in the text, and not by what stands before it, and here the two are the same.
    """
    return [*sentences(1, 600, num_words=6 if case == "letters" else 120), ["w1", "w2", "last"]]


def scored() -> list[list[str]]:
    """What the model of the case `words` scores: text like its own, words in another order, unknown words."""
    draw = random.Random(3)
    found = sentences(2, NUM_SCORED)
    for sentence in found[::2]:
        draw.shuffle(sentence)
    for sentence in found[::3]:
        sentence.insert(draw.randrange(len(sentence) + 1), "unheard")
    return found


def entries(path: Path) -> dict[str, list[float]]:
    """`a b` -> [log10 probability, log10 back-off] of every n-gram in an ARPA file."""
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines() if line.startswith(("-", "0"))]
    return {row[1]: [float(row[0]), float(row[2]) if len(row) > 2 else 0.0] for row in rows}


def table(model: arpa.Model) -> dict[tuple[str, ...], tuple[float, float]]:
    """n-gram -> (log10 probability, log10 back-off)"""
    found, grams = {}, [()]
    for part in model.ngrams:
        pairs = zip(part.contexts.tolist(), part.words.tolist(), strict=True)
        grams = [(*grams[context], model.words[word]) for context, word in pairs]
        logs = zip(part.log10_probs.tolist(), part.log10_backoffs.tolist(), strict=True)
        found |= dict(zip(grams, logs, strict=True))
    return found


def lmplz(case: str, folder: Path) -> tuple[Path, list[list[float]]]:
    """The ARPA file that lmplz makes of a case, and its discounts."""
    source, path = folder / "text", folder / f"{case}.arpa"
    source.write_text("".join(" ".join(sentence) + "\n" for sentence in text(case)))
    command = ["lmplz", "-o", str(CASES[case]), "--text", str(source), "--arpa", str(path), "-S", "100M"]
    said = subprocess.run(
        [*command, "-T", str(folder), "--discount_fallback"], capture_output=True, text=True, check=True
    ).stderr
    found = re.findall(r"^\d+ \d+ D1=(\S+) D2=(\S+) D3\+=(\S+)$", said, re.MULTILINE)
    return path, [[float(value) for value in row] for row in found]


def gold() -> dict[str, object]:
    """All that the tests compare with."""
    import kenlm

    result: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        for case in CASES:
            path, discounts = lmplz(case, Path(name))
            found = entries(path)
            kept = {key: value for index, (key, value) in enumerate(sorted(found.items())) if index % 5 == 0}
            result[case] = {"discounts": discounts, "count": len(found), "ngrams": kept}
            if case == "words":
                model = kenlm.Model(str(path))
                totals = [model.score(" ".join(sentence)) for sentence in scored()]
                result["scores"] = [round(total, 5) for total in totals[:NUM_LISTED]]
                blocks = range(0, NUM_SCORED, BLOCK)
                result["sums"] = [round(sum(totals[first : first + BLOCK]), 4) for first in blocks]
    return result


if __name__ == "__main__":
    GOLD.write_text(json.dumps(gold(), separators=(",", ":")) + "\n")
