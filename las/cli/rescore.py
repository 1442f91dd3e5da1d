"""The verb `rescore`: n-best lists ranked again with a language model that was not in the search."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from las.cli.score import guess
from las.cli.tune import Tried, lists, print_table
from las.config.build import check_values, compose
from las.decoding.evaluation import with_confidences
from las.lm import arpa, loading, ngram
from las.lm.perplexity import LanguageModel, log_probs
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, first_of
from las.scoring import conventions, error_rates, transcript_files
from las.scoring.conventions import Convention
from las.scoring.error_rates import Score
from las.scoring.transcript_files import Transcript
from las.storage import atomic, bounded, text_files

NAME = "rescoring"
"""Name of the new score among those of a hypothesis."""
Entry = dict[str, Any]


class Lists(NamedTuple):
    """N-best lists: utterances as they are in the file, and for each [hypotheses, 3], the terms that weights multiply:
    the log-probability by the new language model, that by the search's own, and the number of words.
    """

    entries: list[Entry]
    terms: list[np.ndarray]

    def best(self, weights: Sequence[float]) -> dict[str, str]:
        """Return the best text of each utterance."""
        return {
            entry["id"]: ranked[0][1]["text"] for entry, ranked in zip(self.entries, self.ranked(weights), strict=True)
        }

    def ranked(self, weights: Sequence[float]) -> Iterator[list[tuple[float, Entry]]]:
        """Yield the list of each utterance in its new order, with the scores. Of equals the first wins."""
        for entry, terms in zip(self.entries, self.terms, strict=True):
            scores = np.array([each["score"] for each in entry["nbest"]]) + terms @ np.array(weights)
            yield [(float(scores[place]), entry["nbest"][place]) for place in np.argsort(-scores, kind="stable")]


def rescore(overrides: list[str]) -> dict[str, Any]:
    """Rank lists again, choose weights by references if there are any, and return them: see configs/rescore.yaml.

    Raises ConfigError for several combinations without references, DataError for a file without n-best lists.
    """
    config = compose("rescore", overrides)
    check_values(
        config,
        {"hypotheses": str, "language_model": str, "output": str, "references": str | None, "temperature": float},
    )
    atomic.require_place(Path(config["output"]), ".jsonl")
    grid = lists(config["weights"], "weights.")
    points = [dict(zip(grid, map(float, chosen), strict=True)) for chosen in itertools.product(*grid.values())]
    if len(points) > 1 and config["references"] is None:
        raise ConfigError(
            f"weights: {len(points)} combinations, and nothing to choose by: give references=, or one value for each"
        )
    entries = read(config["hypotheses"])
    found = Lists(entries, terms(entries, config["language_model"], config["strict"]))
    best, result = points[0], {}
    if config["references"] is not None:
        references = transcript_files.read(config["references"], reference=True)
        convention = conventions.convention(guess(references))
        tried = [Tried(point, rate(references, convention, found.best([*point.values()]))) for point in points]
        tried.sort(key=lambda each: each.score.total.rate)  # stable: of equals, the one that was given first
        print_table(tried, config["references"], convention.metric)
        best = tried[0].point
        result = {"rate": tried[0].score.total.rate, "oracle": oracle(references, convention, entries)}
        progress.say(error_rates.line(tried[0].score, convention.metric))
        progress.say(f"with the hypothesis of fewest errors of every list (oracle) {100 * result['oracle']:.1f} %")
    lines = [
        with_confidences(listed(entry, ranked, log_prob), config["temperature"])
        for entry, ranked, log_prob in zip(entries, found.ranked([*best.values()]), found.terms, strict=True)
    ]
    atomic.write(Path(config["output"]), (f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))
    values = " ".join(f"weights.{name}=[{value:g}]" for name, value in best.items())
    progress.say(f"{len(lines)} utterances written to {config['output']} with {values}")
    return result | best


def read(path: str) -> list[Entry]:
    """Read n-best lists. Raises DataError for a line without one, naming it."""
    entries = []
    for number, line in text_files.lines(Path(path)):
        try:
            entry = bounded.parse_object(line.encode())
            for each in entry["nbest"]:
                _ = each["text"].split(), float(each["score"]), float(own_lm(each))
            if not entry["nbest"] or not isinstance(entry["id"], str):
                raise ValueError("an empty list")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{path}:{number}: not an utterance with an n-best list ({error!r}): "
                "las decode search.nbest=100 writes them"
            ) from error
        entries.append(entry)
    if not entries:
        raise DataError(f"{path}: the file has no utterances")
    return entries


def own_lm(hypothesis: Entry) -> float:
    """Return the log-probability by the language model of the search; 0 where it had none."""
    scores: dict[str, float] = hypothesis["scores"]
    return scores.get("lm", scores.get("word_lm", 0.0))


def terms(entries: Sequence[Entry], lm: str, strict: bool = False) -> list[np.ndarray]:
    """Return what weights multiply, for each list (see `Lists`); a text that occurs twice is scored once."""
    texts = list(dict.fromkeys(each["text"] for entry in entries for each in entry["nbest"]))
    log_prob = dict(zip(texts, text_log_probs(lm, texts, strict), strict=True))
    return [
        np.array([[log_prob[each["text"]], own_lm(each), len(each["text"].split())] for each in entry["nbest"]])
        for entry in entries
    ]


def text_log_probs(path: str, texts: Sequence[str], strict: bool = False) -> list[float]:
    """Return the log-probabilities of texts by a run of an LSTM language model in its own tokens, or an ARPA of words.

    Raises DataError naming a text with symbols that the tokens lack.
    """
    model: LanguageModel
    if Path(path).is_dir():
        model, tokens = loading.load_neural(Path(path), strict)
        if unknown := [text for text in texts if tokens.unknown(text)]:
            raise DataError(f"{path}: its tokens lack symbols of {first_of(unknown, 5)}")
        sentences = [tokens.encode(text) for text in texts]
    else:
        model = ngram.of_words(arpa.read(path))
        ids = {word: number for number, word in enumerate(model.symbols)}
        sentences = [[ids.get(word, ids[arpa.UNKNOWN]) for word in text.split()] for text in texts]
    return [float(row.sum()) for row in log_probs(model, sentences)]


def rate(references: dict[str, Transcript], convention: Convention, hypotheses: dict[str, str]) -> Score:
    """Return the error rate of texts. Raises DataError where they are of other utterances than the references."""
    if others := sorted(hypotheses.keys() ^ references.keys()):
        raise DataError(f"lists and references are of other utterances: only one of them has {first_of(others, 5)}")
    return error_rates.error_rate(
        {name: convention.reference(each.text) for name, each in references.items()},
        {name: convention.hypothesis(text) for name, text in hypotheses.items()},
        {name: each.speaker for name, each in references.items()},
        convention.rules,
    )


def oracle(references: dict[str, Transcript], convention: Convention, entries: Sequence[Entry]) -> float:
    """Return the error rate of the hypothesis of each list that has the fewest errors."""
    best = {}
    for entry in entries:
        reference = convention.reference(references[entry["id"]].text)
        texts = [each["text"] for each in entry["nbest"]]
        best[entry["id"]] = min(texts, key=lambda text: error_rates.wer([reference], [convention.hypothesis(text)]))
    return rate(references, convention, best).total.rate


def listed(entry: Entry, ranked: Sequence[tuple[float, Entry]], terms: np.ndarray) -> Entry:
    """Return an utterance with its list in the new order."""
    log_prob = {id(each): value for each, value in zip(entry["nbest"], terms[:, 0], strict=True)}
    nbest = [
        {**each, "score": round(score, 4), "scores": {**each["scores"], NAME: round(float(log_prob[id(each)]), 4)}}
        for score, each in ranked
    ]
    return {"id": entry["id"], "text": nbest[0]["text"], "score": nbest[0]["score"], "nbest": nbest}
