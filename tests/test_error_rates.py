"""Error rates against hand counts, a textbook edit distance, and NIST's sclite where it is installed."""

import io
import json
import random
import re
import shutil
import subprocess

import kaldialign
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from las.errors import DataError
from las.scoring import error_rates
from las.scoring.alignment import align
from las.scoring.error_rates import ErrorRate, Score, error_rate


def levenshtein(reference: list[str], hypothesis: list[str]) -> int:
    row = list(range(len(hypothesis) + 1))
    for i, spoken in enumerate(reference, start=1):
        diagonal, row[0] = row[0], i
        for j, heard in enumerate(hypothesis, start=1):
            diagonal, row[j] = row[j], min(diagonal + (spoken != heard), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def score_one(reference: str, hypothesis: str) -> ErrorRate:
    return error_rate({"a": reference.split()}, {"a": hypothesis.split()}).total


@pytest.mark.parametrize(
    ("reference", "hypothesis", "substitutions", "deletions", "insertions"),
    [
        ("a b c d", "a b c d", 0, 0, 0),
        ("a b c d", "a x c d", 1, 0, 0),
        ("a b c d", "a c d", 0, 1, 0),
        ("a b c d", "a b y c d", 0, 0, 1),
        ("a b c d", "", 0, 4, 0),
        ("", "a b", 0, 0, 2),
        ("", "", 0, 0, 0),
        ("the cat sat on the mat", "the hat sat the mat today", 1, 1, 1),
    ],
)
def test_hand_counted_errors(reference, hypothesis, substitutions, deletions, insertions):
    found = score_one(reference, hypothesis)
    assert (found.substitutions, found.deletions, found.insertions) == (substitutions, deletions, insertions)
    assert found.errors == substitutions + deletions + insertions
    assert found.reference_tokens == len(reference.split())
    assert found.rate == found.errors / max(1, len(reference.split()))


symbols = st.lists(st.sampled_from("abcde"), max_size=12)


@given(st.lists(st.tuples(symbols, symbols), min_size=1, max_size=6))
@settings(deadline=None, max_examples=200, derandomize=True)
def test_errors_are_the_edit_distance_and_alignments_spell_both_sides(pairs):
    references, hypotheses = [list(pair[0]) for pair in pairs], [list(pair[1]) for pair in pairs]
    for alignment, reference, hypothesis in zip(align(references, hypotheses), references, hypotheses, strict=True):
        assert [spoken for spoken, _ in alignment if spoken is not None] == reference
        assert [heard for _, heard in alignment if heard is not None] == hypothesis
        assert sum(spoken != heard for spoken, heard in alignment) == levenshtein(reference, hypothesis)
    named = {str(index): tokens for index, tokens in enumerate(references)}
    found = error_rate(named, {str(index): tokens for index, tokens in enumerate(hypotheses)}).total
    assert found.errors == sum(map(levenshtein, references, hypotheses))
    assert found.insertions - found.deletions == sum(map(len, hypotheses)) - sum(map(len, references))
    assert found.reference_tokens == sum(map(len, references))
    assert found.utterances == len(pairs)


def test_tokens_are_compared_as_they_are():
    found = error_rate({"a": ["new york", " x"]}, {"a": ["new york", "x"]})
    assert (found.total.substitutions, found.total.reference_tokens) == (1, 2)


def test_a_missing_hypothesis_counts_as_deleted():
    found = error_rate({"a": ["x", "y"], "b": ["z"]}, {"a": ["x", "y"]})
    assert found.missing == ("b",)
    assert (found.total.deletions, found.total.errors, found.total.utterances) == (1, 1, 2)
    assert "1 without a hypothesis" in error_rates.line(found, "wer")


def test_an_utterance_without_a_reference_is_named():
    with pytest.raises(DataError, match=r"'test_9' has no reference.*Did you mean test_1"):
        error_rate({"test_1": ["x"]}, {"test_9": ["x"]})


def test_no_references_are_an_error():
    with pytest.raises(DataError, match="nothing to score"):
        error_rate({}, {})


def random_test(seed: int, utterances: int = 60) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    generator = random.Random(seed)
    references = {f"s{i % 3}_{i}": generator.choices("abcdefgh", k=generator.randint(1, 15)) for i in range(utterances)}
    hypotheses = {
        name: [
            generator.choice("abcdefgh") if generator.random() < 0.2 else t for t in tokens if generator.random() < 0.9
        ]
        for name, tokens in references.items()
    }
    return references, hypotheses


def test_speakers_are_parts_of_the_total():
    references, hypotheses = random_test(1)
    found = error_rate(references, hypotheses, {name: name.split("_")[0] for name in references})
    assert list(found.speakers) == ["s0", "s1", "s2"]
    for field in ("substitutions", "deletions", "insertions", "reference_tokens", "utterances"):
        assert sum(getattr(part, field) for part in found.speakers.values()) == getattr(found.total, field)
    for speaker, part in found.speakers.items():
        own = {name: tokens for name, tokens in references.items() if name.startswith(speaker)}
        assert part == error_rate(own, {name: hypotheses[name] for name in own}).total


def test_unknown_speakers_make_no_table_but_are_shown_beside_known_ones():
    references, hypotheses = {"a": ["x"], "b": ["y"]}, {"a": ["x"], "b": ["y"]}
    assert error_rate(references, hypotheses).speakers == {}
    assert error_rate(references, hypotheses, {"a": None, "b": None}).speakers == {}
    mixed = error_rate(references, hypotheses, {"a": "mary", "b": None})
    assert list(mixed.speakers) == ["(no speaker)", "mary"]


def test_confusions_are_the_substitutions_most_frequent_first():
    references = {"a": ["ih", "x", "ih"], "b": ["ih", "s"], "c": ["t"]}
    hypotheses = {"a": ["iy", "x", "iy"], "b": ["iy", "z"], "c": ["t"]}
    found = error_rate(references, hypotheses)
    assert [(c.reference, c.hypothesis, c.count) for c in found.confusions] == [("ih", "iy", 3), ("s", "z", 1)]
    assert sum(c.count for c in found.confusions) == found.total.substitutions


def test_the_interval_is_the_spread_of_resampled_tests():
    references, hypotheses = random_test(2)
    found = error_rate(references, hypotheses)
    errors = [levenshtein(references[name], hypotheses[name]) for name in references]
    lengths = [len(tokens) for tokens in references.values()]
    generator = random.Random(0)
    rates = []
    for _ in range(4000):
        drawn = generator.choices(range(len(errors)), k=len(errors))
        rates.append(sum(errors[i] for i in drawn) / sum(lengths[i] for i in drawn))
    mean = sum(rates) / len(rates)
    spread = (sum((rate - mean) ** 2 for rate in rates) / len(rates)) ** 0.5
    low, high = found.interval
    assert low < found.total.rate < high
    assert low == pytest.approx(mean - 1.96 * spread, abs=0.003)
    assert high == pytest.approx(mean + 1.96 * spread, abs=0.003)


def test_the_interval_narrows_with_more_utterances_and_repeats_with_its_seed():
    few, many = (error_rate(*random_test(3, utterances)) for utterances in (20, 500))
    assert few.interval[1] - few.interval[0] > 2 * (many.interval[1] - many.interval[0])
    references, hypotheses = random_test(4)
    assert error_rate(references, hypotheses) == error_rate(references, hypotheses)
    assert error_rate(references, hypotheses, seed=1).interval != error_rate(references, hypotheses).interval


def test_the_interval_agrees_with_the_counts_it_is_made_of():
    references, hypotheses = random_test(5)
    counts = kaldialign.batch_error_rate(references.values(), (hypotheses[name] for name in references))
    assert error_rate(references, hypotheses).total.rate == pytest.approx(counts["err_rate"])


def test_a_rate_is_never_below_zero_and_an_undefined_interval_is_left_out():
    rare = error_rate(
        {str(i): ["a"] * 10 for i in range(20)}, {str(i): ["a"] * 10 if i else ["a"] * 9 for i in range(20)}
    )
    assert rare.interval[0] == 0.0
    empty = error_rate({"a": []}, {"a": ["x"]})
    assert (empty.total.rate, empty.interval) == (1.0, None)
    assert error_rates.line(empty, "wer") == "WER 100.0 %  (sub 0.0 del 0.0 ins 100.0)"
    assert error_rates.as_dict(empty, "wer")["interval"] is None


EXAMPLE = Score(
    total=ErrorRate(substitutions=7, deletions=3, insertions=2, reference_tokens=100, utterances=10),
    interval=(0.1101, 0.149),
    speakers={"mary": ErrorRate(7, 3, 2, 100, 10)},
    missing=(),
    confusions=(error_rates.Confusion("ih", "iy", 4), error_rates.Confusion("s", "z", 3)),
)


def test_rates_are_fractions_in_data_and_percent_in_print():
    assert error_rates.line(EXAMPLE, "phone_error_rate") == "PER 12.0 % [11.0, 14.9]  (sub 7.0 del 3.0 ins 2.0)"
    assert error_rates.as_dict(EXAMPLE, "phone_error_rate") == {
        "phone_error_rate": 0.12,
        "substitutions": 7,
        "deletions": 3,
        "insertions": 2,
        "reference_tokens": 100,
        "utterances": 10,
        "missing": 0,
        "interval": [0.1101, 0.149],
    }
    assert json.loads(json.dumps(error_rates.as_dict(EXAMPLE, "wer")))["wer"] == 0.12


def test_the_table_shows_speakers_total_confusions_and_what_is_missing():
    references, hypotheses = {"a": ["x", "[b]"], "b": ["y"]}, {"a": ["x", "[/c]"]}
    text = io.StringIO()
    found = error_rate(references, hypotheses, {"a": "[mary]", "b": "john"})
    error_rates.print_table(found, "wer", Console(file=text, width=100))
    lines = text.getvalue().splitlines()
    rows = [re.findall(r"[^\s│┃]+", line) for line in lines]
    assert ["[mary]", "1", "2", "50.0", "0.0", "0.0", "50.0"] in rows
    assert ["john", "1", "1", "0.0", "100.0", "0.0", "100.0"] in rows
    assert ["total", "2", "3", "33.3", "33.3", "0.0", "66.7"] in rows
    assert "most frequent confusions: [b] as [/c] (1)" in lines
    assert "1 without a hypothesis, counted as deleted: b" in lines


def sclite_counts(folder, references, hypotheses) -> tuple[int, int, int, int]:
    """Substitutions, deletions, insertions and words of the whole test, from sclite's raw counts."""
    for name, texts in (("ref", references), ("hyp", hypotheses)):
        lines = (f"{' '.join(tokens)} ({utterance})\n" for utterance, tokens in texts.items())
        (folder / f"{name}.trn").write_text("".join(lines))
    command = ["sclite", "-r", "ref.trn", "trn", "-h", "hyp.trn", "trn", "-i", "rm", "-o", "rsum", "stdout"]
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    numbers = next(re.findall(r"\d+", line) for line in output.splitlines() if "Sum" in line)
    _, words, _, substitutions, deletions, insertions, *_ = map(int, numbers)
    return substitutions, deletions, insertions, words


@pytest.mark.skipif(shutil.which("sclite") is None, reason="sclite is not installed (Debian package sctk)")
def test_counts_equal_those_of_sclite_where_errors_stand_alone(tmp_path):
    """Between two errors at least two tokens are right and all tokens of a reference differ: one best alignment."""
    generator = random.Random(6)
    references, hypotheses = {}, {}
    for index in range(100):
        reference = [f"w{i}" for i in generator.sample(range(100), 20)]
        hypothesis = []
        for position, token in enumerate(reference):
            kind = generator.choice(["right", "sub", "del", "ins"]) if position % 3 == 1 else "right"
            hypothesis += {"right": [token], "sub": ["other"], "del": [], "ins": ["more", token]}[kind]
        references[f"s{index % 4}-{index}"], hypotheses[f"s{index % 4}-{index}"] = reference, hypothesis
    total = error_rate(references, hypotheses).total
    found = (total.substitutions, total.deletions, total.insertions, total.reference_tokens)
    assert found == sclite_counts(tmp_path, references, hypotheses)
    assert min(found[:3]) > 50
