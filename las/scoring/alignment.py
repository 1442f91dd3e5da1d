"""Alignment of hypotheses with references, token by token."""

from collections.abc import Sequence
from typing import Any

import jiwer

Pair = tuple[str | None, str | None]
"""A reference token and the hypothesis token aligned with it; None where there is none (insertion, deletion)."""


def align(references: Sequence[list[str]], hypotheses: Sequence[list[str]]) -> list[list[Pair]]:
    """Align each hypothesis with its reference at the least number of substitutions, deletions and insertions.

    Where several alignments have as few errors, jiwer's choice decides how many of each kind there are; sclite, whose
    substitution costs 4 and whose deletion and insertion cost 3, can decide otherwise.
    """
    if not references:
        return []
    # An empty transform leaves lists of tokens as they are, which jiwer's own signature does not tell.
    spoken: Any = list(references)
    heard: Any = list(hypotheses)
    output = jiwer.process_words(spoken, heard, jiwer.Compose([]), jiwer.Compose([]))
    return [
        [pair for chunk in chunks for pair in _pairs(chunk, reference, hypothesis)]
        for chunks, reference, hypothesis in zip(output.alignments, references, hypotheses, strict=True)
    ]


def _pairs(chunk: jiwer.AlignmentChunk, reference: list[str], hypothesis: list[str]) -> list[Pair]:
    spoken = reference[chunk.ref_start_idx : chunk.ref_end_idx]
    heard = hypothesis[chunk.hyp_start_idx : chunk.hyp_end_idx]
    if chunk.type == "delete":
        return [(token, None) for token in spoken]
    if chunk.type == "insert":
        return [(None, token) for token in heard]
    return list(zip(spoken, heard, strict=True))
