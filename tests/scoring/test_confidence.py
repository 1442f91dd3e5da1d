"""Confidences: NIST's normalised cross entropy, the best temperature, and what decode and score print of them."""

import json
import math
import random
import re
from pathlib import Path

import nist
import pytest
from console import Las

from las.scoring import confidence
from las.scoring.confidence import Judged
from las.scoring.error_rates import error_rate
from las.scoring.transcript_files import Transcript

DRAW = random.Random(4)
HEARD = {f"u{number}": DRAW.choices("abcd", k=DRAW.randint(1, 6)) for number in range(60)}
SPOKEN = {
    name: [DRAW.choice("abcd") if DRAW.random() < 0.3 else word for word in heard] for name, heard in HEARD.items()
}
SURE = {name: tuple(round(DRAW.uniform(0.3, 1), 3) for _ in heard) for name, heard in HEARD.items()}


def judged() -> Judged:
    transcripts = {name: Transcript(" ".join(words), None, SURE[name]) for name, words in HEARD.items()}
    return confidence.judge(error_rate(SPOKEN, HEARD), transcripts, str.split)["words"]


def test_the_cross_entropy_is_that_of_sclite(tmp_path: Path) -> None:
    stm = [f"{name} 1 s 0 {len(words)} {' '.join(words)}\n" for name, words in sorted(SPOKEN.items())]
    ctm = [
        f"{name} 1 {place / 2} 0.1 {word} {sure}\n"
        for name, words in sorted(HEARD.items())
        for place, (word, sure) in enumerate(zip(words, SURE[name], strict=True))
    ]
    (tmp_path / "r.stm").write_text("".join(stm))
    (tmp_path / "h.ctm").write_text("".join(ctm))
    report = nist.run("sclite", *["-r", "r.stm", "stm", "-h", "h.ctm", "ctm", "-o", "sum", "stdout"], folder=tmp_path)
    theirs = re.search(r"Sum/Avg.*\|\s*(-?[\d.]+)\s*\|\s*$", report, re.MULTILINE)
    assert theirs and judged().nce == pytest.approx(float(theirs[1]), abs=6e-4)


def test_no_other_temperature_has_a_higher_cross_entropy() -> None:
    best = judged().temperature
    assert best is not None
    values = [judged().at(best * factor).nce for factor in (0.5, 0.9, 0.99, 1.0, 1.01, 1.1, 2.0)]
    assert max(values) == values[3]
    assert Judged([0.5, 0.9], [True, True]).temperature is None


def test_calibration_errors_are_distances_in_bins() -> None:
    assert Judged([0.91, 0.99, 1.0, 0.25], [True, True, False, False]).ece == pytest.approx((0.9 + 0.25) / 4)


def test_words_are_as_sure_as_the_hypotheses_that_have_them() -> None:
    texts = ["a b c", "a c", "b c", "a b c"]
    assert confidence.of_words(texts, [0.4, 0.3, 0.2, 0.1]) == pytest.approx([0.8, 0.7, 0.99])
    assert confidence.posteriors([-math.inf, -math.inf]) == [0.5, 0.5]


def test_a_split_is_decoded_and_scored_with_them(trained: Path, las: Las, tmp_path: Path) -> None:
    decode = ["decode", f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}", "split=dev", "search=beam"]
    written = {}
    for temperature in ("1.0", "4.0"):
        output = tmp_path / f"{temperature}.jsonl"
        out = las(*decode, "search.nbest=4", f"temperature={temperature}", f"output={output}").succeeds("NCE ECE").out
        reference = f"reference={trained / 'run' / 'references.dev.jsonl'}"
        scored = las("score", reference, f"hypothesis={output}")
        lines = [[line for line in each.splitlines() if line.startswith("confidences")] for each in (out, scored.out)]
        assert lines[0] == lines[1] and len(lines[0]) == 2
        written[temperature] = [json.loads(line) for line in output.read_text().splitlines()]
    assert "nce" in json.loads(las("score", reference, f"hypothesis={output}", "json=true").out)["confidences"]["words"]
    for plain, scaled in zip(*written.values(), strict=True):
        assert plain["text"] == scaled["text"] == " ".join(word["text"] for word in plain["words"])
        assert 0 < plain["confidence"] <= 1 and 0 <= plain["entropy"] <= math.log(4) + 1e-4
        for one, other in zip(plain["words"], scaled["words"], strict=True):
            assert abs(other["confidence"] - 0.5) <= abs(one["confidence"] - 0.5)
    las(*decode, "temperature=0").fails(2, "temperature=0")
