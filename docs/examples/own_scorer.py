"""A scorer of your own in a beam search: every symbol that repeats the one before costs its weight."""

import torch

import las
from las.decoding.scorers.base import BatchScorer, Scorer, SearchStep


class RepetitionPenalty(BatchScorer):
    """Scores of -1; the state is the symbol before, [batch, beam], -1 in the beginning (of one utterance)."""

    def start(self) -> torch.Tensor:
        return torch.full((1, 1), -1)

    def score(self, state: torch.Tensor, step: SearchStep) -> tuple[torch.Tensor, torch.Tensor]:
        return -(torch.arange(step.log_probs.shape[-1]) == state.unsqueeze(-1)).float(), state

    def advance(self, state: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return tokens


class Repetition(Scorer):
    def on(self, decoder: object, num_states: torch.Tensor) -> BatchScorer:
        return RepetitionPenalty()


class Decoder:
    sos = eos = 0

    def start(self) -> torch.Tensor:
        return torch.zeros(1, 1)

    def step(self, tokens: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.log_softmax(torch.tensor([0.0, 1.0, 2.0]), -1).expand(*tokens.shape, 3), state


best = [las.BeamSearch(repetition=Repetition(weight))(Decoder(), torch.tensor([4]))[0][0] for weight in (0.0, 5.0)]
print(f"own scorer: {best[0].tokens} without a penalty, {best[1].tokens} with one")
