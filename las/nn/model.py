"""Models: what the trainer asks of any model and of a speech model; Listen, Attend and Spell (Chan et al. 2016)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from las.nn.attention.base import AttentionMemory
from las.nn.ctc import CTC, CTCOutput, IntermediateCTC, no_ctc_error
from las.nn.factories import made
from las.nn.features import Features, Rows, Waveforms
from las.nn.kernels.cpp.speller import CppSearchStep, Hypotheses
from las.nn.kernels.graphs.parts import Replayable
from las.nn.kernels.graphs.replayed import bucket
from las.nn.listener import Levels, Listener
from las.nn.normalisation import Lengths
from las.nn.speller import Speller, SpellerOutput, SpellerState
from las.nn.token_times import monotonic_times
from las.runtime.errors import ConfigError
from las.runtime.precision import products_of


@runtime_checkable
class TrainingBatch(Protocol):
    """A batch of utterances with targets, as `las.data.loader.Batch` is one."""

    @property
    def waveforms(self) -> Waveforms: ...
    @property
    def num_samples(self) -> Lengths: ...
    @property
    def targets(self) -> Int[Tensor, "batch tokens"]: ...
    @property
    def num_tokens(self) -> Lengths: ...
    @property
    def keys(self) -> tuple[int, ...]: ...


@runtime_checkable
class FeatureAugmentation(Protocol):
    """A change of features while training, as `las.data.augmentation.augmentation.Augmentation.features` is one.

    `keys` are the seeds of the utterances' draws, `orders` is the number of blocks of equal size in a row (`Features`).
    """

    def __call__(self, features: Rows, num_frames: Lengths, keys: tuple[int, ...], orders: int) -> Rows: ...


class Trainable(nn.Module, ABC):
    """Base class of models that the trainer trains.

    A model and its loss agree on what the model gives: `TrainingLoss.objective` takes what `forward_batch` returns.
    """

    features: Features | None
    """Computes features from waveforms; None for a model that reads no audio."""
    one_graph = False
    """True where a class, which says so itself, has a `forward_features` that starts the same kernels for all batches
    of the same shapes. With such a loss an update is one CUDA graph (`las.training.update_graphs`)."""

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device

    @abstractmethod
    def explain(self) -> str:
        """Return a line for the log of a run: the kernels of the recurrences on the model's device, and why."""

    def num_targets(self, batch: TrainingBatch) -> int:
        """Count the terms of the loss of a batch: a loss with reduction `mean` is divided by it.

        They are tokens and the ends of sentences unless a model says otherwise.
        """
        return int(batch.num_tokens.sum()) + len(batch.num_tokens)

    @abstractmethod
    def forward_batch(self, batch: TrainingBatch, augment: FeatureAugmentation) -> Any:
        """Compute what the loss of a batch is taken of, its features changed by `augment`."""


class Spelling(NamedTuple):
    """Log-probabilities (or logits) of each next token when tokens are fed, the end last, and where each token is."""

    logits: Float[Tensor, "batch steps vocab"]
    weights: Float[Tensor, "batch steps states"]


