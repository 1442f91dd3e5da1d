"""A speech model with CTC alone (Graves et al. 2006): features, a listener, and probabilities of tokens at every state.

It is searched symbol by symbol as a model with a speller is: the probability of the next symbol c after a prefix g is
psi(g c) / psi(g), where psi (`las.nn.ctc_prefix`) is the probability that the output begins with a prefix. So all
searches, scorers and constraints serve both kinds; a beam search that ranks by the score itself is the prefix search of
Graves (2012, section 7.5.2), breadth first.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.nn.ctc import CTC, CTCOutput, IntermediateCTC, align
from las.nn.ctc_prefix import CTCPrefixes, PrefixState, prefixes
from las.nn.factories import made
from las.nn.features import Features, Rows, Waveforms
from las.nn.listener import Levels, Listener
from las.nn.model import PrefixDecoder, SpeechModel, Spelling, TrainingBatch
from las.nn.normalisation import Lengths
from las.runtime.errors import ArgumentError


class CTCModelOutput(NamedTuple):
    """Output for `CTCLoss`, and for `IntermediateCTCLoss`."""

    ctc_output: CTCOutput
    intermediate: CTCOutput | None


class CTCValidationOutput(NamedTuple):
    """Output for losses, and log-probabilities of each next token, the true ones fed, the end last."""

    ctc_output: CTCOutput
    intermediate: CTCOutput | None
    logits: Float[Tensor, "batch steps vocab"]


class CTCDecoder(PrefixDecoder):
    """The output of CTC on one batch as a search uses it: probabilities of what follows a prefix."""

    def __init__(self, output: CTCOutput, scores: CTCPrefixes | None = None) -> None:
        self.output = output
        self.prefixes = prefixes(*output) if scores is None else scores

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "CTCDecoder":
        """Return the decoder of a subset of the utterances, by their rows in the batch."""
        log_probs, num_states = self.output
        selected = CTCOutput(log_probs[rows], num_states[rows.to(num_states.device)])
        return CTCDecoder(selected, self.prefixes.select_utterances(rows))

    def start(self) -> PrefixState:
        """Return the state before the first token, one beam per utterance."""
        return self.prefixes.start()

    def step(
        self, tokens: Int[Tensor, "batch beam"], state: PrefixState
    ) -> tuple[Float[Tensor, "batch beam vocab"], PrefixState]:
        """Log-probabilities of the next token and the new state; the boundary, fed first, leaves the state as it is."""
        state = self.prefixes.follow(state, tokens)
        return self.prefixes.score(state).clamp(max=0.0), state

    def ctc_log_probs(self) -> Float[Tensor, "batch states vocab"]:
        """CTC log-probabilities of the encoded states."""
        return self.output.log_probs


class CTCModel(SpeechModel):
    """Features, a listener and a linear layer to tokens and blank, trained with `las.CTCLoss`.

    Args:
        sample_rate: of the waveforms, in Hz.
        vocab_size: output symbols, the sentence boundary (here the blank, id 0) included.
        features: makes `Features` from sample_rate.
        listener: makes a `Listener` from the size of a feature row.
        ctc: makes a `CTC` from (size of an encoded state, vocab_size).
        intermediate_ctc: makes an `IntermediateCTC` from (sizes of rows above the layers, vocab_size); None without it.
        speller: must be None: options of models with a speller become such of CTC alone by `model.speller=null`.

    >>> import functools, las, torch
    >>> model = las.CTCModel(
    ...     16000,
    ...     30,
    ...     features=functools.partial(las.LogMel, num_mels=40),
    ...     listener=functools.partial(las.Listener, cell=las.LNJoinedLSTMCell, hidden_size=16),
    ...     ctc=las.CTC,
    ... )
    >>> log_probs, num_states = model(torch.randn(2, 16000), torch.tensor([16000, 9000]))
    >>> log_probs.shape, num_states
    (torch.Size([2, 25, 30]), tensor([25, 14]))
    """

    one_graph = True
    ctc: CTC

    def __init__(
        self,
        sample_rate: int,
        vocab_size: int,
        *,
        features: Callable[[int], Features],
        listener: Callable[[int], Listener],
        ctc: Callable[[int, int], CTC],
        intermediate_ctc: Callable[[list[int], int], IntermediateCTC] | None = None,
        speller: object = None,
    ) -> None:
        super().__init__()
        if speller is not None:
            raise ArgumentError("speller: a model of CTC alone has none: model.speller=null")
        self.features = made("features", features, sample_rate)
        self.listener = made("listener", listener, self.features.size)
        self.ctc = ctc(self.listener.output_size, vocab_size)
        self.intermediate_ctc = None if intermediate_ctc is None else intermediate_ctc(self.listener.sizes, vocab_size)

    def explain(self) -> str:
        return self.listener.explain()

    def forward(self, waveforms: Waveforms, num_samples: Lengths) -> CTCOutput:
        """Log-probabilities of tokens and blank at every encoded state, and the numbers of states."""
        return self._heard(*self.features(waveforms, num_samples))[0]

    def forward_features(
        self, features: Rows, num_frames: Lengths, targets: Int[Tensor, "batch tokens"]
    ) -> CTCModelOutput:
        return CTCModelOutput(*self._heard(features, num_frames))

    def _heard(self, features: Rows, num_frames: Lengths) -> tuple[CTCOutput, CTCOutput | None]:
        """Return the output of CTC, and of that on a lower layer if there is one."""
        levels: Levels | None = None if self.intermediate_ctc is None else []
        encoded, num_states = self.listener(features, num_frames, levels)
        intermediate = None if self.intermediate_ctc is None else self.intermediate_ctc(levels)
        return CTCOutput(self.ctc(encoded), num_states), intermediate

    def output_and_search_inputs(self, batch: TrainingBatch) -> tuple[CTCValidationOutput, CTCDecoder, Lengths]:
        output, intermediate = self._heard(*self.features(batch.waveforms, batch.num_samples))
        decoder = CTCDecoder(output)
        return CTCValidationOutput(output, intermediate, decoder.forced(batch.targets)), decoder, output.num_states

    def search_inputs(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[CTCDecoder, Lengths]:
        """Return a decoder over this batch for search, and the number of states of each utterance."""
        encoded, num_states = self.encode(waveforms, num_samples)
        output = CTCOutput(self.ctc(encoded), num_states)
        return CTCDecoder(output), num_states.to(encoded.device, non_blocking=True)

    def spell(self, inputs: CTCDecoder, targets: Int[Tensor, "batch tokens"], num_tokens: list[int]) -> Spelling:
        """Teacher forcing; the weights of a token are 1 at the states that it has on the best path."""
        output, num_states = inputs.output
        weights = torch.zeros(len(targets), targets.shape[1] + 1, output.shape[1])
        for row, (count, states) in enumerate(zip(num_tokens, num_states.tolist(), strict=True)):
            try:
                spans = align(output[row, :states], targets[row, :count].tolist())
            except ValueError:  # a constraint of the search asked for more tokens than the states can write
                borders = [number * states // count for number in range(count + 1)]
                spans = [(begin, max(begin + 1, end)) for begin, end in itertools.pairwise(borders)]
            for token, (begin, end) in enumerate(spans):
                weights[row, token, begin:end] = 1.0
        return Spelling(inputs.forced(targets), weights)

    def token_times(self, weights: Float[Tensor, "tokens1 states"], duration_s: float) -> list[tuple[float, float]]:
        """Return times of the states on the best path: a forced alignment."""
        state_s, times = self.state_ms / 1000, []
        for row in weights[:-1]:
            states = row.nonzero().squeeze(1).tolist()
            times.append((min(states[0] * state_s, duration_s), min((states[-1] + 1) * state_s, duration_s)))
        return times
