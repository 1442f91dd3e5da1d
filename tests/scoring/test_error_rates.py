"""Error rates against hand counts, sums of their parts, and the bootstraps of kaldialign and of our own."""

import json
import random

import kaldialign
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from las.runtime.errors import ArgumentError, ConfigError, DataError
from las.scoring import error_rates, significance
from las.scoring.alignment import Aligned, AlignmentRules
from las.scoring.error_rates import ErrorRate, Score, error_rate
from las.scoring.word_network import Marked


def levenshtein(reference: list[str], hypothesis: list[str]) -> int:
    row = list(range(len(hypothesis) + 1))
    for i, spoken in enumerate(reference, start=1):
        diagonal, row[0] = row[0], i
        for j, heard in enumerate(hypothesis, start=1):
            diagonal, row[j] = row[j], min(diagonal + (spoken != heard), row[j] + 1, row[j - 1] + 1)
    return row[-1]


symbols = st.lists(st.sampled_from("abcde"), max_size=12)


@given(st.lists(st.tuples(symbols, symbols), min_size=1, max_size=6))
@settings(max_examples=200, derandomize=True)
def test_the_total_is_what_the_alignments_say(pairs):
    references = {str(index): pair[0] for index, pair in enumerate(pairs)}
    hypotheses = {str(index): pair[1] for index, pair in enumerate(pairs)}
    found = error_rate(references, hypotheses)
    kinds = [aligned.kind for alignment in found.utterances.values() for aligned in alignment]
    for field, kind in (("substitutions", "substitution"), ("deletions", "deletion"), ("insertions", "insertion")):
        assert getattr(found.total, field) == kinds.count(kind)
    assert found.total.correct == kinds.count("correct")
    assert found.total.insertions - found.total.deletions == sum(len(heard) - len(spoken) for spoken, heard in pairs)
    assert found.total.words == sum(len(spoken) for spoken, _ in pairs)
    assert found.total.utterances == len(pairs)
    # An alignment at sclite's costs never has fewer errors than the edit distance.
    assert found.total.rate == found.total.errors / max(1, found.total.words)
    assert found.total.errors >= sum(levenshtein(list(spoken), list(heard)) for spoken, heard in pairs)


MISTAKES = [
    (lambda: error_rate(["the cat"], ["the cat"]), ArgumentError, r"las\.wer and las\.cer"),
    (lambda: error_rates.wer(["a", "b"], ["a"]), ArgumentError, "2 references and"),
    (lambda: error_rates.cer({"a": "x"}, {"a": "x"}), ArgumentError, r"las\.error_rate"),
    (lambda: error_rate({"a": "x"}, {"a": "x"}, metric="word"), ConfigError, r"metric=word: .*wer.* cer"),
    (lambda: error_rate({"test_1": "x"}, {"test_9": "x"}), DataError, "'test_9' has no.* test_1"),
    (lambda: error_rate({}, {}), DataError, "nothing to score"),
]


@pytest.mark.parametrize(("call", "error", "says"), MISTAKES)
def test_mistakes_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


sentences = st.lists(st.lists(st.sampled_from(["ab", "c", "你", "好吗", "{", "@", "(c)"]), max_size=6), min_size=1)


@given(sentences, st.randoms())
def test_wer_and_cer_are_the_rates_of_the_same_sentences_by_id(references, draw):
    hypotheses = [[draw.choice("abc") if draw.random() < 0.3 else word for word in words] for words in references]
    by_id = [dict(enumerate(side)) for side in (references, hypotheses)]
    expected = error_rate(*by_id)
    texts = [[" ".join(words) for words in side] for side in (references, hypotheses)]
    for sides in ((references, hypotheses), texts):
        assert error_rates.wer(*sides) == expected.total.rate
        assert error_rates.cer(*sides) == expected.characters.total.rate
    assert error_rate(*by_id, metric="cer").total == expected.characters.total
    assert error_rate(*by_id, metric="cer").total.errors == sum(map(levenshtein, *texts))


def test_characters_have_alignments_confusions_and_speakers():
    assert error_rates.wer("the cat sat", "the cat") == error_rates.cer("你好吗", "你好") == 1 / 3
    found = error_rate({"a": "the cat", "b": "on"}, {"a": "thecut"}, {"a": "mary", "b": "john"}, metric="cer")
    assert found.confusions == (error_rates.Confusion("a", "u", 1),)
    assert Aligned("<space>", None, "deletion") in found.utterances["a"]
    assert {name: part.words for name, part in found.speakers.items()} == {"john": 2, "mary": 7}
    assert error_rates.as_dict(found, "cer")["cer"] == 4 / 9 and error_rates.line(found, "cer").startswith("CER 44.4 %")
    assert found.missing == ("b",) and error_rates.line(found, "cer").endswith("1 without a hypothesis")


