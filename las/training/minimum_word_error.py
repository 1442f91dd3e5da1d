"""Minimum word error rate training (Prabhavalkar et al. 2018, equations 4, 7 and 9), continued from a trained model.

A beam search with the model itself gives the n best hypotheses y of an utterance x. With their numbers of errors W(y),
the mean W' of these, and the probabilities of the list made to sum to one, an update minimises

    sum_y P'(y | x) (W(y) - W') + weight * loss of likelihood,    P'(y | x) = P(y | x) / sum_y' P(y' | x)

The mean is a constant, which changes no gradient: a loss below 0 says that the probable hypotheses are better than the
list as a whole.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from las.config.build import require
from las.decoding.base import Hypothesis
from las.decoding.search import BeamSearch
from las.nn.losses import LabelSmoothedCrossEntropy, TrainingLoss, TranscribedCorpus
from las.nn.model import SpeechModel, Trainable, TrainingBatch
from las.nn.normalisation import Lengths, mask_of
from las.runtime.errors import ConfigError, require_known

UNITS = ("scored", "character", "token")


@runtime_checkable
class HasSearchInputs(Protocol):
    """Output of a model for a batch with what its searches take: a decoder with gradients, and numbers of states."""

    @property
    def search_inputs(self) -> tuple[Any, Lengths]: ...


class MinimumWordErrorLoss(TrainingLoss):
    """The expected number of errors over the n-best of a beam search, mixed with a loss of likelihood.

    The search runs without gradients. Its hypotheses are then fed to the model by `SpeechModel.spell`, which gives
    their probabilities with gradients; both without dropout and scheduled sampling of the speller, so that the
    probabilities are those of the search. The listener keeps its dropout.

    Args:
        nbest: the number of hypotheses, and the size of the beam.
        likelihood: the loss that is added; cross-entropy by default, `JointCTCLoss` for a model with CTC.
        likelihood_weight: its weight.
        unit: errors are counted in what the corpus scores (`scored`: words, or classes of phones), in the `character`
            of the scored text, or in the `token` of the model.
        reduction: an update minimises the `mean` per target token of its batch or the `sum` over it.
    """

    def __init__(
        self,
        nbest: int = 4,
        likelihood: TrainingLoss | None = None,
        likelihood_weight: float = 0.01,
        unit: str = "scored",
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        require("nbest", nbest, 2)
        require("likelihood_weight", likelihood_weight, 0.0)
        require_known("unit", unit, UNITS)
        self.search = BeamSearch(nbest, length_normalisation=0.0, nbest=nbest)
        self.likelihood = LabelSmoothedCrossEntropy() if likelihood is None else likelihood
        self.likelihood_weight, self.unit = likelihood_weight, unit
        self.corpus: TranscribedCorpus | None = None

    def bind(self, corpus: TranscribedCorpus) -> None:
        self.corpus = corpus
        self.likelihood.bind(corpus)

    def objective(self, model: Trainable, output: Any, batch: TrainingBatch) -> Float[Tensor, ""]:
        """Return the expected errors of a batch less those of its lists, and the weighted loss of likelihood, summed.

        Raises ConfigError for a model whose output has no `search_inputs`.
        """
        if not isinstance(output, HasSearchInputs):
            raise ConfigError(f"loss=mwer: a {type(model).__name__} has no speller, whose hypotheses this loss is of")
        decoder, num_states = output.search_inputs
        with evaluating(model):
            with torch.no_grad():  # a decoder that is made here has the fast step of a search
                every = torch.arange(len(num_states)).to(model.device, non_blocking=True)
                without = decoder.select_utterances(every)
                nbest_lists = self.search(without, num_states.to(model.device, non_blocking=True))
            log_probs = score(cast(SpeechModel, model), decoder, nbest_lists)
        texts = zip(batch.targets.tolist(), batch.num_tokens.tolist(), nbest_lists, strict=True)
        errors = [self._errors(row[:count], nbest) for row, count, nbest in texts]
        counts = [len(nbest) for nbest in nbest_lists]
        by_list = pad_sequence(log_probs.split(counts), batch_first=True, padding_value=-math.inf)
        expected = expected_errors(by_list, pad_sequence(errors, batch_first=True).to(by_list, non_blocking=True))
        return expected + self.likelihood_weight * self.likelihood.objective(model, output, batch)

    def _errors(self, reference: list[int], nbest: Sequence[Hypothesis]) -> Int[Tensor, " nbest"]:
        spoken = self._units(reference)
        return torch.tensor([edit_distance(spoken, self._units(each.tokens)) for each in nbest])

    def _units(self, tokens: list[int]) -> Sequence[Any]:
        """Return what errors are counted in. Raises ConfigError where `bind` was not called."""
        if self.unit == "token":
            return tokens
        if self.corpus is None:
            raise ConfigError(f"unit={self.unit}: this loss must be told the corpus: call loss.bind(corpus)")
        scored = self.corpus.normalise(self.corpus.tokens.decode(tokens))
        return " ".join(scored) if self.unit == "character" else scored


def expected_errors(log_probs: Float[Tensor, "batch nbest"], errors: Float[Tensor, "batch nbest"]) -> Float[Tensor, ""]:
    """Sum the expected numbers of errors of lists, the probabilities of each made to sum to one, less their means.

    Hypotheses that a list does not have are impossible, -inf, and have no errors.
    """
    means = errors.sum(1, keepdim=True) / (log_probs > -math.inf).sum(1, keepdim=True)
    return (log_probs.softmax(1) * (errors - means)).sum()


def score(model: SpeechModel, decoder: Any, nbest_lists: Sequence[Sequence[Hypothesis]]) -> Float[Tensor, " total"]:
    """Return the log-probabilities of all hypotheses and their ends, utterance after utterance, with gradients."""
    rows = [row for row, nbest in enumerate(nbest_lists) for _ in nbest]
    texts = [torch.tensor(each.tokens, dtype=torch.long) for nbest in nbest_lists for each in nbest]
    lengths, targets = (
        [len(text) for text in texts],
        pad_sequence(texts, batch_first=True).to(model.device, non_blocking=True),
    )
    repeated = decoder.select_utterances(torch.tensor(rows).to(model.device, non_blocking=True))
    logits = model.spell(repeated, targets, lengths).logits
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    ends = torch.nn.functional.pad(targets, (0, 1), value=decoder.eos)
    by_token = logits.log_softmax(-1).gather(-1, ends.unsqueeze(-1)).squeeze(-1)
    counted = mask_of(torch.tensor(lengths) + 1, by_token.shape[1], by_token.device)
    return by_token.masked_fill(~counted, 0.0).sum(1)


@contextmanager
def evaluating(model: Trainable) -> Iterator[None]:
    """Switch off dropout and whatever else belongs to training alone."""
    was_training = model.training
    try:
        model.eval()
        yield
    finally:
        model.train(was_training)


def edit_distance(reference: Sequence[Any], hypothesis: Sequence[Any]) -> int:
    """Return the least number of substitutions, deletions and insertions (Levenshtein 1966)."""
    row = [*range(len(hypothesis) + 1)]
    for spoken in reference:
        diagonal, row[0] = row[0], row[0] + 1
        for place, written in enumerate(hypothesis, start=1):
            replaced = diagonal + (spoken != written)
            diagonal = row[place]
            row[place] = min(replaced, diagonal + 1, row[place - 1] + 1)
    return row[-1]
