"""The prefix tree of a vocabulary of words, walked by the tokens of a recogniser.

A node is a prefix, node 0 the empty one; nodes are numbered by length, then alphabetically. The words are sorted, so
that those below a node are a range. Edges are characters, and a token walks along as many as it spells: however a word
is divided into tokens, it ends at its node.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from las.data.tokenizers import WordPart

NO_WORD = -1
_END = 0
"""The code that fills up the characters of short words and tokens."""


class PrefixTree:
    """Nodes of the prefixes of `words`, which are sorted, not empty and each listed once; `parts` are the tokens' own.

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
        """The parents of all nodes but the first and `outside`."""
        return self._keys // self._radix

    def follow(self, nodes: Int[Tensor, "*nodes"], tokens: Int[Tensor, "*tokens"]) -> Int[Tensor, "*all"]:
        """The nodes after the characters of tokens; nodes and tokens are broadcast against each other."""
        for codes in self._codes[tokens].unbind(-1):
            # The child's number follows from its place among the edges, which are sorted by parent and character.
            keys = (nodes * self._radix + codes).contiguous()
            index = torch.searchsorted(self._keys, keys).clamp(max=len(self._keys) - 1)
            children = torch.where(self._keys[index] == keys, index + 1, self.outside)
            nodes = torch.where(codes == _END, nodes, children)
        return nodes.expand(torch.broadcast_shapes(nodes.shape, tokens.shape))


def _table(texts: Sequence[str], codes: dict[str, int]) -> Int[Tensor, "texts longest"]:
    """The codes of the characters of each text; a character without one gets the next."""
    table = torch.full((len(texts), max(1, *map(len, texts))), _END)
    for row, text in zip(table.numpy(), texts, strict=True):
        row[: len(text)] = [codes.get(character, len(codes) + 1) for character in text]
    return table


def _with_outside(columns: Sequence[np.ndarray]) -> Int[Tensor, " nodes"]:
    """The values of all nodes, 0 for the last one, `outside`."""
    return torch.from_numpy(np.concatenate([*columns, np.zeros(1, dtype=np.int64)]))
