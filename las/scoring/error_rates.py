"""Error rates (WER, CER, PER) with counts of each kind, speakers, subsets, confusions, and a confidence interval.

Rates are fractions; they become % only in print. Intervals are by bootstrap (Bisani and Ney, "Bootstrap estimates for
confidence intervals in ASR performance evaluation", ICASSP 2004): as many units as the test has are drawn with
replacement, many times; units are utterances or, where there are enough of them, speakers with all their utterances.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple

import jiwer
import numpy as np

from las.runtime.errors import ArgumentError, ConfigError, DataError, suggest
from las.scoring.alignment import Aligned, AlignmentRules, Tokens, align
from las.storage import run_records

UNITS = {"phone_error_rate": "phones", "wer": "words", "cer": "characters"}
"""The reference tokens that each metric counts, as headings of tables."""
SHORT_NAMES = {metric: run_records.METRICS[metric] for metric in UNITS}
"""Metrics with their names in print."""

_KINDS = {"equal": "correct", "substitute": "substitution", "delete": "deletion", "insert": "insertion"}  # of jiwer

NO_SPEAKER = "(no speaker)"
FEWEST_SPEAKERS = 8
"""Speakers from which on the confidence interval is over speakers: their utterances are not independent of each other.
With fewer of them, resampled tests are too much alike, and the interval is over utterances."""

REPLICATIONS = 10_000  # as Bisani and Ney recommend
DRAWN = 1 << 18  # units that are drawn at once, which bounds the memory

Alignment = Sequence[Aligned]
Counts = np.ndarray[Any, np.dtype[np.int64]]
Interval = tuple[float, float] | None


class ErrorRate(NamedTuple):
    """Errors of a set of utterances."""

    substitutions: int
    deletions: int
    insertions: int
    correct: int
    utterances: int

    @property
    def words(self) -> int:
        """Reference tokens, be they words, phones or characters."""
        return self.correct + self.substitutions + self.deletions

    @property
    def errors(self) -> int:
        """Substitutions, deletions and insertions together."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Errors per reference token; where references are empty, the number of insertions."""
        return self.errors / max(self.words, 1)


@dataclass(frozen=True)
class Confusion:
    """Number of substitutions of `hypothesis` for `reference`."""

    reference: str
    hypothesis: str
    count: int


@dataclass(frozen=True)
class CharacterCounts:
    """Errors in the characters of the words, the single spaces between them included."""

    total: ErrorRate
    interval: Interval


@dataclass(frozen=True)
class Score:
    """Errors of a test.

    `interval` is the 95 % confidence interval of the total rate (None of a single utterance, and where no reference
    has a token). `speakers` are the parts of the total where speakers are known, `subsets` those of the named parts of
    a test, `missing` the ids without a hypothesis, `confusions` every substitution, most frequent first, `utterances`
    the alignments by id, `drawn_together` the speaker of each id where the interval is over speakers, else empty.

    >>> import las
    >>> references = {"u1": ["a", "b"], "u2": ["c"]}
    >>> score = las.error_rate(references, {"u1": ["a", "b"]}, speakers={"u1": "ann", "u2": "bob"})
    >>> score.missing, {name: part.rate for name, part in score.speakers.items()}
    (('u2',), {'ann': 0.0, 'bob': 1.0})
    >>> score.utterances["u2"]
    [Aligned(reference='c', hypothesis=None, kind='deletion')]
    """

    total: ErrorRate
    interval: Interval
    speakers: dict[str, ErrorRate]
    subsets: dict[str, ErrorRate]
    missing: tuple[str, ...]
    confusions: tuple[Confusion, ...]
    utterances: dict[str, Alignment]
    drawn_together: dict[str, str] = field(default_factory=dict)

    @property
    def interval_over(self) -> str:
        """The unit that is resampled for the intervals: `speakers` or `utterances`."""
        return "speakers" if self.drawn_together else "utterances"

    def __repr__(self) -> str:
        total = self.total
        return (
            f"Score({percent_within(total, self.interval)}: {total.errors:,} errors in {total.words:,} words of "
            f"{total.utterances:,} utterances, {len(self.missing)} missing"
            f"{'' if self.interval is None else f'; interval over {self.interval_over}'})"
        )

    @cached_property
    def characters(self) -> CharacterCounts:
        """Character errors of the same utterances (edit distance); of alternatives, those that the alignment chose."""
        rates = {name: _characters(alignment) for name, alignment in self.utterances.items()}
        return CharacterCounts(_sum(rates.values()), interval(rates, self.drawn_together))


