"""A transducer (Graves 2012; Graves et al. 2013): features, a listener, a prediction network, and what joins the two.

    p(. | t, u) = softmax(output(tanh(W encoded_t + V predicted_u + b))),    predicted = LSTM(embedding(tokens))

It is searched symbol by symbol as a model with a speller is: the probability of the next symbol c after a prefix g is
psi(g c) / psi(g), where psi is the probability that the output begins with a prefix. A prefix keeps alpha(t), the
probability of all paths that have written it and stand at state t, so that

    psi(g c) = sum_t alpha(t) p(c | t, g),    p(g) = alpha(T - 1) p(blank | T - 1, g)

and the score of a hypothesis is log p(tokens | states), summed over all alignments. So all searches, scorers and
constraints serve it, and hypotheses of equal tokens never compete with each other.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.config.build import require
from las.nn import transducer
from las.nn.cells.base import State
from las.nn.factories import made
from las.nn.features import Features, Rows, Waveforms
from las.nn.kernels import choice
from las.nn.kernels.cpp.tensors import score_type
from las.nn.listener import Listener
from las.nn.model import PrefixDecoder, SpeechModel, Spelling, TrainingBatch
from las.nn.normalisation import Lengths, mask_of
from las.nn.prediction import PredictionNetwork
from las.nn.recomputation import AT_ONCE, recomputed
from las.nn.token_times import monotonic_times
from las.nn.transducer import BLANK, Arcs

LOWEST = -1e30
"""Stands for -inf, as differences of infinities are NaN."""


class JointNetwork(nn.Module):
    """Joins encoded states and outputs of the prediction network to logits of tokens and blank.

    Args:
        value_size: size of one encoded state.
        predicted_size: of an output of the prediction network.
        vocab_size: output symbols, the boundary (here the blank, id 0) included.
        size: of the hidden layer.
    """

    def __init__(self, value_size: int, predicted_size: int, vocab_size: int, *, size: int = 256) -> None:
        super().__init__()
        require("size", size, 1)
        self.encoded = nn.Linear(value_size, size)
        self.predicted = nn.Linear(predicted_size, size, bias=False)
        self.output = nn.Linear(size, vocab_size)

    def forward(self, encoded: Float[Tensor, "*#place size"], predicted: Float[Tensor, "*#place size"]) -> Tensor:
        """Logits of mapped states and outputs (`encoded`, `predicted`), [..., vocab]."""
        return self.output(torch.tanh(encoded + predicted))

    def arcs(
        self,
        encoded: Float[Tensor, "batch states size"],
        predicted: Float[Tensor, "batch tokens1 size"],
        targets: Int[Tensor, "batch tokens"],
    ) -> Arcs:
        """Return the log-probabilities of blank and of the true next token at every place of the lattice.

        Some states are computed at a time, and computed again in the backward pass, so that the log-probabilities of
        the whole vocabulary are never there for all.
        """
        following = nn.functional.pad(targets, (0, 1), value=BLANK)
        by_state = predicted[:, :, 0].numel() * self.output.out_features
        parts = ((part, predicted, following) for part in encoded.split(max(1, AT_ONCE // by_state), dim=1))
        return Arcs(*recomputed(self._chosen, parts, dim=1))

    def _chosen(self, encoded: Tensor, predicted: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self(encoded.unsqueeze(2), predicted.unsqueeze(1)).log_softmax(-1)
        index = following.unsqueeze(1).expand(log_probs.shape[:3]).unsqueeze(-1)
        return log_probs[..., BLANK], log_probs.gather(-1, index).squeeze(-1)


class TransducerOutput(NamedTuple):
    """Output for `TransducerLoss`."""

    arcs: Arcs
    num_states: Lengths


class TransducerValidationOutput(NamedTuple):
    """Output for `TransducerLoss`, and log-probabilities of each next token, the true ones fed, the end last."""

    arcs: Arcs
    num_states: Lengths
    logits: Float[Tensor, "batch steps vocab"]


class TransducerState(NamedTuple):
    """The state of a prefix: that of the prediction network, log alpha(t), and p(. | t, u) of all states."""

    layers: tuple[State, ...]
    alpha: Float[Tensor, "batch beam states"]
    probs: Float[Tensor, "batch beam states vocab"]


class TransducerDecoder(PrefixDecoder):
    """A transducer on one batch as a search uses it: probabilities of what follows a prefix.

    `encoded` are states that the joint network has mapped, [batch, states, size].
    """

    def __init__(
        self, prediction: PredictionNetwork, joint: JointNetwork, encoded: Tensor, num_states: Lengths
    ) -> None:
        self.prediction, self.joint, self.encoded = prediction, joint, encoded
        self.num_states = num_states.to(encoded.device, non_blocking=True)
        self.mask = mask_of(self.num_states, encoded.shape[1]).unsqueeze(1)

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "TransducerDecoder":
        """Return the decoder of a subset of the utterances, by their rows in the batch."""
        return TransducerDecoder(self.prediction, self.joint, self.encoded[rows], self.num_states[rows])

    def start(self) -> TransducerState:
        """Return the state before the boundary, one beam per utterance: all paths are about to enter state 0."""
        shape = (len(self.encoded), 1, self.encoded.shape[1])
        alpha = torch.full(shape, LOWEST, dtype=score_type(self.encoded.device), device=self.encoded.device)
        alpha[:, :, :1] = 0.0
        probs = self.encoded.new_ones(*shape, self.joint.output.out_features)
        return TransducerState(self.prediction.initial_state(len(self.encoded)), alpha, probs)

    def step(
        self, tokens: Int[Tensor, "batch beam"], state: TransducerState
    ) -> tuple[Float[Tensor, "batch beam vocab"], TransducerState]:
        """Log-probabilities of the next token and the new state."""
        # 1. Paths that have just written the token, by the state that they stand at, and what may follow there.
        index = tokens[..., None, None].expand(*state.alpha.shape, 1)
        written = state.probs.gather(-1, index).squeeze(-1).to(state.alpha.dtype)
        entering = state.alpha + written.clamp(min=torch.finfo(written.dtype).tiny).log()
        hidden, layers = self.prediction.step(tokens, state.layers)
        predicted = self.joint.predicted(hidden).unsqueeze(2)
        probs = self.joint(self.encoded.unsqueeze(1), predicted).float().softmax(-1)

        # 2. They go on by blanks: with S(t) the sum of blanks before t, alpha(t) = S(t) + log sum exp(entering - S).
        blanks = probs[..., BLANK].to(state.alpha.dtype).clamp(min=torch.finfo(probs.dtype).tiny).log()
        sums = blanks.cumsum(-1) - blanks
        alpha = (sums + torch.logcumsumexp(entering - sums, dim=-1)).masked_fill(~self.mask, LOWEST)

        # 3. The next token is written at any state, the end at the last one.
        prefix = entering.masked_fill(~self.mask, LOWEST).logsumexp(-1, keepdim=True)
        top = alpha.amax(-1, keepdim=True)
        psi = ((alpha - top).exp().unsqueeze(-2) @ probs.to(alpha.dtype)).squeeze(-2)
        last = (self.num_states - 1).clamp(min=0).view(-1, 1, 1)
        end = (alpha + blanks).gather(-1, last.expand(*alpha.shape[:2], 1)) - prefix
        scores = psi.clamp(min=torch.finfo(psi.dtype).tiny).log() + top - prefix
        scores = torch.cat([end, scores[..., 1:]], dim=-1)
        return scores.clamp(max=0.0), TransducerState(layers, alpha, probs)

    def arcs(self, targets: Int[Tensor, "batch tokens"]) -> Arcs:
        """Return the arcs of the lattices of these tokens."""
        return self.joint.arcs(self.encoded, self.joint.predicted(self.prediction(targets)), targets)


class TransducerModel(SpeechModel):
    """Features, a listener, a prediction network and a joint network, trained with `las.TransducerLoss`.

    Args:
        sample_rate: of the waveforms, in Hz.
        vocab_size: output symbols, the sentence boundary (here the blank, id 0) included.
        features: makes `Features` from sample_rate.
        listener: makes a `Listener` from the size of a feature row.
        prediction: makes a `PredictionNetwork` from vocab_size.
        joint: makes a `JointNetwork` from (size of an encoded state, of a predicted one, vocab_size).

    >>> import functools, las, torch
    >>> model = las.TransducerModel(
    ...     16000,
    ...     30,
    ...     features=functools.partial(las.LogMel, num_mels=40),
    ...     listener=functools.partial(las.Listener, cell=las.LNJoinedLSTMCell, hidden_size=16),
    ...     prediction=functools.partial(las.PredictionNetwork, cell=las.PlainLSTMCell, hidden_size=16),
    ...     joint=functools.partial(las.JointNetwork, size=16),
    ... )
    >>> decoder, num_states = model.search_inputs(torch.randn(2, 16000), torch.tensor([16000, 9000]))
    >>> las.GreedySearch(max_length=3)(decoder, num_states)[0][0].score <= 0
    True
    """

    one_graph = True
    ctc = None

    def __init__(
        self,
        sample_rate: int,
        vocab_size: int,
        *,
        features: Callable[[int], Features],
        listener: Callable[[int], Listener],
        prediction: Callable[[int], PredictionNetwork],
        joint: Callable[[int, int, int], JointNetwork],
    ) -> None:
        super().__init__()
        self.features = made("features", features, sample_rate)
        self.listener = made("listener", listener, self.features.size)
        self.prediction = made("prediction", prediction, vocab_size)
        self.joint = made("joint", joint, self.listener.output_size, self.prediction.output_size, vocab_size)

    def explain(self) -> str:
        kernel = choice.explain(self.prediction.cells[0], self.prediction.embedding.weight)
        return f"{self.listener.explain()}; prediction network: {kernel}"

    def _decoder(self, encoded: Tensor, num_states: Lengths) -> TransducerDecoder:
        return TransducerDecoder(self.prediction, self.joint, self.joint.encoded(encoded), num_states)

    def forward_features(
        self, features: Rows, num_frames: Lengths, targets: Int[Tensor, "batch tokens"]
    ) -> TransducerOutput:
        encoded, num_states = self.listener(features, num_frames)
        return TransducerOutput(self._decoder(encoded, num_states).arcs(targets), num_states)

    def output_and_search_inputs(
        self, batch: TrainingBatch
    ) -> tuple[TransducerValidationOutput, TransducerDecoder, Lengths]:
        encoded, num_states = self.listener(*self.features(batch.waveforms, batch.num_samples))
        decoder = self._decoder(encoded, num_states)
        output = TransducerValidationOutput(decoder.arcs(batch.targets), num_states, decoder.forced(batch.targets))
        return output, decoder, num_states

    def search_inputs(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[TransducerDecoder, Lengths]:
        """Return a decoder over this batch for search, and the number of states of each utterance."""
        encoded, num_states = self.encode(waveforms, num_samples)
        return self._decoder(encoded, num_states), num_states.to(encoded.device, non_blocking=True)

    def spell(self, inputs: TransducerDecoder, targets: Int[Tensor, "batch tokens"], num_tokens: list[int]) -> Spelling:
        """Teacher forcing; the weight of a token at a state is the probability that it is written there."""
        taken = transducer.occupancies(inputs.arcs(targets), inputs.num_states, torch.tensor(num_tokens))
        return Spelling(inputs.forced(targets), taken.token.transpose(1, 2))

    def token_times(self, weights: Float[Tensor, "tokens1 states"], duration_s: float) -> list[tuple[float, float]]:
        """Estimate the times of tokens as those of `ListenAttendSpell`, from where they are written."""
        return monotonic_times(weights, self.state_ms / 1000, duration_s)
