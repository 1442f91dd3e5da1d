"""Preparation of a search for a model: of tokens, or of the phones of a dictionary, whose words the search finds."""

from pathlib import Path

from las.data.tokenizers import Tokenizer
from las.decoding.base import Search
from las.decoding.hybrid.word_graph import WordGraphSearch
from las.hmm.lexicon import Lexicon
from las.hmm.topology import StateNumbering, Topology
from las.runtime.errors import ConfigError


def prepare(
    search: Search,
    tokens: Tokenizer,
    lexicon: Lexicon | None,
    states: StateNumbering | None,
    has_ctc: bool,
    cache: Path | None,
) -> None:
    """Prepare a search for a model of tokens, or of the phones of a dictionary.

    Args:
        search: any.
        tokens: of the corpus.
        lexicon: whose phones the model knows; None for a model that knows the tokens.
        states: of the phones of the dictionary; None for those of monophones.
        has_ctc: whether the model has a CTC head.
        cache: folder where graphs of words are kept.

    Raises ConfigError or DataError where they do not fit.
    """
    search.bind(tokens, has_ctc)
    if isinstance(search, WordGraphSearch) != (lexicon is not None):
        raise ConfigError(
            "search: this model knows the phones of a dictionary, and the search finds no words: choose "
            "search=word_graph"
            if lexicon is not None
            else "search=word_graph: this model was trained without a dictionary of words: choose search=phone_bigram"
        )
    if isinstance(search, WordGraphSearch) and lexicon is not None:
        search.prepare(lexicon, Topology.of_lexicon(lexicon) if states is None else states, cache)


def tokens_of(search: Search, tokens: Tokenizer) -> Tokenizer:
    """The tokens that hypotheses of a prepared search are of: words, or those of the model."""
    return Tokenizer(search.words) if isinstance(search, WordGraphSearch) else tokens
