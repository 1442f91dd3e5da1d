"""Ensembles: several models of the same symbols as one, the mean of what they expect next at every step of a search.

    linear       p(y_i | ...) = 1/N sum_n p_n(y_i | ...)
    log_linear   p(y_i | ...) proportional to (prod_n p_n(y_i | ...))^(1/N)

The models may be of any kind that is searched token by token, with different features, listeners and attentions.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.nn.acoustic_model import FrameModel
from las.nn.ctc import CTC
from las.nn.features import Waveforms
from las.nn.kernels.cpp.tensors import score_type
from las.nn.kernels.graphs.parts import Replayable
from las.nn.model import Decoder, FeatureAugmentation, SpeechModel, Spelling, TrainingBatch
from las.nn.normalisation import Lengths
from las.runtime.errors import ConfigError, require_known

MEANS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda log_probs: log_probs.logsumexp(0) - math.log(len(log_probs)),
    "log_linear": lambda log_probs: log_probs.mean(0).log_softmax(-1),
}
"""Log-probabilities [models, ..., vocab] to those of their mean."""


class EnsembleDecoder(Replayable):
    """Decoders of the same utterances as one; a state is the tuple of theirs."""

    def __init__(self, members: Sequence[Any], mean: str) -> None:
        self.members, self.mean = list(members), mean
        self.sos, self.eos = members[0].sos, members[0].eos

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "EnsembleDecoder":
        """Return the decoder of a subset of the utterances, by their rows in the batch."""
        return type(self)([member.select_utterances(rows) for member in self.members], self.mean)

    def start(self) -> tuple[Any, ...]:
        """Return the state before the first token, one beam per utterance."""
        return tuple(member.start() for member in self.members)

    def step(
        self, tokens: Int[Tensor, "batch beam"], state: tuple[Any, ...]
    ) -> tuple[Float[Tensor, "batch beam vocab"], tuple[Any, ...]]:
        """Log-probabilities of the next token and the new state."""
        steps = [member.step(tokens, part) for member, part in zip(self.members, state, strict=True)]
        log_probs, states = zip(*steps, strict=True)
        return self.averaged(log_probs), states

    def averaged(self, log_probs: Sequence[Tensor]) -> Tensor:
        """Return the log-probabilities of the mean of distributions over the last dimension."""
        dtype = score_type(log_probs[0].device)
        return MEANS[self.mean](torch.stack([each.to(dtype) for each in log_probs])).clamp(max=0.0)

    def ctc_log_probs(self) -> Float[Tensor, "batch states vocab"]:
        """CTC log-probabilities of the mean at every state. Raises ConfigError for states of different lengths."""
        found = [member.ctc_log_probs() for member in self.members]
        if len({each.shape for each in found}) > 1:
            raise ConfigError(
                "search.ctc: the models of this ensemble have encoded states of different lengths, whose CTC cannot be "
                "averaged: leave it out (search=beam)"
            )
        return self.averaged(found)


class SpellerEnsembleDecoder(EnsembleDecoder):
    """An ensemble of spellers. Its attention is that of the first."""

    def padded(self) -> "SpellerEnsembleDecoder":
        """Return the decoder with states that are never attended to, up to one of few numbers."""
        return SpellerEnsembleDecoder([member.padded() for member in self.members], self.mean)

    def weights(self, state: tuple[Any, ...]) -> Float[Tensor, "batch beam states"]:
        """Attention weights of the first member that were computed for the next token."""
        return self.members[0].weights(state[0])


class Ensemble(SpeechModel):
    """Trained models as one to search with. Times of tokens and lengths of utterances are those of the first.

    Args:
        models: of the same symbols, for audio of the same rate.
        mean: `linear` or `log_linear`.

    Raises ArgumentError for another mean, ConfigError for a model of states of phones.
    """

    ctc: CTC | None

    def __init__(self, models: Sequence[SpeechModel], mean: str = "linear") -> None:
        super().__init__()
        require_known("ensemble_mean", mean, MEANS)
        for model in models:
            if isinstance(model, FrameModel):
                raise ConfigError(f"ensemble: a {type(model).__name__} predicts frames, and an ensemble is of tokens")
        self.models, self.mean = nn.ModuleList(models), mean
        self.features, self.listener = models[0].features, models[0].listener
        self.ctc = models[0].ctc if all(model.ctc is not None for model in models) else None

    def explain(self) -> str:
        return "; ".join(model.explain() for model in self._models)

    @property
    def _models(self) -> list[Any]:
        return [*self.models]

    def forward_batch(self, batch: TrainingBatch, augment: FeatureAugmentation) -> Any:
        """Raise ConfigError: an ensemble is not trained."""
        raise ConfigError("an ensemble is not trained: train its models one by one")

    def encode_piece(self, samples: Waveforms, state: Any = None, is_last: bool = False) -> Any:
        """Raise ConfigError: a stream is of one model."""
        raise ConfigError("ensemble: words while audio comes in are those of one model: leave it out, or stream=false")

    def search_inputs(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[EnsembleDecoder, Lengths]:
        """Return a decoder over this batch for search, and the number of encoded states of the first model."""
        for model in self._models:
            model.operands = self.operands
        decoders, num_states = zip(
            *(model.search_inputs(waveforms, num_samples) for model in self._models), strict=True
        )
        spellers = all(isinstance(decoder, Decoder) for decoder in decoders)
        return (SpellerEnsembleDecoder if spellers else EnsembleDecoder)(decoders, self.mean), num_states[0]

    def spell(self, inputs: EnsembleDecoder, targets: Int[Tensor, "batch tokens"], num_tokens: list[int]) -> Spelling:
        """Log-probabilities of the mean when tokens are fed, and where the first model finds them."""
        pairs = zip(self._models, inputs.members, strict=True)
        spellings = [model.spell(member, targets, num_tokens) for model, member in pairs]
        log_probs = [spelling.logits.log_softmax(-1) for spelling in spellings]
        return Spelling(inputs.averaged(log_probs), spellings[0].weights)

    def token_times(self, weights: Float[Tensor, "tokens1 states"], duration_s: float) -> list[tuple[float, float]]:
        """Start and end of each token in seconds, by the first model."""
        found: list[tuple[float, float]] = self._models[0].token_times(weights, duration_s)
        return found
