"""Words of a corpus in the form that its pronouncing dictionary has."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.hmm import lexicon
from las.hmm.graph import AlignmentGraph, alignment_graph
from las.hmm.lexicon import Lexicon
from las.hmm.topology import StateNumbering, Topology
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError

PHONE_METRIC = "phone_error_rate"


class Spoken(NamedTuple):
    """An utterance and its words, in the form that the dictionary has."""

    utterance: Utterance
    words: list[str]

    def graph(self, lexicon: Lexicon, states: StateNumbering) -> AlignmentGraph:
        """Return the graph of all ways to say the words. Raises DataError as `alignment_graph`."""
        return alignment_graph(self.words, lexicon, states, f"utterance {self.utterance.id}")


class MissingWords(NamedTuple):
    """Words that a dictionary lacks, as lines for a message, and the ids of the utterances with such words."""

    summary: str
    lines: str
    utterance_ids: frozenset[str]


def has_phones(corpus: Corpus) -> bool:
    """Return whether the texts of a corpus are phones."""
    return corpus.metric == PHONE_METRIC


def dictionary_path(corpus: Corpus, given: str | None) -> Path | None:
    """Return the file of a pronouncing dictionary: the one that is given, or the corpus's own; None where texts are
    phones.

    Raises ConfigError for a corpus of words that has none.
    """
    path = None if given is None else Path(given)
    if (path := path or corpus.dictionary()) is None and not has_phones(corpus):
        raise ConfigError(
            f"lexicon: {corpus.name} has no pronouncing dictionary of its own: lexicon=words.dic, with lines such as "
            "READ R IY D (CMU's, Sphinx's and Kaldi's formats)"
        )
    return path


def dictionary(corpus: Corpus, given: str | None) -> Lexicon:
    """Return the pronouncing dictionary of a corpus, read from `dictionary_path`; phones are their own where texts are
    phones.

    Raises ConfigError for a corpus of words without one, DataError as `lexicon.read` does.
    """
    path = dictionary_path(corpus, given)
    return lexicon.of_phones(corpus.tokens.symbols[1:]) if path is None else lexicon.read(path)


def say_dictionary(corpus: Corpus, given: str | None, dictionary: Lexicon) -> None:
    """Print which file a dictionary is from, and its size."""
    if path := dictionary_path(corpus, given):
        words, phones = len(dictionary.entries), len(dictionary.phones)
        progress.say(f"{path}: {words:,} words, {phones} phones, {dictionary.silence} among them")


def topology(corpus: Corpus, dictionary: Lexicon) -> Topology:
    """Return the topology of a corpus: its tokens, in their order, where they are the phones, else those of a
    dictionary.
    """
    return Topology(corpus.tokens.symbols[1:]) if dictionary.silence is None else Topology.of_lexicon(dictionary)


def spoken(corpus: Corpus, utterances: Sequence[Utterance]) -> list[Spoken]:
    """Utterances with their words: phones as the text has them, other words in the form that is scored."""
    by_phones = has_phones(corpus)
    return [Spoken(each, each.text.split() if by_phones else corpus.normalise(each.text)) for each in utterances]


def missing_words(splits: Mapping[str, Sequence[Spoken]], dictionary: Lexicon) -> MissingWords | None:
    """Return the words that a dictionary lacks; None if it has them all."""
    everything = list(itertools.chain.from_iterable(splits.values()))
    missing = dictionary.missing((each.utterance.id, each.words) for each in everything)
    if not missing:
        return None
    unknown = {each.word for each in missing}
    ids = frozenset(each.utterance.id for each in everything if unknown & set(each.words))
    summary = f"the dictionary lacks {len(missing)} words of {len(ids)} utterances"
    return MissingWords(summary, "\n".join(lexicon.describe(missing)), ids)


def require_known(splits: Mapping[str, Sequence[Spoken]], dictionary: Lexicon, otherwise: str) -> None:
    """Raise DataError that lists the words which a dictionary lacks, and says what else can be done."""
    if missing := missing_words(splits, dictionary):
        raise DataError(f"{missing.summary}:\n{missing.lines}\nAdd them to it, or {otherwise}")
