"""Listen, Attend and Spell from waveforms to the probabilities of tokens (Chan et al. 2016)."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from las.nn.attention.base import AttentionMemory
from las.nn.ctc import CTC, CTCOutput, no_ctc_error
from las.nn.features import Features, Waveforms
from las.nn.listener import Listener
from las.nn.masking import Lengths
from las.nn.speller import Speller, SpellerOutput, SpellerState
from las.nn.trainable import FeatureAugmentation, SpeechModel, TrainingBatch

Change = Callable[[Tensor, Tensor], Tensor]
"""Maps features [batch, frames, size] and numbers of frames [batch] to changed features, e.g. SpecAugment."""


class ModelOutput(NamedTuple):
    """Result of a teacher-forced pass: logits and attention weights, and the output of CTC if there is one."""

    logits: Float[Tensor, "batch steps vocab"]
    weights: Float[Tensor, "batch steps states"]
    ctc_output: CTCOutput | None


class Decoder:
    """The model on one batch of utterances as search uses it: `start`, then any number of `step`s."""

    sos = eos = Speller.boundary

    def __init__(self, speller: Speller, memory: AttentionMemory, ctc: CTC | None = None) -> None:
        self.speller = speller
        self.memory = memory
        self.ctc = ctc
        self.step_fn = speller.select_step_fn(memory)

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "Decoder":
        """The decoder of a subset of the utterances, by their rows in the batch."""
        return Decoder(self.speller, AttentionMemory(*(part[rows] for part in self.memory)), self.ctc)

    def start(self) -> SpellerState:
        """The state before the first token, one beam per utterance."""
        return self.speller.start(self.memory)

    def step(
        self, tokens: Int[Tensor, "batch beam"], state: SpellerState
    ) -> tuple[Float[Tensor, "batch beam vocab"], SpellerState]:
        """Log-probabilities of the next token and the new state."""
        return self.speller.step(tokens, self.memory, state, self.step_fn)

    def weights(self, state: SpellerState) -> Float[Tensor, "batch beam states"]:
        """Attention weights that were computed for the next token."""
        return state.weights

    def ctc_log_probs(self) -> Float[Tensor, "batch states vocab"]:
        """CTC log-probabilities of the encoded states. Raises ConfigError for a model without CTC."""
        if self.ctc is None:
            raise no_ctc_error()
        return self.ctc(self.memory.values)


class ListenAttendSpell(SpeechModel):
    """Features, listener and speller; each part is made by a factory.

    Args:
        sample_rate: of the waveforms, in Hz.
        vocab_size: output symbols, the sentence boundary included.
        features: makes `Features` from sample_rate.
        listener: makes a `Listener` from the size of a feature row.
        speller: makes a `Speller` from (vocab_size, size of an encoded state).
        ctc: makes a `CTC` from (size of an encoded state, vocab_size), for training with both losses; None without it.

    >>> import functools, las, torch
    >>> model = las.ListenAttendSpell(
    ...     16000,
    ...     30,
    ...     features=functools.partial(las.LogMel, num_mels=40),
    ...     listener=functools.partial(las.Listener, cell=las.LNGlobalLSTMCell, hidden_size=16),
    ...     speller=functools.partial(las.Speller, cell=las.PlainLSTMCell, attention=las.AdditiveAttention),
    ... )
    >>> waveforms, num_samples = torch.randn(2, 16000), torch.tensor([16000, 9000])
    >>> targets, num_tokens = torch.tensor([[4, 7, 2], [5, 0, 0]]), torch.tensor([3, 1])
    >>> output = model(waveforms, num_samples, targets)
    >>> output.logits.shape, model.state_ms
    (torch.Size([2, 4, 30]), 40.0)
    >>> las.LabelSmoothedCrossEntropy(0.1)(output.logits, targets, num_tokens).loss.backward()
    """

    def __init__(
        self,
        sample_rate: int,
        vocab_size: int,
        *,
        features: Callable[[int], Features],
        listener: Callable[[int], Listener],
        speller: Callable[[int, int], Speller],
        ctc: Callable[[int, int], CTC] | None = None,
    ) -> None:
        super().__init__()
        self.features = features(sample_rate)
        self.listener = listener(self.features.size)
        self.speller = speller(vocab_size, self.listener.output_size)
        self.ctc = None if ctc is None else ctc(self.listener.output_size, vocab_size)

    @property
    def state_ms(self) -> float:
        shift = self.features.frame_shift_ms
        for factor in self.listener.reductions:
            shift *= factor
        return shift

    def explain(self) -> str:
        """A line for the log of a run: the kernels of listener and speller on the model's device, and why."""
        return f"{self.listener.explain()}; {self.speller.explain(next(self.parameters()))}"

    def num_states(self, num_samples: Lengths) -> Lengths:
        return self.listener.num_states(self.features.num_frames(num_samples))

    def listen(
        self, waveforms: Waveforms, num_samples: Lengths, change: Change | None = None
    ) -> tuple[AttentionMemory, Lengths]:
        """Waveforms to the attention memory of the speller, and the number of states of each utterance.

        `change` is applied to the features, e.g. SpecAugment while training.
        """
        features, num_frames = self.features(waveforms, num_samples)
        if change is not None:
            features = change(features, num_frames)
        encoded, num_states = self.listener(features, num_frames)
        return self.speller.attention.prepare(encoded, num_states), num_states

    def forward(
        self,
        waveforms: Waveforms,
        num_samples: Lengths,
        targets: Int[Tensor, "batch tokens"],
        change: Change | None = None,
    ) -> ModelOutput:
        """Teacher forcing: logits [batch, tokens + 1, vocab] and attention weights [batch, tokens + 1, states]."""
        return self._spell(*self.listen(waveforms, num_samples, change), targets)

    def _spell(self, memory: AttentionMemory, num_states: Lengths, targets: Int[Tensor, "batch tokens"]) -> ModelOutput:
        output: SpellerOutput = self.speller(memory, targets)
        ctc_output = None if self.ctc is None else CTCOutput(self.ctc(memory.values), num_states)
        return ModelOutput(output.logits, output.weights, ctc_output)

    def num_targets(self, batch: TrainingBatch) -> int:
        """Count the tokens of a batch, the ends of its sentences included."""
        return int(batch.num_tokens.sum()) + len(batch.num_tokens)

    def forward_batch(self, batch: TrainingBatch, augment: FeatureAugmentation) -> ModelOutput:
        """Teacher forcing on a batch whose features are changed by `augment`, e.g. SpecAugment; logits in fp32."""
        change = functools.partial(augment, keys=batch.keys, orders=self.features.orders)
        output: ModelOutput = self(batch.waveforms, batch.num_samples, batch.targets, change)
        return output._replace(logits=output.logits.float())

    def output_and_search_inputs(self, batch: TrainingBatch) -> tuple[ModelOutput, Decoder, Lengths]:
        memory, num_states = self.listen(batch.waveforms, batch.num_samples)
        output = self._spell(memory, num_states, batch.targets)
        return output, Decoder(self.speller, memory, self.ctc), num_states

    def search_inputs(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[Decoder, Lengths]:
        """A decoder over this batch for search, and the number of states of each utterance."""
        encoded, num_states = self.encode(waveforms, num_samples)
        memory = self.speller.attention.prepare(encoded, num_states)
        return Decoder(self.speller, memory, self.ctc), num_states.to(memory.mask.device, non_blocking=True)
