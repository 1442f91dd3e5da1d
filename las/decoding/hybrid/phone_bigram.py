"""The search of a hybrid HMM for corpora of phones: the best path through the states of all phones and their bigram.

    score = sum_t [alpha (log p(s_t | x_t) - beta log p(s_t)) + log a(s_t-1, s_t)] + gamma log p(phones)

with three states for each phone, from left to right, that are kept or left with equal probability.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.config.build import require
from las.decoding.base import FrameSearch, Hypothesis
from las.hmm.topology import NUM_STATES
from las.nn.acoustic_model import FrameScores

STEP = math.log(0.5)
"""Score of keeping a state, and of leaving it."""
KEPT, MOVED = 0, 1


class PhoneBigramSearch(FrameSearch):
    """Viterbi search over phones, exact.

    Args:
        acoustic_scale: alpha, weight of the network's scores.
        prior_scale: beta, weight of the priors that they are divided by.
        lm_scale: gamma, weight of the bigram of phones.
        insertion: score added for every phone; above 0 for more phones.
    """

    nbest = 1

    def __init__(
        self, acoustic_scale: float = 1.0, prior_scale: float = 1.0, lm_scale: float = 1.0, insertion: float = 0.0
    ) -> None:
        for name, value in (("acoustic_scale", acoustic_scale), ("prior_scale", prior_scale), ("lm_scale", lm_scale)):
            require(name, value, 0.0)
        self.acoustic_scale, self.prior_scale, self.lm_scale = acoustic_scale, prior_scale, lm_scale
        self.insertion = insertion

    def __repr__(self) -> str:
        return (
            f"PhoneBigramSearch(acoustic_scale={self.acoustic_scale:g}, prior_scale={self.prior_scale:g}, "
            f"lm_scale={self.lm_scale:g}, insertion={self.insertion:g})"
        )

    @torch.no_grad()
    def __call__(self, decoder: FrameScores, num_states: Int[Tensor, " batch"]) -> list[list[Hypothesis]]:
        """Return the best phones of each utterance; utterances of fewer than three frames have none."""
        emissions = decoder.emissions(self.acoustic_scale, self.prior_scale).unflatten(-1, (-1, NUM_STATES))
        bigram = self.lm_scale * decoder.bigram + self.insertion
        score = torch.full_like(emissions[:, 0], -math.inf)
        score[:, :, 0] = bigram[0, 1:] + emissions[:, 0, :, 0]
        moves = [torch.zeros_like(score, dtype=torch.uint8)]
        sources = [torch.zeros_like(score[:, :, 0], dtype=torch.int16)]
        ends = torch.empty_like(score)
        for frame in range(emissions.shape[1]):
            if frame:
                best, moved, source = _advance(score, bigram[1:, 1:])
                score = best + emissions[:, frame]
                moves.append(moved)
                sources.append(source)
            ends = torch.where((num_states == frame + 1).view(-1, 1, 1), score, ends)
        finals = ends[:, :, -1] + STEP + bigram[1:, 0] - self.insertion
        all_moves, all_sources = torch.stack(moves).cpu(), torch.stack(sources).cpu()
        rows = zip(num_states.tolist(), *(each.tolist() for each in finals.max(dim=-1)), strict=True)
        return [
            [_hypothesis(all_moves[:frames, row], all_sources[:frames, row], phone, total)]
            for row, (frames, total, phone) in enumerate(rows)
        ]


def _advance(
    score: Float[Tensor, "batch phones states"], bigram: Float[Tensor, "phones phones"]
) -> tuple[Tensor, Tensor, Tensor]:
    """Best scores of the next frame without its emissions, and how each was reached.

    States are KEPT, or MOVED to from the state before; a first state from the phone of the last array, [batch, phones].
    """
    entered, sources = (score[:, :, -1].unsqueeze(2) + bigram).max(dim=1)
    arriving = STEP + torch.cat([entered.unsqueeze(2), score[:, :, :-1]], dim=2)
    both = torch.stack([score + STEP, arriving])
    scores, moves = both.max(dim=0)
    return scores, moves.to(torch.uint8), sources.to(torch.int16)


def _hypothesis(moves: Tensor, sources: Tensor, phone: int, score: float) -> Hypothesis:
    """Follow the moves, [frames, phones, states], back from the last state of a phone; the first is none."""
    if score == -math.inf:
        return Hypothesis([], score, score, "dead_end", {"hmm": score})
    state, phones = NUM_STATES - 1, [phone]
    for frame in range(len(moves) - 1, 0, -1):
        if moves[frame, phone, state] == KEPT:
            continue
        if state:
            state -= 1
        else:
            phone, state = int(sources[frame, phone]), NUM_STATES - 1
            phones.append(phone)
    tokens = [each + 1 for each in reversed(phones)]
    return Hypothesis(tokens, score, score / (len(tokens) + 1), "eos", {"hmm": score})
