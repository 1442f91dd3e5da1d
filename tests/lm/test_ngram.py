"""The scorer: equal to the recursion it stands for, to KenLM, and to itself in any batch and with any memory."""

import json
import math
import random

import kenlm_cases
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiers import rest_slow

from las.lm import arpa, kneser_ney, ngram
from las.lm.perplexity import log_probs, perplexity

GOLD = json.loads(kenlm_cases.GOLD.read_text("utf-8"))
ROOMS = (ngram.ROW_ENTRIES, 2000, 0)


@pytest.fixture(scope="module")
def model() -> arpa.Model:
    return kneser_ney.estimate(kenlm_cases.text("words"), 3).model


def by_recursion(grams: dict[tuple[str, ...], tuple[float, float]], history: tuple[str, ...], word: str) -> float:
    """log p of a word, natural, as the definition of a back-off model says it."""
    if (*history, word) in grams:
        return grams[(*history, word)][0] * math.log(10)
    weight = grams[history][1] if history in grams else 0.0
    return weight * math.log(10) + by_recursion(grams, history[1:], word)


def encoded(lm: ngram.NGram, sentences: list[list[str]]) -> list[list[int]]:
    ids = {symbol: index for index, symbol in enumerate(lm.symbols)}
    return [[ids.get(word, ids["<unk>"]) for word in sentence] for sentence in sentences]


def pruned(model: arpa.Model, draw: random.Random) -> arpa.Model:
    """A model without some of its n-grams, as other programs make them: ends of an n-gram need not be n-grams."""
    parts = [model.ngrams[0]]
    kept = np.arange(len(parts[0].words))
    for part in model.ngrams[1:]:
        place = {old: new for new, old in enumerate(kept.tolist())}
        kept = np.array(
            [i for i, c in enumerate(part.contexts.tolist()) if c in place and draw.random() < 0.6], dtype=int
        )
        contexts = np.array([place[context] for context in part.contexts[kept].tolist()], dtype=np.int64)
        parts.append(arpa.NGrams(contexts, *(column[kept] for column in part[1:])))
    return arpa.Model(model.words, tuple(parts), "pruned")


@given(
    text=st.lists(st.lists(st.sampled_from("abcde"), max_size=8), min_size=1, max_size=25),
    order=st.integers(1, 4),
    room=st.sampled_from((0, 20, 60, 1 << 20)),
    seed=st.integers(0, 99),
)
def test_rows_are_those_of_the_recursion(text: list[list[str]], order: int, room: int, seed: int) -> None:
    draw = random.Random(seed)
    model = kneser_ney.estimate(text, min(order, 2 + max(map(len, text))), "abcdef").model
    for each in (model, pruned(model, draw)):
        lm, grams = ngram.of_words(each, room), kenlm_cases.table(each)
        state, history = lm.start(1), ("<s>",)
        for _ in range(6):
            row = lm.score(state)[0, 0]
            end = history[max(0, len(history) + 1 - each.order) :] if each.order > 1 else ()
            expected = [by_recursion(grams, end, symbol) for symbol in lm.symbols]
            assert row.tolist() == pytest.approx(expected, abs=1e-5)
            token = draw.randrange(1, len(lm.symbols))
            found, state = lm.follow(state, torch.tensor([[token]]))
            assert found.item() == pytest.approx(expected[token], abs=1e-5)
            history = (*history, lm.symbols[token])


@pytest.mark.parametrize("room", rest_slow(ROOMS, keep=1))
def test_scores_are_those_of_kenlm(room: int, model: arpa.Model) -> None:
    """10,000 sentences: the first ones each, all of them in sums of a hundred."""
    lm = ngram.of_words(model, room)
    rows = log_probs(lm, encoded(lm, kenlm_cases.scored()))
    totals = [row.sum().item() / math.log(10) for row in rows]
    assert totals[: kenlm_cases.NUM_LISTED] == pytest.approx(GOLD["scores"], abs=1e-4)
    sums = [sum(totals[first : first + kenlm_cases.BLOCK]) for first in range(0, len(totals), kenlm_cases.BLOCK)]
    assert sums == pytest.approx(GOLD["sums"], abs=5e-3)


def test_tensors_may_lie_in_memory_as_they_like(model: arpa.Model) -> None:
    lm = ngram.of_words(model, 2000)
    tokens = torch.arange(12).view(3, 4)
    state = lm.advance(lm.start(3).expand(3, 4), tokens)
    other = lm.advance(lm.start(4).expand(4, 3).T, tokens.T.contiguous().T)
    assert torch.equal(state, other)
    assert torch.equal(lm.score(state.T.contiguous().T), lm.score(state))


def test_less_room_for_rows_takes_less_memory(model: arpa.Model) -> None:
    scorers = [ngram.of_words(model, room) for room in ROOMS]
    assert scorers[0].longest_list == 0 < scorers[1].longest_list < scorers[2].longest_list
    assert scorers[0].num_bytes > scorers[1].num_bytes > scorers[2].num_bytes


def test_only_contexts_that_matter_are_states() -> None:
    """After a word that nothing was seen after, and after the end of a sentence, there is only the empty context."""
    model = kneser_ney.estimate([["a", "b"]], 2, ["c"]).model
    lm = ngram.of_words(model)
    assert lm.num_states == 4  # the empty context, <s>, a, b
    for symbol in ("c", "</s>", "<unk>"):
        assert lm.advance(lm.start(1), torch.tensor([[lm.symbols.index(symbol)]])).item() == 0


def test_perplexity_by_hand() -> None:
    model = kneser_ney.estimate([["a"], ["b"], ["a", "a"]], 1, ["c"]).model
    lm = ngram.of_words(model)
    grams = kenlm_cases.table(model)
    found = perplexity(lm, encoded(lm, [["a", "x"], [], ["b"]]), unknown=1)
    assert (found.num_sentences, found.num_symbols, found.num_unknown) == (3, 6, 1)
    known = [grams[(word,)][0] for word in ("a", "</s>", "</s>", "b", "</s>")]
    assert found.of_known == pytest.approx(10 ** -(sum(known) / 5))
    assert found.of_all == pytest.approx(10 ** -((sum(known) + grams[("<unk>",)][0]) / 6))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_gives_the_same_rows(model: arpa.Model) -> None:
    for room in ROOMS:
        lm, other = ngram.of_words(model, room), ngram.of_words(model, room)
        state, moved = lm.start(4), other.start(4, "cuda")
        for token in (3, 7, 1, 40):
            assert torch.allclose(lm.score(state), other.score(moved).cpu(), atol=1e-5)
            state = lm.advance(state, torch.full((4, 1), token))
            moved = other.advance(moved, torch.full((4, 1), token, device="cuda"))
            assert torch.equal(state, moved.cpu())