def error_rate(
    references: Mapping[str, Tokens],
    hypotheses: Mapping[str, Tokens],
    speakers: Mapping[str, str | None] | None = None,
    rules: AlignmentRules = AlignmentRules(),  # noqa: B008 - frozen
    seed: int = 0,
    metric: str = "wer",
) -> Score:
    """Score hypotheses against references, both by utterance id: texts, split at white space, or lists of words.

    With `metric="cer"` the characters of the words are counted, single spaces between them included. A reference
    without a hypothesis counts as deleted and is listed as missing. `speakers` gives the speaker of each id; `seed` is
    that of the bootstrap. Raises DataError for a hypothesis without a reference and for no references, ConfigError for
    an unknown metric.

    >>> import las
    >>> score = las.error_rate({"u1": "the cat sat", "u2": "on the mat"}, {"u1": "the cat", "u2": "on a mat"})
    >>> score
    Score(33.3 % [33.3, 33.3]: 2 errors in 6 words of 2 utterances, 0 missing; interval over utterances)
    >>> score.total.deletions, score.total.substitutions, score.confusions
    (1, 1, (Confusion(reference='the', hypothesis='a', count=1),))
    """
    known_metric(metric)
    if not isinstance(references, Mapping) or not isinstance(hypotheses, Mapping):
        raise ArgumentError("error_rate compares texts by utterance id: las.wer and las.cer take lists of sentences")
    for name in hypotheses:
        if name not in references:
            raise DataError(
                f"hypothesis {name!r} has no reference: are these files of the same test?{suggest(name, references)}"
            )
    alignments: list[Alignment] = [
        *align(list(references.values()), [hypotheses.get(name, ()) for name in references], rules)
    ]
    if metric == "cer":
        alignments = [*map(in_characters, alignments)]
    missing = [name for name in references if name not in hypotheses]
    return summarise(dict(zip(references, alignments, strict=True)), speakers, missing=missing, seed=seed)


def wer(reference: str | Sequence[Tokens], hypothesis: str | Sequence[Tokens]) -> float:
    """Return the word error rate of a sentence, or of a list of sentences together, as `las score` counts it.

    A sentence is a text, split at white space, or a list of words. Raises ArgumentError unless there are as many
    hypotheses as references.

    >>> import las
    >>> las.wer("the cat sat down", "the cat sat")
    0.25
    >>> las.wer(["the cat", "sat down"], ["the hat", "sat down"])
    0.25
    """
    return count(_sentences(reference, hypothesis)).rate


def cer(reference: str | Sequence[Tokens], hypothesis: str | Sequence[Tokens]) -> float:
    """Return the character error rate of a sentence or of a list of sentences; the single spaces between words count.

    Sentences and errors are those of `wer`.

    >>> import las
    >>> las.cer("the cat sat", "the cat sit")
    0.09090909090909091
    """
    return _sum(map(_characters, _sentences(reference, hypothesis))).rate


def _sentences(reference: str | Sequence[Tokens], hypothesis: str | Sequence[Tokens]) -> list[list[Aligned]]:
    if isinstance(reference, Mapping) or isinstance(hypothesis, Mapping):
        raise ArgumentError("texts by utterance id: las.error_rate(references, hypotheses).total.rate")
    references, hypotheses = ([side] if isinstance(side, str) else list(side) for side in (reference, hypothesis))
    if len(references) != len(hypotheses):
        raise ArgumentError(
            f"{len(references)} references and {len(hypotheses)} hypotheses: give a list of sentences on each side, "
            "in the same order, or one text on each"
        )
    return align(references, hypotheses)