def random_test(seed: int, utterances: int = 60) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    generator = random.Random(seed)
    references = {f"s{i % 3}_{i}": generator.choices("abcdefgh", k=generator.randint(1, 15)) for i in range(utterances)}
    draw = lambda token: generator.choice("abcdefgh") if generator.random() < 0.2 else token  # noqa: E731
    hypotheses = {
        name: [draw(token) for token in tokens if generator.random() < 0.9] for name, tokens in references.items()
    }
    return references, hypotheses


def test_speakers_are_parts_of_the_total():
    references, hypotheses = {"a": ["x"], "b": ["y"]}, {"a": ["x"], "b": ["y"]}
    assert error_rate(references, hypotheses).speakers == {}
    assert error_rate(references, hypotheses, {"a": None, "b": None}).speakers == {}
    assert list(error_rate(references, hypotheses, {"a": "mary", "b": None}).speakers) == ["(no speaker)", "mary"]
    references, hypotheses = random_test(1)
    found = error_rate(references, hypotheses, {name: name.split("_")[0] for name in references})
    assert list(found.speakers) == ["s0", "s1", "s2"]
    for field in ("substitutions", "deletions", "insertions", "correct", "words", "utterances"):
        assert sum(getattr(part, field) for part in found.speakers.values()) == getattr(found.total, field)
    for speaker, part in found.speakers.items():
        own = {name: tokens for name, tokens in references.items() if name.startswith(speaker)}
        assert part == error_rate(own, {name: hypotheses[name] for name in own}).total


def test_confusions_are_the_substitutions_most_frequent_first():
    references = {"a": ["ih", "x", "ih"], "b": ["ih", "s"], "c": ["t"]}
    hypotheses = {"a": ["iy", "x", "iy"], "b": ["iy", "z"], "c": ["t"]}
    found = error_rate(references, hypotheses)
    assert [(c.reference, c.hypothesis, c.count) for c in found.confusions] == [("ih", "iy", 3), ("s", "z", 1)]
    assert sum(c.count for c in found.confusions) == found.total.substitutions


def clustered(num_speakers: int) -> tuple[dict[str, list[str]], dict[str, list[str]], dict[str, str | None]]:
    """Ten utterances of ten words for each speaker; every second speaker is misunderstood, the others are not."""
    speakers: dict[str, str | None] = {f"{n // 10}-{n % 10}": f"s{n // 10}" for n in range(10 * num_speakers)}
    references = {name: ["a"] * 10 for name in speakers}
    return references, {name: ["b" if int(name[:-2]) % 2 else "a"] * 10 for name in speakers}, speakers


def test_the_interval_is_over_speakers_where_there_are_eight():
    """Ten utterances of a speaker say little more than one: by hand, the mean of n shares of 0 and 1."""
    references, hypotheses, speakers = clustered(8)
    found, alone = error_rate(references, hypotheses, speakers), error_rate(references, hypotheses)
    assert (found.interval_over, alone.interval_over) == ("speakers", "utterances")
    assert found.interval == pytest.approx((0.5 - 1.96 * 0.5 / 8**0.5, 0.5 + 1.96 * 0.5 / 8**0.5), abs=0.01)
    assert alone.interval == pytest.approx((0.5 - 1.96 * 0.5 / 80**0.5, 0.5 + 1.96 * 0.5 / 80**0.5), abs=0.01)
    share = 10 / 19  # of the characters, the spaces between the words are never wrong
    assert found.characters.interval == pytest.approx([share * bound for bound in found.interval], abs=0.01)
    assert error_rates.as_dict(found, "wer")["interval_over"] == "speakers"
    assert error_rates.line(found, "wer").endswith(", 95 % over speakers") and "over speakers" in repr(found)


def test_few_speakers_or_unknown_ones_leave_the_interval_over_utterances():
    for num_speakers, unknown in ((7, {}), (8, {"0-0": None})):
        references, hypotheses, speakers = clustered(num_speakers)
        assert error_rate(references, hypotheses, {**speakers, **unknown}).interval_over == "utterances"
    references, hypotheses = random_test(4)
    assert error_rate(references, hypotheses, seed=1).interval != error_rate(references, hypotheses).interval


def test_the_interval_is_of_the_errors_that_were_counted():
    """sclite's costs make 6 errors of this where 5 would do: the interval is around what is reported."""
    reference, hypothesis = list("abcde"), list("defgh")
    errors = error_rate({"a": reference}, {"a": hypothesis}).total.errors
    found = error_rate({str(i): reference for i in range(9)}, {str(i): hypothesis for i in range(9)})
    assert (errors, levenshtein(reference, hypothesis)) == (6, 5)
    assert found.interval == pytest.approx((errors / 5, errors / 5))