class PrefixDecoder(Replayable):
    """Base class of decoders whose scores are sums over alignments; a subclass defines `start` and `step`."""

    sos = eos = 0

    def start(self) -> Any:
        """Return the state before the boundary, one beam per utterance."""
        raise TypeError(f"{type(self).__name__} must define start")

    def step(self, tokens: Int[Tensor, "batch beam"], state: Any) -> tuple[Float[Tensor, "batch beam vocab"], Any]:
        """Return the log-probabilities of the next token and the new state."""
        raise TypeError(f"{type(self).__name__} must define step")

    def forced(self, targets: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch steps vocab"]:
        """Log-probabilities of each next token when these are fed, the end last."""
        state, steps = self.start(), []
        for tokens in (torch.full_like(targets[:, :1], self.sos), *targets.split(1, dim=1)):
            log_probs, state = self.step(tokens, state)
            steps.append(log_probs[:, 0])
        return torch.stack(steps, dim=1)


class SpeechModel(Trainable):
    """Base class of speech models: features, a listener, and what a subclass makes of the encoded states.

    Its targets are tokens, unless it is a `las.nn.acoustic_model.FrameModel`. Training calls `num_targets` and
    `forward_batch`, whose return value the loss takes, or with `one_graph` on a GPU `augmented` and `forward_features`
    in its place; the validation of a model of tokens reads its `logits`, one step
    more than there are targets, and its `weights` if there is attention. Searches take what `search_inputs` returns:
    for tokens a `las.decoding.base.Decoder`. Transcriptions of recordings, which have times and confidences, are made
    with `spell` and `token_times`; `las align` and searches over time read `state_ms` and `num_states`.
    """

    features: Features
    listener: Listener
    ctc: CTC | None
    """The CTC head; None without one."""
    operands: torch.dtype = torch.float32
    """Type of the operands of the listener's products in `search_inputs`; features and searches compute in fp32."""

    def num_states(self, num_samples: Lengths) -> Lengths:
        """Return the encoded states of utterances of `num_samples`, without computing them."""
        return self.listener.num_states(self.features.num_frames(num_samples))

    @property
    def state_ms(self) -> float:
        """Time from one encoded state to the next, in milliseconds."""
        shift = self.features.frame_shift_ms
        for factor in self.listener.reductions:
            shift *= factor
        return shift

    def forward_batch(self, batch: TrainingBatch, augment: FeatureAugmentation) -> Any:
        """Compute what the loss of a batch is taken of by `forward_features`, its features changed by `augment`."""
        return self.forward_features(*self.augmented(batch, augment), batch.targets)

    def forward_features(self, features: Rows, num_frames: Lengths, targets: Int[Tensor, "batch tokens"]) -> Any:
        """Compute what the loss is taken of from augmented features; with `one_graph`, without waiting for a GPU.

        `num_frames` may be on the device of the features.
        """
        raise TypeError(f"{type(self).__name__} must define forward_features")

    def augmented(
        self, batch: TrainingBatch, augment: FeatureAugmentation
    ) -> tuple[Float[Tensor, "batch frames size"], Lengths]:
        """Return the features of a batch, changed by `augment`, and each utterance's number of frames."""
        features, num_frames = self.features(batch.waveforms, batch.num_samples)
        return augment(features, num_frames, keys=batch.keys, orders=self.features.orders), num_frames

    def encode(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[Float[Tensor, "batch states size"], Lengths]:
        """Return encoded states for a search, with products of `operands`, and each utterance's number of states."""
        features, num_frames = self.features(waveforms, num_samples)
        with products_of(self.operands, features.device):
            encoded, num_states = self.listener(features, num_frames)
        return encoded.to(features.dtype), num_states

    def encode_piece(
        self, samples: Waveforms, state: Any = None, is_last: bool = False
    ) -> tuple[Float[Tensor, "batch states size"], Any]:
        """Return the encoded states that the next samples complete, and the state for those that follow.

        All of them together are those of `encode` on the whole. `state` is None in the beginning. Raises ConfigError
        for a model that waits for the end of an utterance, by its normalisation or its listener.
        """
        of_features, of_listener = state or (None, None)
        features, of_features = self.features.stream(samples, of_features, is_last)
        with products_of(self.operands, features.device):
            encoded, of_listener = self.listener.stream(features, of_listener, is_last)
        return encoded.to(features.dtype), (of_features, of_listener)

    @abstractmethod
    def search_inputs(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[Any, Lengths]:
        """Return the inputs of this model's search and the number of encoded states per utterance."""

    def spell(self, inputs: Any, targets: Int[Tensor, "batch tokens"], num_tokens: list[int]) -> Spelling:
        """Feed `num_tokens` tokens of each utterance to a model, whose `search_inputs` are given.

        Raises ConfigError for a model that has no times of tokens.
        """
        raise ConfigError(
            f"this {type(self).__name__} has no times of tokens, which transcriptions of recordings contain: it "
            "decodes splits of its corpus, las decode checkpoint=... split=test"
        )

    def token_times(self, weights: Float[Tensor, "tokens1 states"], duration_s: float) -> list[tuple[float, float]]:
        """Start and end of each token in seconds, from the weights that `spell` gives for an utterance."""
        raise TypeError(f"{type(self).__name__} must define token_times")

    def __init_subclass__(cls) -> None:
        """Raise TypeError for a class with the name of `search_inputs` in earlier releases."""
        super().__init_subclass__()
        if "decoder" in vars(cls) and "search_inputs" not in vars(cls):
            raise TypeError(f"{cls.__name__}.decoder is now called search_inputs: rename it")

    def output_and_search_inputs(self, batch: TrainingBatch) -> tuple[Any, Any, Lengths]:
        """Return the results of `forward_batch`, without augmentation, and of `search_inputs`: validation needs both.

        A subclass may compute the encoded states once for both.
        """
        output = self.forward_batch(batch, lambda features, num_frames, keys, orders: features)
        return output, *self.search_inputs(batch.waveforms, batch.num_samples)


Change = Callable[[Tensor, Tensor], Tensor]
"""Maps features [batch, frames, size] and numbers of frames [batch] to changed features, e.g. SpecAugment."""


class ModelOutput(NamedTuple):
    """Result of a teacher-forced pass: logits and attention weights, and the output of CTC if there is one."""

    logits: Float[Tensor, "batch steps vocab"]
    weights: Float[Tensor, "batch steps states"]
    ctc_output: CTCOutput | None
    search_inputs: tuple["Decoder", Lengths]
    """A decoder over the same encoded states, in fp32, and their numbers: for losses of hypotheses."""
    intermediate: CTCOutput | None = None
    """Output of CTC on a lower layer of the listener, if there is one."""


class Decoder(Replayable):
    """The model on one batch of utterances as search uses it: `start`, then any number of `step`s."""

    sos = eos = Speller.boundary

    def __init__(self, speller: Speller, memory: AttentionMemory, ctc: CTC | None = None) -> None:
        self.speller = speller
        self.memory = memory
        self.ctc = ctc
        self.step_fn = speller.select_step_fn(memory)

    def select_utterances(self, rows: Int[Tensor, " selected"]) -> "Decoder":
        """Return the decoder of a subset of the utterances, by their rows in the batch."""
        return Decoder(self.speller, AttentionMemory(*(part[rows] for part in self.memory)), self.ctc)

    def padded(self) -> "Decoder":
        """Return the decoder with states that are never attended to, up to one of few numbers."""
        batch, states = self.memory.mask.shape
        return Decoder(self.speller, self.memory.padded(batch, bucket(states)), self.ctc)

    def start(self) -> SpellerState:
        """Return the state before the first token, one beam per utterance."""
        return self.speller.start(self.memory)

    def step(
        self, tokens: Int[Tensor, "batch beam"], state: SpellerState
    ) -> tuple[Float[Tensor, "batch beam vocab"], SpellerState]:
        """Log-probabilities of the next token and the new state."""
        return self.speller.step(tokens, self.memory, state, self.step_fn)

    def search(self, limits: Sequence[int], expansion: tuple[int, int, float], nbest: int) -> Hypotheses | None:
        """Return the hypotheses of a whole search without scorers (see `CppSearchStep.search`), None without C++."""
        if self.step_fn is None:
            return None
        layers, context, _, attention = self.start()
        tokens = torch.full((len(limits), 1), self.sos)
        return cast(CppSearchStep, self.step_fn).search(tokens, layers, context, attention, limits, expansion, nbest)

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
        intermediate_ctc: makes an `IntermediateCTC` from (sizes of rows above the layers, vocab_size); None without it.

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

    one_graph = True

    def __init__(
        self,
        sample_rate: int,
        vocab_size: int,
        *,
        features: Callable[[int], Features],
        listener: Callable[[int], Listener],
        speller: Callable[[int, int], Speller],
        ctc: Callable[[int, int], CTC] | None = None,
        intermediate_ctc: Callable[[list[int], int], IntermediateCTC] | None = None,
    ) -> None:
        super().__init__()
        self.features = made("features", features, sample_rate)
        self.listener = made("listener", listener, self.features.size)
        self.speller = made("speller", speller, vocab_size, self.listener.output_size)
        self.ctc = None if ctc is None else ctc(self.listener.output_size, vocab_size)
        self.intermediate_ctc = None if intermediate_ctc is None else intermediate_ctc(self.listener.sizes, vocab_size)
        self.speller.attention.use_ctc(self.ctc)

    def explain(self) -> str:
        """Return a line for the log of a run: the kernels of listener and speller on the model's device, and why."""
        return f"{self.listener.explain()}; {self.speller.explain(next(self.parameters()))}"

    def listen(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[AttentionMemory, Lengths]:
        """Waveforms to the attention memory of the speller, and the number of states of each utterance."""
        encoded, num_states = self.listener(*self.features(waveforms, num_samples))
        return self.speller.attention.prepare(encoded, num_states), num_states

    def forward(
        self,
        waveforms: Waveforms,
        num_samples: Lengths,
        targets: Int[Tensor, "batch tokens"],
        change: Change | None = None,
    ) -> ModelOutput:
        """Teacher forcing: logits [batch, tokens + 1, vocab] and attention weights [batch, tokens + 1, states].

        `change` is applied to the features, e.g. SpecAugment while training.
        """
        features, num_frames = self.features(waveforms, num_samples)
        if change is not None:
            features = change(features, num_frames)
        return self._taught(features, num_frames, targets)

    def _taught(self, features: Rows, num_frames: Lengths, targets: Int[Tensor, "batch tokens"]) -> ModelOutput:
        levels: Levels | None = None if self.intermediate_ctc is None else []
        encoded, num_states = self.listener(features, num_frames, levels)
        memory = self.speller.attention.prepare(encoded, num_states)
        output: SpellerOutput = self.speller(memory, targets)
        ctc_output = None if self.ctc is None else CTCOutput(self.ctc(memory.values), num_states)
        keys, values = (part.to(torch.promote_types(part.dtype, torch.float32)) for part in memory[:2])
        decoder = Decoder(self.speller, AttentionMemory(keys, values, memory.mask), self.ctc)
        intermediate = None if self.intermediate_ctc is None else self.intermediate_ctc(levels)
        return ModelOutput(output.logits, output.weights, ctc_output, (decoder, num_states), intermediate)

    def forward_features(
        self, features: Rows, num_frames: Lengths, targets: Int[Tensor, "batch tokens"]
    ) -> ModelOutput:
        """Teacher forcing, with logits in fp32."""
        output = self._taught(features, num_frames, targets)
        return output._replace(logits=output.logits.float())

    def output_and_search_inputs(self, batch: TrainingBatch) -> tuple[ModelOutput, Decoder, Lengths]:
        output: ModelOutput = self(batch.waveforms, batch.num_samples, batch.targets)
        return output, *output.search_inputs

    def search_inputs(self, waveforms: Waveforms, num_samples: Lengths) -> tuple[Decoder, Lengths]:
        """Return a decoder over this batch for search, and the number of states of each utterance."""
        encoded, num_states = self.encode(waveforms, num_samples)
        memory = self.speller.attention.prepare(encoded, num_states)
        return Decoder(self.speller, memory, self.ctc), num_states.to(memory.mask.device, non_blocking=True)

    def spell(self, inputs: Decoder, targets: Int[Tensor, "batch tokens"], num_tokens: list[int]) -> Spelling:
        """Teacher forcing: logits and attention weights."""
        output: SpellerOutput = self.speller(inputs.memory, targets)
        return Spelling(output.logits, output.weights)

    def token_times(self, weights: Float[Tensor, "tokens1 states"], duration_s: float) -> list[tuple[float, float]]:
        """Estimate the times of tokens from attention; they cover the whole utterance.

        Each token is assigned one state, by the monotonic path of greatest weight (so that one diffuse row cannot pull
        others along); boundaries lie halfway between the states of neighbouring tokens.
        """
        return monotonic_times(weights, self.state_ms / 1000, duration_s)