def summarise(
    utterances: Mapping[str, Alignment],
    speakers: Mapping[str, str | None] | None = None,
    subsets: Mapping[str, Iterable[str]] | None = None,
    missing: Sequence[str] = (),
    seed: int = 0,
) -> Score:
    """Return the score of utterances that are aligned already.

    `speakers` gives the speaker of each id, `subsets` the names of the parts it belongs to. Raises DataError for no
    utterances.
    """
    if not utterances:
        raise DataError("there is nothing to score: the reference has no utterances")
    rates = {name: count([alignment]) for name, alignment in utterances.items()}
    by_speaker = _parts(rates, lambda name: [(speakers or {}).get(name) or NO_SPEAKER])
    enough = NO_SPEAKER not in by_speaker and len(by_speaker) >= FEWEST_SPEAKERS
    together = {name: str(speaker) for name in rates if (speaker := (speakers or {}).get(name))} if enough else {}
    return Score(
        total=_sum(rates.values()),
        interval=interval(rates, together, seed),
        speakers={} if by_speaker.keys() == {NO_SPEAKER} else by_speaker,
        subsets=_parts(rates, lambda name: (subsets or {}).get(name, ())),
        missing=tuple(missing),
        confusions=_confusions(utterances.values()),
        utterances=dict(utterances),
        drawn_together=together,
    )


def known_metric(metric: str) -> str:
    """Return the metric. Raises ConfigError for one that does not exist."""
    if metric not in SHORT_NAMES:
        known = " or ".join(f"{name} (of {unit})" for name, unit in UNITS.items())
        raise ConfigError(f"metric={metric}: there is no such metric: choose {known}")
    return metric


def count(alignments: Iterable[Alignment]) -> ErrorRate:
    """Return the errors of alignments."""
    listed = list(alignments)
    kinds = Counter(aligned.kind for alignment in listed for aligned in alignment)
    return ErrorRate(kinds["substitution"], kinds["deletion"], kinds["insertion"], kinds["correct"], len(listed))


def interval(rates: Mapping[str, ErrorRate], speakers: Mapping[str, str], seed: int = 0) -> Interval:
    """95 % interval of the rate of all utterances together, each of which has its errors in `rates` by its id.

    `speakers` are drawn with all their utterances; without any, utterances are drawn. The interval is the mean of the
    resampled rates plus and minus 1.96 standard deviations, not below 0; None for a single utterance, whose rate says
    nothing of how much others differ, and if a resampled test has no words.
    """
    drawn = (_parts(rates, lambda name: [speakers[name]]) if speakers else rates).values()
    if len(drawn) < 2:
        return None
    errors, words = resample([[rate.errors for rate in drawn], [rate.words for rate in drawn]], seed)
    if not words.all():
        return None
    resampled = errors / words
    mean, half = float(resampled.mean()), 1.96 * float(resampled.std())
    return max(0.0, mean - half), mean + half