def test_characters_are_those_of_the_words_with_single_spaces_and_of_the_alternative_that_was_taken():
    found = error_rate({"a": ["the", "cat"], "b": ["on"]}, {"a": ["the", "at"], "b": ["on", "it"]})
    assert found.characters.total == ErrorRate(0, 1, 3, 8, 2)
    assert found.characters.interval[0] <= 4 / 9 <= found.characters.interval[1]
    reference = Marked(["{", "i'm", "/", "i", "am", "}", "(uh)", "here"])
    found = error_rate({"a": reference}, {"a": ["i", "am", "here"]}, rules=AlignmentRules(optional_words=True))
    assert found.characters.total == ErrorRate(0, 0, 0, len("i am here"), 1)


def test_a_rate_is_never_below_zero_and_an_undefined_interval_is_left_out():
    rare = error_rate(
        {str(i): ["a"] * 10 for i in range(20)}, {str(i): ["a"] * 10 if i else ["a"] * 9 for i in range(20)}
    )
    assert rare.interval[0] == 0.0
    empty = error_rate({"a": []}, {"a": ["x"]})
    assert (empty.total.rate, empty.interval) == (1.0, None)
    assert error_rates.line(empty, "wer") == "WER 100.0 %  (sub 0.0 del 0.0 ins 100.0), CER 100.0 %"
    assert error_rates.as_dict(empty, "wer")["interval"] is None


EXAMPLE = Score(
    total=ErrorRate(substitutions=7, deletions=3, insertions=2, correct=90, utterances=10),
    interval=(0.1101, 0.149),
    speakers={"mary": ErrorRate(7, 3, 2, 90, 10)},
    subsets={},
    missing=(),
    confusions=(error_rates.Confusion("ih", "iy", 4), error_rates.Confusion("s", "z", 3)),
    utterances={"a": [Aligned("ab", "a", "substitution")]},
)
COUNTS = {
    **{"substitutions": 7, "deletions": 3, "insertions": 2, "correct": 90, "words": 100, "utterances": 10},
    **{"missing": 0, "interval": [0.1101, 0.149], "interval_over": "utterances"},
}


def test_rates_are_fractions_in_data_and_percent_in_print_and_words_come_with_characters():
    line = "PER 12.0 % [11.0, 14.9]  (sub 7.0 del 3.0 ins 2.0), 95 % over utterances"
    assert error_rates.line(EXAMPLE, "phone_error_rate") == line
    assert error_rates.as_dict(EXAMPLE, "phone_error_rate") == {"phone_error_rate": 0.12, **COUNTS}
    assert "CER 50.0 %, 95 % over" in error_rates.line(EXAMPLE, "wer")  # of one utterance
    found = json.loads(json.dumps(error_rates.as_dict(EXAMPLE, "wer")))
    assert found == {"wer": 0.12, "cer": 0.5, "cer_interval": None, "characters": 2, **COUNTS}


@pytest.mark.parametrize("seed", range(5))
def test_intervals_and_shares_are_those_of_kaldialign(seed: int) -> None:
    generator = random.Random(seed)
    references = [generator.choices("abcdefgh", k=generator.randint(1, 15)) for _ in range(80)]
    systems = [
        [[generator.choice("xyz") if generator.random() < 0.2 else token for token in tokens] for tokens in references]
        for _ in range(2)
    ]
    expected = kaldialign.bootstrap_wer_ci(references, *systems)
    scores = [
        error_rate(*({str(i): each for i, each in enumerate(side)} for side in (references, each))) for each in systems
    ]
    for name, score in zip(("system1", "system2"), scores, strict=True):
        limits = (expected[name]["ci95min"], expected[name]["ci95max"])
        assert score.interval == pytest.approx(limits, abs=0.002)
    assert significance.resampled(*scores) == pytest.approx(expected["p_s2_improv_over_s1"], abs=0.03)


def test_the_seed_decides_also_where_large_tests_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {str(errors): ErrorRate(errors, 0, 0, words, 1) for errors, words in enumerate([4, 5, 6, 5, 4, 5])}
    whole = error_rates.interval(rates, {}, 1)
    assert whole != error_rates.interval(rates, {}, 2)
    monkeypatch.setattr(error_rates, "DRAWN", 6 * 7)
    assert error_rates.interval(rates, {}, 1) == whole


def test_there_is_no_interval_where_a_resampled_test_may_have_no_words() -> None:
    assert error_rates.interval({str(i): ErrorRate(0, 0, 1, words, 1) for i, words in enumerate([0, 0, 1])}, {}) is None


def test_there_is_no_interval_of_a_single_utterance() -> None:
    score = error_rate({"a": "one two"}, {"a": "one"})
    assert score.interval is None and score.characters.interval is None
    assert error_rates.line(score, "wer") == "WER 50.0 %  (sub 0.0 del 50.0 ins 0.0), CER 57.1 %"
    assert error_rate({"a": "one two", "b": "three"}, {"a": "one", "b": "three"}).interval is not None
