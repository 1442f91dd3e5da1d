"""Confidences of words and utterances: made of n-best lists, judged against references, and calibrated.

    confidence of an utterance   sum of softmax(scores) over the hypotheses of its text
    confidence of a word         the same over the hypotheses that have it in its place
    calibrated                   sigmoid(logit(confidence) / temperature)                     (Guo et al. 2017)
    NCE                          (H + sum log2 p(what was so)) / H,  H = -n log2(n/N) - (N-n) log2(1 - n/N)

for n right ones of N (normalised cross entropy; NIST). ECE is the mean distance of confidence and share of right ones,
over bins of equal width weighted by their sizes.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from las.scoring.alignment import align
from las.scoring.error_rates import Score
from las.scoring.transcript_files import Transcript

LEAST = 1e-7
"""Confidences are at least this far from 0 and 1, as in sclite."""
SUREST = 0.99
"""The highest confidence of a word, and 1 minus the lowest: a list of a few hypotheses that agree shows no more."""
BINS = 10
TEMPERATURES = (0.01, 100.0)


def posteriors(scores: Sequence[float]) -> list[float]:
    """Return the probabilities of hypotheses by their log-probabilities; all alike where none is possible.

    >>> from las.scoring.confidence import posteriors
    >>> [round(each, 3) for each in posteriors([-1.0, -1.0, -2.0])]
    [0.422, 0.422, 0.155]
    """
    values = np.array(scores, dtype=np.float64)
    if values.max() == -math.inf:
        return [1 / len(values)] * len(values)
    weights = np.exp(values - values.max())
    return list((weights / weights.sum()).tolist())


def entropy(probabilities: Sequence[float]) -> float:
    """Return the entropy of a distribution, in nats."""
    return -math.fsum(each * math.log(each) for each in probabilities if each > 0)


def of_words(texts: Sequence[str], probabilities: Sequence[float], temperature: float = 1.0) -> list[float]:
    """Return the confidence of each word of the first text, by the hypotheses that have it in its place.

    >>> from las.scoring.confidence import of_words
    >>> [round(each, 3) for each in of_words(["go on", "go", "so on"], [0.5, 0.3, 0.2])]
    [0.8, 0.7]
    """
    sums = [0.0] * len(texts[0].split())
    for alignment, probability in zip(align([texts[0]] * len(texts), list(texts)), probabilities, strict=True):
        kinds = [each.kind for each in alignment if each.reference is not None]
        sums = [total + probability * (kind == "correct") for total, kind in zip(sums, kinds, strict=True)]
    return [calibrated(min(max(each, 1 - SUREST), SUREST), temperature) for each in sums]


def calibrated(confidence: float, temperature: float) -> float:
    """Return a confidence at a temperature: above 1 nearer to a half."""
    return confidence if temperature == 1.0 else 1 / (1 + math.exp(-_log_odds([confidence])[0] / temperature))


def _log_odds(confidences: Sequence[float]) -> Any:
    clipped = np.clip(np.array(confidences, dtype=np.float64), LEAST, 1 - LEAST)
    return np.log(clipped) - np.log1p(-clipped)


class Judged(NamedTuple):
    """Confidences, and whether what they are of was right.

    >>> from las.scoring.confidence import Judged
    >>> judged = Judged([0.9, 0.8, 0.6, 0.3], [True, True, False, False])
    >>> round(judged.nce, 3), round(judged.ece, 3), round(judged.temperature, 3)
    (0.422, 0.3, 0.535)
    """

    confidences: Sequence[float]
    right: Sequence[bool]

    @property
    def nce(self) -> float | None:
        """Normalised cross entropy: 1 is best, 0 what knowing the error rate gives; None if all are right, or none."""
        share = sum(self.right) / max(len(self.right), 1)
        if not 0 < share < 1:
            return None
        bits = entropy([share, 1 - share]) * len(self.right)
        return float(1 + np.log(np.clip(self._of_truth(), LEAST, 1.0)).sum() / bits)

    @property
    def ece(self) -> float:
        """Expected calibration error, from 0 to 1."""
        confidences, right = np.array(self.confidences), np.array(self.right, dtype=np.float64)
        bins = np.minimum((confidences * BINS).astype(int), BINS - 1)
        distances = np.bincount(bins, confidences - right, BINS)
        return float(np.abs(distances).sum() / max(len(right), 1))

    @property
    def temperature(self) -> float | None:
        """The temperature of the highest NCE; None if all are right, or none."""
        if self.nce is None:
            return None
        odds = np.where(self.right, 1.0, -1.0) * _log_odds(self.confidences)
        low, high = (1 / limit for limit in reversed(TEMPERATURES))  # the loss is convex in the inverse temperature
        for _ in range(60):
            middle = math.sqrt(low * high)
            slope = (odds / (1 + np.exp(np.minimum(middle * odds, 700.0)))).sum()
            low, high = (middle, high) if slope > 0 else (low, middle)
        return 1 / low

    def at(self, temperature: float) -> "Judged":
        """Return what these confidences are at another temperature."""
        return Judged([calibrated(each, temperature) for each in self.confidences], self.right)

    def _of_truth(self) -> Any:
        confidences = np.array(self.confidences)
        return np.where(self.right, confidences, 1 - confidences)


def judge(
    score: Score, transcripts: Mapping[str, Transcript], normalise: Callable[[str], Iterable[str]]
) -> dict[str, Judged]:
    """Judge the confidences of `words` and `utterances` that transcripts have, by the alignments of their score.

    `normalise` makes the scored tokens of a text. An utterance whose tokens are not those of its words, one by one, is
    left out, and so is a kind without any confidence.
    """
    words: list[tuple[float, bool]] = []
    utterances: list[tuple[float, bool]] = []
    for name, alignment in score.utterances.items():
        transcript = transcripts.get(name)
        if transcript is None:
            continue
        if transcript.confidence is not None:
            utterances.append((transcript.confidence, all(each.kind == "correct" for each in alignment)))
        pairs = zip(transcript.text.split(), transcript.confidences or (), strict=False)
        tokens = [confidence for word, confidence in pairs for _ in normalise(word)]
        right = [each.kind == "correct" for each in alignment if each.hypothesis is not None]
        if len(tokens) == len(right):
            words += zip(tokens, right, strict=True)
    kinds = {"words": words, "utterances": utterances}
    return {kind: Judged(*map(list, zip(*pairs, strict=True))) for kind, pairs in kinds.items() if pairs}


def as_dict(judged: Mapping[str, Judged]) -> dict[str, dict[str, float | None]]:
    """Return numbers of confidences as plain data."""
    return {
        kind: {"count": len(each.right), "nce": each.nce, "ece": each.ece, "temperature": each.temperature}
        for kind, each in judged.items()
    }


def lines(judged: Mapping[str, Judged]) -> list[str]:
    """Describe confidences, those of words at the temperature that fits as well:
    `confidences of 773 words: NCE 0.213, ECE 0.041; at temperature=1.90 NCE 0.254, ECE 0.022`.
    """
    found = []
    for kind, each in judged.items():
        line, temperature = f"confidences of {len(each.right):,} {kind}: {_numbers(each)}", each.temperature
        if kind == "words" and temperature is not None:
            line += f"; at temperature={temperature:.2f} {_numbers(each.at(temperature))}"
        found.append(line)
    return found


def _numbers(judged: Judged) -> str:
    nce = "none" if judged.nce is None else f"{judged.nce:.3f}"
    return f"NCE {nce}, ECE {judged.ece:.3f}"
