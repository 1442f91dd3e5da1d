"""ROVER: what all alignments, enumerated, give where one of them is best; and what NIST's program gives always."""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import nist
import pytest
from console import Las

from las.scoring.rover import Word, combine

Chain = list[list[str | None]]


def chains(chain: Chain, words: Sequence[str], number: int) -> Iterator[tuple[int, Chain]]:
    """Every alignment of words with a chain of `number` systems, and its cost in thousandths."""
    if not chain and not words:
        yield 0, []
    if chain:
        for cost, rest in chains(chain[1:], words, number):
            yield cost + (1 if None in chain[0] else 3000), [[*chain[0], None], *rest]
    if words:
        for cost, rest in chains(chain, words[1:], number):
            yield cost + 3000, [[words[0], *[None] * number], *rest]
    if chain and words:
        change = 0 if words[0] in chain[0] else 1000 if None in chain[0] else 4000
        for cost, rest in chains(chain[1:], words[1:], number):
            yield cost + change, [[*chain[0], words[0]], *rest]


def voted(texts: Sequence[Sequence[str]]) -> list[str] | None:
    """The words of most systems, the earlier one of two as frequent; None where several alignments are best."""
    chain: Chain = [[word] for word in texts[0]]
    for number, words in enumerate(texts[1:], start=1):
        found = sorted(chains(chain, words, number), key=lambda each: each[0])
        if len(found) > 1 and found[0][0] == found[1][0]:
            return None
        chain = found[0][1]
    won = [max(dict.fromkeys(slot), key=slot.count) for slot in chain]
    return [word for word in won if word is not None]


def test_words_of_most_systems_win_in_the_best_of_all_alignments() -> None:
    draw, compared = random.Random(1), 0
    for number in range(300):
        texts = [draw.choices("abc", k=draw.randint(0, 4)) for _ in range(2 + number % 2)]
        expected = voted(texts)
        if expected is not None:
            found = combine([[Word(word, 1.0) for word in text] for text in texts])
            assert [word.text for word in found] == expected, texts
            compared += 1
    assert compared > 50


def test_two_of_three_are_right() -> None:
    draw = random.Random(2)
    for _ in range(100):
        (same, other) = ([Word(each, 0.5) for each in draw.choices("abcd", k=draw.randint(1, 6))] for _ in range(2))
        for texts in itertools.permutations((same, same, other)):
            assert combine(texts) == same


@pytest.mark.parametrize(("systems", "name", "alpha"), [(2, "meth1", 1.0), (3, "meth1", 0.5), (5, "maxconf", 0.3)])
def test_it_votes_as_the_program_of_nist_does(systems: int, name: str, alpha: float, tmp_path: Path) -> None:
    nist.program("rover")
    draw = random.Random(systems)
    texts = [
        [[Word(draw.choice("abcde"), draw.random()) for _ in range(draw.randint(1, 7))] for _ in range(200)]
        for _ in range(systems)
    ]
    arguments = []
    for number, text in enumerate(texts):
        # The program loses the last recording of files in some cases.
        words = [
            (f"u{index:03}", place, each)
            for index, line in enumerate([*text, text[0]])
            for place, each in enumerate(line)
        ]
        lines = [f"{file} 1 {place / 10} 0.1 {each.text} {each.confidence}\n" for file, place, each in words]
        (tmp_path / f"{number}.ctm").write_text("".join(lines))
        arguments += ["-h", f"{number}.ctm", "ctm"]
    nist.run("rover", *arguments, *f"-o out -m {name} -a {alpha} -c 0.6173 -f 0".split(), folder=tmp_path)
    found: dict[str, list[tuple[str, float]]] = {}
    for line in (tmp_path / "out").read_text().splitlines():
        file, *_, word, confidence = line.split()
        found.setdefault(file, []).append((word, float(confidence)))
    for index, utterance in enumerate(zip(*texts, strict=True)):
        ours = combine(utterance, alpha, 0.6173, "max" if name == "maxconf" else "mean")
        theirs = found.get(f"u{index:03}", [])
        assert [each.text for each in ours] == [word for word, _ in theirs]
        assert [each.confidence for each in ours] == pytest.approx([confidence for _, confidence in theirs], abs=1e-5)


def write(path: Path, **texts: str) -> Path:
    """Hypotheses, each word with a confidence that follows it behind a slash."""
    lines = []
    for name, text in texts.items():
        words = [
            {"text": word, "confidence": float(sure)} for word, _, sure in (w.partition("/") for w in text.split())
        ]
        lines.append(json.dumps({"id": name, "text": " ".join(str(word["text"]) for word in words), "words": words}))
    path.write_text("\n".join(lines))
    return path


def test_files_are_combined_and_scored(las: Las, tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", x="yes/0.9 no/0.2", y="")
    second = write(tmp_path / "b.jsonl", x="yes/0.7 go/0.8", y="go/0.4")
    output = tmp_path / "voted.jsonl"
    rover = ["rover", f"hypotheses=[{first},{second}]"]
    las(*rover, f"output={output}", "alpha=0.4").succeeds("2 utterances")
    assert [json.loads(line) for line in output.read_text().splitlines()] == [
        {"id": "x", "text": "yes go", "words": [{"text": "yes", "confidence": 0.8}, {"text": "go", "confidence": 0.8}]},
        {"id": "y", "text": "go", "words": [{"text": "go", "confidence": 0.4}]},
    ]
    las("score", f"reference={first}", f"hypothesis={output}").succeeds("WER")
    las(*rover, f"output={tmp_path / 'voted.trn'}").succeeds()
    assert (tmp_path / "voted.trn").read_text() == "yes no (x)\ngo (y)\n"

    las("rover", f"hypotheses=[{first}]", f"output={output}").fails(2, "hypotheses=")
    las("rover", f"hypotheses=[{first},{tmp_path / 'voted.trn'}]", f"output={output}", "alpha=0.4").fails(
        2, "alpha=0.4"
    )
    las("rover", f"hypotheses=[{first},{write(tmp_path / 'c.jsonl', x='yes/1')}]", f"output={output}").fails(3, "y")
    las(*rover, f"output={tmp_path / 'voted.txt'}").fails(2, "output=")
