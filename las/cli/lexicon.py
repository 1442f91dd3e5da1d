"""The verb `lexicon`: a pronouncing dictionary of the words of a corpus and of a text."""

from collections import Counter
from pathlib import Path
from typing import Any

from las.config.build import build, check_values, compose
from las.data.corpora.base import Corpus
from las.hmm import pronunciation, spoken
from las.runtime import progress
from las.runtime.errors import ConfigError, first_of
from las.storage import atomic
from las.training import data_preparation
from las.training.tasks import text


def lexicon(overrides: list[str]) -> dict[str, Any]:
    """Write the dictionary, print where pronunciations are from, and return the counts: see configs/lexicon.yaml."""
    config = compose("lexicon", overrides)
    check_values(config, {"output": str, "text": str | None, "size": int | None})
    if config["size"] is not None and config["size"] < 1:
        raise ConfigError(f"size={config['size']} must be at least 1, for example size=60000")
    output = Path(config["output"])
    atomic.require_place(output)
    corpus: Corpus = build(config["corpus"], where="corpus")
    if spoken.has_phones(corpus):
        raise ConfigError(f"{corpus.name} has phones, which need no dictionary: choose a corpus of words")
    known = pronunciation.cmu()
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), build(config["limits"], where="limits"))
    words = _words(corpus, data, config["text"], config["size"])
    made = pronunciation.make(words, known)
    lines = [
        " ".join((word if place == 0 else f"{word}({place + 1})", *variant.phones))
        for word, variants in made.lexicon.entries.items()
        for place, variant in enumerate(variants)
    ]
    atomic.write(output, "\n".join(lines) + "\n")
    left_out = [word for word in words if word not in made.lexicon.entries]
    progress.say(
        f"{output}: {len(made.lexicon.entries):,} words, {len(made.listed):,} from CMU's dictionary and "
        f"{len(made.by_rule):,} by eSpeak NG, in {len(made.lexicon.phones)} phones"
    )
    if left_out:
        progress.say(f"without a pronunciation, left out: {len(left_out):,} words: {first_of(left_out, 20)}")
    return {"words": len(made.lexicon.entries), "listed": len(made.listed), "by_rule": len(made.by_rule)}


def _words(corpus: Corpus, data: data_preparation.PreparedCorpus, path: str | None, size: int | None) -> list[str]:
    """Return the words of all transcripts, and the most frequent `size` of a text, sorted."""
    chosen = {word for own in data.splits.values() for each in spoken.spoken(corpus, own) for word in each.words}
    if path is not None:
        counts = Counter(word for _, line in text.lines(Path(path)) for word in line.split())
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        chosen.update(ranked[:size])
    return sorted(chosen)