def resample(counts: Sequence[Sequence[int]], seed: int) -> Counts:
    """Return sums over the units of resampled tests, [kinds of counts, REPLICATIONS]; `counts` has one value for each
    unit in each row.
    """
    generator = np.random.default_rng(seed)
    table = np.asarray(counts, np.int64)
    units = table.shape[1]
    sums = np.empty((len(table), REPLICATIONS), np.int64)
    step = max(1, DRAWN // units)
    for start in range(0, REPLICATIONS, step):
        drawn = generator.integers(units, size=(min(step, REPLICATIONS - start), units))
        for kind, values in enumerate(table):
            sums[kind, start : start + step] = values[drawn].sum(axis=1)
    return sums


def as_dict(score: Score, metric: str) -> dict[str, Any]:
    """Convert a score to plain data for result.json; `metric` is the key of the rate. `wer` comes with `cer`."""
    entry = {
        **rate_as_dict(score.total, metric),
        "missing": len(score.missing),
        "interval": None if score.interval is None else list(score.interval),
        "interval_over": score.interval_over,
    }
    if metric == "wer":
        characters = score.characters
        entry["cer"] = characters.total.rate
        entry["cer_interval"] = None if characters.interval is None else list(characters.interval)
        entry["characters"] = characters.total.words
    return entry


def rate_as_dict(rate: ErrorRate, metric: str) -> dict[str, Any]:
    """Return the counts of an error rate, and the rate itself under the name of its metric."""
    return {metric: rate.rate, **rate._asdict(), "words": rate.words}


def line(score: Score, metric: str) -> str:
    """Format a score: `PER 12.3 % [11.0, 13.6]  (sub 7.1 del 3.0 ins 2.2), 95 % over speakers`, with CER for words."""
    total = score.total
    kinds = (("sub", total.substitutions), ("del", total.deletions), ("ins", total.insertions))
    parts = " ".join(f"{name} {percent(number, total)}" for name, number in kinds)
    text = f"{SHORT_NAMES[metric]} {percent_within(total, score.interval)}  ({parts})"
    if metric == "wer":
        text += f", CER {percent_within(score.characters.total, score.characters.interval)}"
    text += "" if score.interval is None else f", 95 % over {score.interval_over}"
    return text + (f", {len(score.missing)} without a hypothesis" if score.missing else "")


def percent(number: int, rate: ErrorRate) -> str:
    """Format a number of errors in % of the reference tokens, with one decimal."""
    return f"{100 * number / max(rate.words, 1):.1f}"


def percent_within(rate: ErrorRate, within: Interval) -> str:
    """Format an error rate with its interval: `12.3 % [11.0, 13.6]`."""
    limits = "" if within is None else f" [{100 * within[0]:.1f}, {100 * within[1]:.1f}]"
    return f"{100 * rate.rate:.1f} %{limits}"


def _sum(rates: Iterable[ErrorRate]) -> ErrorRate:
    return ErrorRate(*map(sum, zip(ErrorRate(0, 0, 0, 0, 0), *rates, strict=True)))


def _parts(rates: Mapping[str, ErrorRate], names: Callable[[str], Iterable[str]]) -> dict[str, ErrorRate]:
    """Sum rates of utterances over the parts that `names` gives for each."""
    parts: dict[str, list[ErrorRate]] = defaultdict(list)
    for utterance, rate in rates.items():
        for name in names(utterance):
            parts[name].append(rate)
    return {name: _sum(parts[name]) for name in sorted(parts)}


def _confusions(alignments: Iterable[Alignment]) -> tuple[Confusion, ...]:
    counts = Counter(
        (str(aligned.reference), str(aligned.hypothesis))
        for alignment in alignments
        for aligned in alignment
        if aligned.kind == "substitution"
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Confusion(reference, hypothesis, number) for (reference, hypothesis), number in ordered)


def in_characters(alignment: Alignment) -> Alignment:
    """Return the characters of aligned words with the fewest errors; a space between words is `<space>`."""
    reference, hypothesis = _texts(alignment)
    (chunks,) = jiwer.process_characters(reference, hypothesis).alignments
    characters: list[Aligned] = []
    for chunk in chunks:
        sides = (
            reference[chunk.ref_start_idx : chunk.ref_end_idx],
            hypothesis[chunk.hyp_start_idx : chunk.hyp_end_idx],
        )
        for pair in zip_longest(*sides):
            one, other = ("<space>" if each == " " else each for each in pair)
            characters.append(Aligned(one, other, _KINDS[chunk.type]))
    return characters


def _characters(alignment: Alignment) -> ErrorRate:
    counts = jiwer.process_characters(*_texts(alignment))
    return ErrorRate(counts.substitutions, counts.deletions, counts.insertions, counts.hits, 1)


def _texts(alignment: Alignment) -> tuple[str, str]:
    """Return the reference and hypothesis; optional words that the hypothesis omits are left out of the reference."""
    spoken = [aligned.reference for aligned in alignment if (aligned.kind, aligned.hypothesis) != ("correct", None)]
    reference = " ".join(token for token in spoken if token is not None)
    return reference, " ".join(aligned.hypothesis for aligned in alignment if aligned.hypothesis is not None)
