"""Words of lists and pronouncing dictionaries, how the tokens of a recogniser spell them, and their prefix tree."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from las.data.tokenizers import WORD_START, Tokenizer, WordPart
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, first_of
from las.storage import text_files

NO_WORD = -1
_NUM_SHOWN = 5
_END = 0
"""The code that fills up the characters of short words and tokens."""


def read(path: str | Path) -> list[str]:
    """Return the words of a list (one a line) or of a pronouncing dictionary, each once and in the order of the file.

    A line's first column is its word, without the number of a pronunciation: `READ(2)`. Lines that begin with `;;;` are
    comments. Raises DataError for a file that cannot be read, holds no words, or is a language model.
    """
    path = Path(path)
    words = list(dict.fromkeys(word for _, word, _ in text_files.words(path)))
    if "\\data\\" in words:
        raise DataError(f"{path}: a language model (ARPA), not a list of words: search.word_lm.path={path} takes it")
    if not words:
        raise DataError(f"{path}: there are no words in it. It should have a word a line, or be a dictionary")
    return words


def read_phrases(path: str | Path) -> list[str]:
    """Return the lines of a file, each of one word or of several. Raises DataError for a file without any."""
    phrases = [" ".join(line.split()) for _, line in text_files.lines(Path(path))]
    if not phrases:
        raise DataError(f"{path}: there are no words in it. It should have a word or a phrase a line")
    return list(dict.fromkeys(phrases))


def word_parts(tokens: Tokenizer) -> list[WordPart]:
    """Return the part of a word that each token spells, none for the boundary.

    Raises ConfigError for pieces that go from one word into the next.
    """
    if wide := [symbol for symbol in tokens.symbols[1:] if WORD_START in symbol[1:]]:
        raise ConfigError(
            f"the pieces {first_of(map(repr, wide), _NUM_SHOWN)} go from one word into the next: words need others"
        )
    return [WordPart("", begins=False, may_lead=False), *map(tokens.word_part, tokens.symbols[1:])]


def spellings(words: Iterable[str], tokens: Tokenizer, name: str) -> dict[str, str]:
    """Return the words (or phrases) that the tokens can spell, by their spelling, sorted; `name` stands in messages.

    A spelling is what the tokens of the word read together, which a model of pieces may have normalised. The others
    are counted and shown in a line. Raises DataError if all of them are others.
    """
    found: dict[str, str] = {}
    others: dict[str, str] = {}
    words = list(words)
    for word in words:
        if missing := tokens.unknown(word):
            others[word] = f"{word!r} has {first_of(map(repr, dict.fromkeys(missing)), _NUM_SHOWN)}"
            continue
        parts = map(tokens.word_part, tokens.split(word))
        spelling = "".join(f"{' ' if part.begins else ''}{part.text}" for part in parts).strip()
        if spelling in found or not spelling:
            others[word] = f"{word!r} is spelt as {found.get(spelling, 'nothing')!r}"
        else:
            found[spelling] = word
    if not found:
        symbol = next(iter(tokens.unknown(next(iter(others), ""))), "")
        raise DataError(
            f"{name}: the tokens can spell none of its {len(words):,} words: "
            f"{first_of(others.values(), _NUM_SHOWN)}.{tokens.nearest(symbol)}",
            kind="unknown symbols",
        )
    if others:
        progress.say(
            f"{name}: {len(others):,} of {len(words):,} words are left out, which the tokens cannot spell: "
            f"{first_of(others.values(), _NUM_SHOWN)}"
        )
    return dict(sorted(found.items()))


class PrefixTree:
    """The prefix tree of a vocabulary, walked by the tokens of a recogniser.

    A node is a prefix, node 0 the empty one; nodes are numbered by length, then alphabetically. Edges are characters,
    and a token walks along as many as it spells: however a word is divided into tokens, it ends at its node.

    Args:
        words: sorted, so that those below a node are a range; not empty and each listed once.
        parts: the tokens' own.

    All tensors lie on the CPU. `outside` is the number of the node of all strings that no word begins with; `word`
    [nodes + 1] is the word that ends at a node, or NO_WORD; the words below it are `first` <= word < `last`; `depth` is
    its number of characters, and `length` [tokens] that of each token.
    """

    def __init__(self, words: Sequence[str], parts: Sequence[WordPart]) -> None:
        characters = sorted(set("".join(words)))
        codes = {character: code for code, character in enumerate(characters, start=1)}
        self._radix = len(characters) + 2  # the last code stands for characters that no word has
        self._codes = _table([part.text for part in parts], codes)
        self.begins = torch.tensor([part.begins for part in parts])
        self.may_lead = torch.tensor([part.may_lead for part in parts])
        self.length = (self._codes != _END).sum(1)
        node, num_nodes = np.zeros(len(words), dtype=np.int64), 1
        keys, firsts, lasts, depths = [], [np.array([0])], [np.array([len(words)])], [np.array([0])]
        for depth, column in enumerate(_table(words, codes).numpy().T, start=1):
            inside = np.flatnonzero(column)
            key, index, inverse, count = np.unique(
                node[inside] * self._radix + column[inside], return_index=True, return_inverse=True, return_counts=True
            )
            node[inside] = num_nodes + inverse
            num_nodes += len(key)
            keys.append(key)
            firsts.append(inside[index])
            lasts.append(inside[index] + count)
            depths.append(np.full(len(key), depth))
        self.outside = num_nodes
        self._keys = torch.from_numpy(np.concatenate(keys))
        self.first, self.last, self.depth = (_with_outside(parts) for parts in (firsts, lasts, depths))
        self.word = torch.full((num_nodes + 1,), NO_WORD)
        self.word[torch.from_numpy(node)] = torch.arange(len(words))

    @property
    def num_nodes(self) -> int:
        """The number of prefixes, the empty one among them, and of the node `outside`."""
        return self.outside + 1

    @property
    def parents(self) -> Int[Tensor, " others"]:
        return self._keys // self._radix

    def follow(self, nodes: Int[Tensor, "*nodes"], tokens: Int[Tensor, "*tokens"]) -> Int[Tensor, "*all"]:
        """Return the nodes after the characters of tokens; nodes and tokens are broadcast against each other."""
        for codes in self._codes[tokens].unbind(-1):
            # The child's number follows from its place among the edges, which are sorted by parent and character.
            keys = (nodes * self._radix + codes).contiguous()
            index = torch.searchsorted(self._keys, keys).clamp(max=len(self._keys) - 1)
            children = torch.where(self._keys[index] == keys, index + 1, self.outside)
            nodes = torch.where(codes == _END, nodes, children)
        return nodes.expand(torch.broadcast_shapes(nodes.shape, tokens.shape))


def _table(texts: Sequence[str], codes: dict[str, int]) -> Int[Tensor, "texts longest"]:
    """Return the codes of the characters of each text; a character without one gets the next."""
    table = torch.full((len(texts), max(1, *map(len, texts))), _END)
    for row, text in zip(table.numpy(), texts, strict=True):
        row[: len(text)] = [codes.get(character, len(codes) + 1) for character in text]
    return table


def _with_outside(columns: Sequence[np.ndarray]) -> Int[Tensor, " nodes"]:
    """Return the values of all nodes, 0 for the last one, `outside`."""
    return torch.from_numpy(np.concatenate([*columns, np.zeros(1, dtype=np.int64)]))
