"""The search over phones equals one that tries every path."""

import itertools
import math

import pytest
import torch

from las.decoding.hybrid.phone_bigram import STEP, PhoneBigramSearch
from las.hmm.topology import NUM_STATES as STATES
from las.nn.acoustic_model import FrameScores

PHONES = 2


def scores(seed: int, batch: int, frames: int) -> FrameScores:
    generator = torch.Generator().manual_seed(seed)
    posteriors = torch.log_softmax(3 * torch.randn(batch, frames, PHONES * STATES, generator=generator), -1)
    priors = torch.log_softmax(torch.randn(PHONES * STATES, generator=generator), -1)
    bigram = torch.log_softmax(torch.randn(PHONES + 1, PHONES + 1, generator=generator), -1)
    return FrameScores(posteriors.double(), priors.double(), bigram.double())


def best(given: FrameScores, row: int, frames: int, search: PhoneBigramSearch) -> tuple[float, list[int]]:
    """The best of all ways to share frames out over the states of all texts of phones."""
    emissions = search.acoustic_scale * (given.log_posteriors[row] - search.prior_scale * given.log_priors)
    found = (-math.inf, [])
    for count in range(1, frames // STATES + 1):
        for phones in itertools.product(range(1, PHONES + 1), repeat=count):
            pdfs = [STATES * (phone - 1) + state for phone in phones for state in range(STATES)]
            pairs = zip((0, *phones), (*phones, 0), strict=True)
            text = sum(search.lm_scale * float(given.bigram[pair]) for pair in pairs) + search.insertion * count
            for cuts in itertools.combinations(range(1, frames), len(pdfs) - 1):
                bounds = [0, *cuts, frames]
                spans = zip(pdfs, bounds, bounds[1:], strict=False)
                heard = sum(float(emissions[start:end, pdf].sum()) for pdf, start, end in spans)
                found = max(found, (heard + text + frames * STEP, list(phones)))
    return found


@pytest.mark.parametrize("search", [PhoneBigramSearch(), PhoneBigramSearch(0.7, 0.5, 2.0, 1.5)])
def test_the_best_path_of_all(search: PhoneBigramSearch) -> None:
    for seed in range(4):
        given, lengths = scores(seed, 3, 9), [9, 7, 3]
        for row, (hypotheses, frames) in enumerate(zip(search(given, torch.tensor(lengths)), lengths, strict=True)):
            score, phones = best(given, row, frames, search)
            assert hypotheses[0].tokens == phones and hypotheses[0].score == pytest.approx(score)


def test_too_few_frames_have_no_phones() -> None:
    (hypotheses,) = PhoneBigramSearch()(scores(1, 1, 2), torch.tensor([2]))
    assert hypotheses[0].tokens == [] and hypotheses[0].finished_by == "dead_end"
    (hypotheses,) = PhoneBigramSearch()(scores(1, 1, 1), torch.tensor([1]))
    assert hypotheses[0].finished_by == "dead_end"
