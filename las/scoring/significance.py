"""Significance tests of the difference between two systems: those of NIST's sc_stats, and a paired bootstrap.

Every test is two-tailed. Its null hypothesis is that the systems do not differ. `p` is the probability, under the null
hypothesis, of a statistic at least as extreme; `sc_stats_p` is the number that sc_stats prints for the same statistic,
which differs for two reasons: it reads the normal distribution from a table with steps of 0.01 that it never
interpolates, and it evaluates the binomial distribution of more than 20 trials at half the count that was found, so
that nearly everything looks significant there. Report `p`; `sc_stats_p` is for comparing with published tables.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from las.runtime.errors import ArgumentError, DataError
from las.scoring.error_rates import Alignment, ErrorRate, Score, count, resample

BOUNDARY = 2  # words that both systems have right, one after the other, end a segment
EQUAL_PERCENT = 0.005  # speakers whose error rates in % differ by no more than this count as equal
EXACT_TRIALS = 20  # up to so many trials sc_stats sums the binomial distribution itself


class SignificanceTest(NamedTuple):
    """Outcome of a test. `pairs` is the number of compared segments, speakers or utterances.

    `statistic` is above 0 if the second system is better; its distribution is named in the docstring of the test.
    """

    pairs: int
    statistic: float
    p: float
    sc_stats_p: float


@dataclass(frozen=True)
class Comparison:
    """Comparison of two systems on the same test.

    `tests` are the outcomes by name (`mapsswe`, `mcnemar`, and where speakers are known `sign` and `wilcoxon`);
    `second_better` is the share of resampled tests that the second system wins.
    """

    first: ErrorRate
    second: ErrorRate
    tests: dict[str, SignificanceTest]
    second_better: float

    @property
    def difference(self) -> float:
        """Rate of the second system minus that of the first: below 0 where the second is better."""
        return self.second.rate - self.first.rate


def compare(first: Score, second: Score) -> Comparison:
    """Run all tests on the scores of two systems.

    Raises DataError unless both are of the same utterances, ArgumentError for what is no score.

    >>> import las
    >>> references = {f"u{n}": "one two three four".split() for n in range(20)}
    >>> worse = references | {f"u{n}": ["one", "two", "three"] for n in range(0, 20, 2)}
    >>> comparison = las.compare(las.error_rate(references, worse), las.error_rate(references, references))
    >>> comparison.difference, comparison.second_better
    (-0.125, 1.0)
    >>> comparison.tests["mcnemar"].p < 0.01
    True
    """
    for each in (first, second):
        if not isinstance(each, Score):
            raise ArgumentError(f"{each!r:.80} is no score: las.compare(las.error_rate(...), las.error_rate(...))")
    for name in sorted(first.utterances.keys() ^ second.utterances.keys()):
        raise DataError(f"only one of the systems has utterance {name!r}: score both on the same test")
    return Comparison(first.total, second.total, tests(first, second), resampled(first, second))


def tests(first: Score, second: Score) -> dict[str, SignificanceTest]:
    """Run the tests of sc_stats on two systems with the same utterances."""
    aligned = (list(first.utterances.values()), [second.utterances[name] for name in first.utterances])
    outcomes = {"mapsswe": mapsswe(*aligned), "mcnemar": mcnemar(*aligned)}
    if first.speakers:
        percents = [{name: 100 * rate.rate for name, rate in score.speakers.items()} for score in (first, second)]
        outcomes |= {"sign": sign(*percents), "wilcoxon": wilcoxon(*percents)}
    return outcomes


class ErrorSegment(NamedTuple):
    """Errors of both systems in one segment of an utterance."""

    first: int
    second: int


class _AlignedWord(NamedTuple):
    """Reference word: number of insertions before it, and whether it is correct."""

    insertions: int
    right: bool


def mapsswe(first: Sequence[Alignment], second: Sequence[Alignment]) -> SignificanceTest:
    """Matched-pair sentence-segment word error test (Gillick and Cox 1989, ICASSP, with NIST's rule of segments).

    z = mean(d) / (s(d) / √n), where d is the difference in errors (first - second) of each of the n segments and s its
    standard deviation with n - 1; 0 where all differences are equal. Utterances are paired by their order.
    """
    error_segments = [segment for pair in zip(first, second, strict=True) for segment in segments(*pair)]
    differences = [segment.first - segment.second for segment in error_segments]
    if len(set(differences)) < 2:
        return _normal(len(error_segments), 0.0)
    mean = sum(differences) / len(differences)
    variance = sum((difference - mean) ** 2 for difference in differences) / (len(differences) - 1)
    # In this order of operations: where z lies on a step of sc_stats's table, rounding decides.
    return _normal(len(error_segments), mean / (math.sqrt(variance) / math.sqrt(len(differences))))


def segments(first: Alignment, second: Alignment) -> list[ErrorSegment]:
    """Segments of an utterance with errors of either system, separated by `BOUNDARY` words that both have right.

    An insertion between those words restarts the count of correct words. The last segment ends with the utterance.
    """
    finished: list[ErrorSegment] = []
    errors = [0, 0]
    right = 0
    for one, other in zip_longest(_words(first), _words(second)):
        for system, word in enumerate((one, other)):
            if word is not None:
                errors[system] += word.insertions + (not word.right)
        if any(word is None or word.insertions for word in (one, other)):
            right = 0
        right = right + 1 if all(word is not None and word.right for word in (one, other)) else 0
        if right >= BOUNDARY and any(errors):
            finished.append(ErrorSegment(*errors))
            errors = [0, 0]
    return [*finished, ErrorSegment(*errors)] if any(errors) else finished


def _words(alignment: Alignment) -> Iterator[_AlignedWord]:
    """Yield the reference words of an alignment; insertions at its end come as a correct word."""
    insertions = 0
    for aligned in alignment:
        if aligned.kind == "insertion":
            insertions += 1
        else:
            yield _AlignedWord(insertions, aligned.kind == "correct")
            insertions = 0
    if insertions:
        yield _AlignedWord(insertions, True)


def sign(first: Mapping[str, float], second: Mapping[str, float]) -> SignificanceTest:
    """Sign test on the error rates of speakers in %, which are the keys of both mappings.

    Equal speakers are halved between the systems, an odd one going to the system with the higher sum of rates. The
    statistic is the number of speakers at whom the second system is better minus that of the first; the smaller of the
    two has the binomial distribution with p = 1/2.
    """
    differences = _differences(first, second)
    plus = sum(difference > EQUAL_PERCENT for difference in differences)
    minus = sum(difference < -EQUAL_PERCENT for difference in differences)
    equal = len(differences) - plus - minus
    outcome = _binomial(plus + equal // 2, minus + equal - equal // 2)
    return outcome._replace(statistic=_direction(first, second) * outcome.statistic)


def wilcoxon(first: Mapping[str, float], second: Mapping[str, float]) -> SignificanceTest:
    """Wilcoxon's signed-rank test on the error rates of speakers in %, by the normal approximation without a
    correction for ties.

    z = (W - n (n + 1) / 4) / √(n (n + 1) (2 n + 1) / 24), W being the sum of the ranks of |difference| over the
    speakers of the sign that is rarer. Equal speakers keep their ranks and go to the signs in turn. The statistic is
    |z|, above 0 where the second system has the smaller sum of rates.
    """
    differences = _differences(first, second)
    ranks = _ranks([abs(difference) for difference in differences])
    sums, counts, turn = [0.0, 0.0], [0, 0], 0
    for difference, rank in zip(differences, ranks, strict=True):
        side = int(difference < 0)
        if abs(difference) <= EQUAL_PERCENT:
            side, turn = turn, 1 - turn
        sums[side] += rank
        counts[side] += 1
    n = len(differences)
    rarer = sums[0] if counts[0] < counts[1] else sums[1]
    z = (rarer - n * (n + 1) / 4) / math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return _normal(n, _direction(first, second) * abs(z))


def mcnemar(first: Sequence[Alignment], second: Sequence[Alignment]) -> SignificanceTest:
    """McNemar's test on whole utterances, over those that only one of the systems has right.

    The statistic is the number that only the second system has right minus that of the first; the smaller of the two
    has the binomial distribution with p = 1/2. `pairs` is their sum.
    """
    only = [0, 0]
    for pair in zip(first, second, strict=True):
        right = [all(aligned.kind == "correct" for aligned in alignment) for alignment in pair]
        if right[0] != right[1]:
            only[right[1]] += 1
    return _binomial(only[1], only[0])


def resampled(first: Score, second: Score, seed: int = 0) -> float:
    """Share of resampled tests in which the second system has the lower error rate."""
    rates = [[count([score.utterances[name]]) for name in first.utterances] for score in (first, second)]
    counts = [[getattr(rate, name) for rate in of_one] for of_one in rates for name in ("errors", "words")]
    errors, words, other_errors, other_words = resample(counts, seed)
    return float((other_errors * words < errors * other_words).mean())


def _differences(first: Mapping[str, float], second: Mapping[str, float]) -> list[float]:
    """Difference of rates for each speaker: the system with the larger sum of rates minus the other."""
    worse, better = (first, second) if _direction(first, second) > 0 else (second, first)
    return [worse[speaker] - better[speaker] for speaker in first]


def _direction(first: Mapping[str, float], second: Mapping[str, float]) -> int:
    """Sign of the comparison: 1 if the second system has the smaller sum of rates, else -1."""
    return 1 if sum(first.values()) > sum(second[speaker] for speaker in first) else -1


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks in ascending order from 1; equal values share the mean of their ranks."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values), start=1):
        places.setdefault(value, []).append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


def _normal(pairs: int, z: float) -> SignificanceTest:
    """Two-tailed test by the normal distribution; for sc_stats |z| is cut, not rounded, to two decimals."""
    step = round(abs(z) * 100)
    cut = step / 100 if step / 100 <= abs(z) else (step - 1) / 100
    return SignificanceTest(pairs, z, math.erfc(abs(z) / math.sqrt(2)), math.erfc(cut / math.sqrt(2)))


def _binomial(plus: int, minus: int) -> SignificanceTest:
    """Two-tailed test by the binomial distribution with p = 1/2 at the smaller count."""
    trials, fewer = plus + minus, min(plus, minus)
    if plus == minus:
        return SignificanceTest(trials, 0.0, 1.0, 1.0)
    tail = ways = 1
    for chosen in range(fewer):  # exact: whole numbers of any size
        ways = ways * (trials - chosen) // (chosen + 1)
        tail += ways
    p = 2 * tail / 2**trials
    if trials <= EXACT_TRIALS:
        return SignificanceTest(trials, plus - minus, p, p)
    halved = (fewer / 2 - trials / 2) / math.sqrt(trials / 4)
    return SignificanceTest(trials, plus - minus, p, _normal(trials, halved).sc_stats_p)
